import { type AppendResult, MillraceError, StorageError } from "@millrace/contract"
import { apiCode } from "./api-error.ts"
import { type ConfirmedSend, confirmedAppend } from "./confirmed-append.ts"
import type { Connection } from "./connection.ts"
import type { IngestAnswers } from "./ingest-answers.ts"
import { IngestLane } from "./ingest-lane.ts"
import type { PartitionTarget } from "./partition-target.ts"
import { explainSilence } from "./pub-ack.ts"
import type { NatsSealedBatch } from "./sealed-batch.ts"
import { explainTooLarge } from "./too-large.ts"
import type { TopicLayouts } from "./topic-layout.ts"

/** What a partition's stream takes. */
export interface LaneRoute {
  readonly subject: string
  readonly atomic: boolean
  readonly ingest: boolean
}

interface Job {
  readonly batch: NatsSealedBatch
  readonly confirm: "offsets" | "stored"
  readonly resolve: (result: AppendResult) => void
  readonly reject: (error: MillraceError) => void
}

export interface LaneParts {
  readonly connection: Connection
  readonly layouts: TopicLayouts
  readonly answers: IngestAnswers
  readonly target: PartitionTarget
  readonly route: LaneRoute
  /** Nothing is under way any more. */
  readonly idle: () => void
}

/**
 * The batches of one partition, in the order of the calls. Those that want offsets go one at a time (independent atomic batches keep
 * no order between them); those that need only be stored share an ingest. The two ways never overlap.
 */
export class AppendLane {
  readonly #parts: LaneParts
  readonly #ingest: IngestLane
  readonly #queue: Job[] = []
  /** What the stream turned out to take: one that an older server made may take less than its server does. */
  #atomic: boolean
  #ingests: boolean
  #confirming = false
  #closed: MillraceError | undefined

  constructor(parts: LaneParts) {
    this.#parts = parts
    const { connection, answers, target, layouts, route } = parts
    this.#atomic = route.atomic
    this.#ingests = route.ingest
    this.#ingest = new IngestLane({
      connection,
      answers,
      subject: route.subject,
      idle: () => this.#pump(),
      explainSilence: () => explainSilence(target, layouts),
    })
  }

  get busy(): boolean {
    return this.#confirming || this.#ingest.busy || this.#queue.length > 0
  }

  append(batch: NatsSealedBatch, confirm: "offsets" | "stored"): Promise<AppendResult> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed)
    const { promise, resolve, reject } = Promise.withResolvers<AppendResult>()
    const way = confirm === "stored" && this.#ingests ? "stored" : "offsets"
    this.#queue.push({ batch, confirm: way, resolve, reject })
    this.#pump()
    return promise
  }

  /** The connection was lost: what was sent is in doubt. (What wants offsets learns it from its own answers.) */
  lost(error: MillraceError): void {
    this.#ingest.cut(error)
  }

  /** The user may not publish to a subject; the server says nothing else about the messages. */
  denied(subject: string, error: MillraceError): void {
    if (subject === this.#parts.route.subject) this.#ingest.refuse(error)
  }

  /** @param error Of what was not sent yet; what was sent is in doubt. */
  close(error: MillraceError): void {
    this.#closed = error
    for (const job of this.#queue.splice(0)) job.reject(error)
    this.#ingest.close(error)
  }

  #pump(): void {
    for (;;) {
      const job = this.#queue[0]
      if (job === undefined || this.#confirming || (job.confirm === "offsets" && this.#ingest.busy)) break
      this.#queue.shift()
      try {
        this.#parts.connection.check()
      } catch (error) {
        job.reject(asMillrace(error))
        continue
      }
      if (job.confirm === "offsets") this.#confirm(job)
      else this.#store(job)
    }
    if (!this.busy) this.#parts.idle()
  }

  #store(job: Job): void {
    const { batch, resolve } = job
    const reject = (error: MillraceError): void => {
      if (error.context.errCode !== apiCode.ingestDisabled) {
        job.reject(error)
        return
      }
      // Nothing was stored: it goes again at once, before what came behind it.
      this.#ingests = false
      for (const [index, waiting] of this.#queue.entries()) this.#queue[index] = { ...waiting, confirm: "offsets" }
      this.#queue.unshift({ ...job, confirm: "offsets" })
    }
    this.#ingest.append({ batch, count: batch.count, resolve, reject })
  }

  #confirm(job: Job): void {
    const { connection, route, target, layouts } = this.#parts
    const send = (): ConfirmedSend => ({ batch: job.batch, subject: route.subject, atomic: this.#atomic })
    this.#confirming = true
    confirmedAppend(connection, send())
      .catch((error: unknown) => {
        if (!(error instanceof MillraceError) || error.context.errCode !== apiCode.batchDisabled) throw error
        this.#atomic = false
        return confirmedAppend(connection, send())
      })
      .then(job.resolve, async (error: unknown) => {
        const failure = asMillrace(error)
        // "Nobody listens" has two reasons, which lead to different deeds.
        const silent = failure.kind === "not-found" && failure.outcome === "rejected"
        job.reject(silent ? await explainSilence(target, layouts) : await explainTooLarge(failure, job.batch, layouts))
      })
      .finally(() => {
        this.#confirming = false
        this.#pump()
      })
  }
}

function asMillrace(error: unknown): MillraceError {
  return error instanceof MillraceError ? error : new StorageError(String(error), { outcome: "unknown", cause: error })
}
