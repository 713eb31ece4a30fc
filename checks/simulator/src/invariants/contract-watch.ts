import type { AppendOptions, AppendResult, Manifest, MillraceError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { Fate } from "../backend/fate.ts"
import type { BackendWatch } from "../backend/faulty-backend.ts"
import type { SimBatch } from "../backend/sim-batch.ts"
import type { Trace } from "../trace.ts"
import { numberIn, type ProgramHistory } from "../workload/history.ts"

/** One append that the core waits for. */
interface Waiting {
  readonly attempt: number
  readonly batch: SimBatch
  readonly lane: number
  readonly calledMs: number
}

/**
 * Watches from the backend's side that the core keeps the contract: no more batches of a partition in flight than the manifest allows,
 * none appended after its release, each released once.
 */
export class ContractWatch implements BackendWatch {
  readonly #clock: Clock
  readonly #program: ProgramHistory
  readonly #trace: Trace
  readonly #attemptMs: number
  readonly #append: Manifest["append"]
  readonly #violate: (invariant: string, text: string) => void
  readonly #made = new Set<SimBatch>()
  readonly #waiting: Waiting[] = []
  #attempts = 0

  constructor(
    clock: Clock,
    rules: {
      readonly program: ProgramHistory
      readonly trace: Trace
      readonly attemptMs: number
      readonly manifest: Manifest
    },
    violate: (invariant: string, text: string) => void,
  ) {
    this.#clock = clock
    this.#program = rules.program
    this.#trace = rules.trace
    this.#attemptMs = rules.attemptMs
    this.#append = rules.manifest.append
    this.#violate = violate
  }

  /** Batches that nobody has released. */
  get kept(): number {
    return this.#made.size
  }

  /** The process that made the batches is gone. */
  forget(): void {
    this.#made.clear()
    this.#waiting.length = 0
  }

  made(batch: SimBatch): void {
    this.#made.add(batch)
  }

  released(batch: SimBatch): void {
    const now = this.#program.now
    for (const { payload } of batch.content) {
      const record = this.#program.records[numberIn(payload)]
      if (record !== undefined) record.releasedAt = now
    }
    if (!this.#made.delete(batch))
      this.#violate("batches are released once", `a batch of ${batch.count} was released twice`)
  }

  appendCalled(
    batch: SimBatch,
    { identity, confirm = "offsets" }: AppendOptions,
    { kind, arriveMs, answerMs }: Fate,
  ): number {
    if (this.#trace.isOn) {
      const as = identity === undefined ? "" : ` as ${identity.producerId}.${identity.epoch}:${identity.sequence}`
      this.#trace.note("backend", `append ${described(batch)}${as}: ${kind} after ${arriveMs} and ${answerMs} ms`)
    }
    const nowMs = this.#clock.monotonicMs()
    if (batch.isReleased)
      this.#violate("batches are released once", `a batch of ${batch.count} was appended after its release`)
    const lane = this.#laneOf(batch)
    const senders = this.#program.lanes[lane]?.shards ?? 1
    const limit = senders * this.#limitOf(identity, confirm)
    const attempt = ++this.#attempts
    this.#waiting.push({ attempt, batch, lane, calledMs: nowMs })
    // What was confirmed by a late answer of an earlier attempt, or given up, is not waited for any more.
    const inFlight = this.#waiting.filter(
      (other) =>
        other.lane === lane &&
        !other.batch.isReleased &&
        other.batch.partition === batch.partition &&
        other.batch.topic.topic === batch.topic.topic &&
        nowMs - other.calledMs < this.#attemptMs,
    ).length
    if (inFlight > limit) {
      this.#violate(
        "limit in flight",
        `${inFlight} batches of partition ${batch.partition} are in flight; ${limit} may be`,
      )
    }
    return attempt
  }

  appendHandled(batch: SimBatch, outcome: AppendResult | MillraceError): void {
    if (!this.#trace.isOn) return
    const end =
      outcome instanceof Error
        ? `refused: ${outcome.message}`
        : `stored at ${outcome.base ?? "several places"}, ${outcome.duplicates} duplicates`
    this.#trace.note("backend", `append ${described(batch)} ${end}`)
  }

  appendSettled(attempt: number): void {
    const at = this.#waiting.findIndex((waiting) => waiting.attempt === attempt)
    if (at !== -1) this.#waiting.splice(at, 1)
  }

  /** Without an identity only what is not told its offsets may be pipelined, where the backend refuses gaps by itself. */
  #limitOf(identity: AppendOptions["identity"], confirm: "offsets" | "stored"): number {
    const { dedup, inFlight } = this.#append
    if (dedup === "sequence" && identity === undefined) return 1
    return inFlight[confirm]
  }

  /** Whose batch it is; what is sent again after a failure is the client's own, −1. */
  #laneOf({ content, stamp }: SimBatch): number {
    const number = numberIn(content[0]?.payload ?? null)
    return stamp.resend ? -1 : (this.#program.records[number]?.lane.id ?? -1)
  }
}

function described({ topic, partition, content }: SimBatch): string {
  const first = numberIn(content[0]?.payload ?? null)
  const last = numberIn(content.at(-1)?.payload ?? null)
  return `#${first}..#${last} (${content.length}) to ${topic.topic}/${partition}`
}
