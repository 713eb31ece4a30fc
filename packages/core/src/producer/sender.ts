import {
  type AppendResult,
  type BatchStamp,
  type BatchWriter,
  batchId,
  type Identity,
  MillraceError,
  type PartitionLog,
  type TopicName,
  type WireRecord,
} from "@millrace/contract"
import type { Clock, Random, Timer } from "@millrace/runtime"
import type { Chunk } from "./chunk.ts"
import type { IdentitySource, IdentityUser } from "./identity-source.ts"
import { PendingBatch } from "./pending-batch.ts"
import type { SendCall } from "./send-call.ts"
import { SenderMachine } from "./sender.machine.ts"
import type { SenderCommand, SenderEvent, SenderSettings } from "./sender-command.ts"
import type { Entry } from "./sender-entry.ts"

/** What a sender works with, the same for all partitions of a topic. */
export interface SenderContext {
  readonly name: TopicName
  readonly log: PartitionLog
  readonly clock: Clock
  readonly random: Random
  readonly settings: SenderSettings
  /** Absent when batches carry no identity. */
  readonly identities: IdentitySource | undefined
  readonly newWriter: (partition: number) => BatchWriter
  /** One batch went out again. */
  readonly onResend: () => void
  /** The sender of a partition has ended; these batches have not settled and are now the owner's. */
  readonly onHandBack: (partition: number, batches: readonly PendingBatch[], error: MillraceError | undefined) => void
}

/** How records join a sender's batches. */
export interface Admission {
  readonly chunk: Chunk | undefined
  readonly resend: boolean
  readonly isMoved: boolean
}

/** Records that may share a batch with those of other calls. */
export const shared: Admission = { chunk: undefined, resend: false, isMoved: false }

/**
 * The batches of one partition: the open one, which records join in their final form, and those before it, on their way as the
 * machine says. Whatever changes wakes one pump, which runs in a microtask; no timer delays a send.
 */
export class Sender implements IdentityUser {
  readonly partition: number
  readonly #context: SenderContext
  readonly #machine: SenderMachine<PendingBatch>
  #open: PendingBatch | undefined
  #admission: Admission = shared
  #isPumpDue = false
  #timer: Timer | undefined
  #timerAtMs = 0
  readonly #unregister: (() => void) | undefined

  constructor(context: SenderContext, partition: number) {
    this.#context = context
    this.partition = partition
    this.#machine = new SenderMachine(context.settings)
    this.#unregister = context.identities?.register(this)
  }

  get numbered(): number {
    return this.#machine.numbered
  }

  /** The batch that records of several calls join; `undefined` when the next record begins a new one. */
  get open(): PendingBatch | undefined {
    return this.#open
  }

  /** How the records that follow join: what was open for others is closed. */
  admit(admission: Admission): void {
    this.#admission = admission
    if (this.#open !== undefined && this.#open.chunk !== admission.chunk) this.closeBatch()
  }

  /** Takes one record, the `index`-th of its call, into the open batch, or into a new one when that is full. */
  append(record: WireRecord, call: SendCall, index: number): void {
    const open = this.#open
    if (open?.tryAppend(record, call, index) === true) return
    this.closeBatch()
    const { chunk, resend, isMoved } = this.#admission
    const writer = this.#context.newWriter(this.partition)
    const batch = new PendingBatch(this.partition, writer, { chunk, resend, isMoved, stamp: this.#stamp })
    batch.tryAppend(record, call, index)
    if (chunk !== undefined) {
      chunk.opened(this.partition)
      chunk.onTurn(this.wake)
    }
    this.#open = batch
    this.#machine.enqueue(batch)
    this.wake()
  }

  /** No record joins the open batch any more. */
  closeBatch(): void {
    this.#open?.close()
    this.#open = undefined
  }

  readonly wake = (): void => {
    if (this.#isPumpDue) return
    this.#isPumpDue = true
    queueMicrotask(this.#pump)
  }

  /** The topic is another one now. What is in flight settles first; then the rest is handed back. */
  retire(): void {
    this.#run({ kind: "retire", nowMs: this.#nowMs() })
  }

  /** Ends everything at once: what has not settled fails. */
  abort(error: MillraceError): void {
    this.#run({ kind: "abort", error, nowMs: this.#nowMs() })
  }

  readonly #pump = (): void => {
    this.#isPumpDue = false
    const commands = this.#machine.dispatch(this.#nowMs(), this.#context.identities)
    this.#execute(commands)
    if (commands.at(-1)?.kind === "fail") this.wake()
    this.#setTimer()
  }

  #run(event: SenderEvent<PendingBatch>): void {
    this.#execute(this.#machine.step(event))
    if (this.#machine.phase === "ended") this.#unregister?.()
    else this.#context.identities?.noticeSettled()
    this.wake()
  }

  #execute(commands: readonly SenderCommand<PendingBatch>[]): void {
    for (const command of commands) {
      switch (command.kind) {
        case "append":
          this.#append(command.entry, command.attempt, command.identity)
          break
        case "confirm":
          command.batch.confirm(this.#context.name, command.result, command.resent)
          break
        case "fail":
          this.#forget(command.batch)
          command.batch.fail(command.error)
          break
        case "split":
          this.#machine.replace(command.entry, command.entry.batch.split())
          break
        case "identify":
          this.#identify(command.renew)
          break
        case "handBack":
          this.#open = undefined
          this.#context.onHandBack(this.partition, command.batches, command.error)
          break
      }
    }
  }

  #append(entry: Entry<PendingBatch>, attempt: number, identity: (Identity & { sequence: number }) | undefined): void {
    const { batch } = entry
    this.#forget(batch)
    if (attempt > 1) this.#context.onResend()
    let answer: Promise<AppendResult>
    try {
      const sealed = batch.seal()
      answer = this.#context.log.append(sealed, identity === undefined ? {} : { identity })
    } catch (error) {
      answer = Promise.reject(error)
    }
    answer.then(
      (result) => this.#run({ kind: "appended", entry, result, nowMs: this.#nowMs() }),
      (error) => this.#run({ kind: "failed", entry, attempt, error: millraceError(error), nowMs: this.#nowMs() }),
    )
  }

  #identify(renew: { readonly identity: Identity; readonly fenced: boolean } | undefined): void {
    const { name } = this.#context
    const source = this.#context.identities as IdentitySource
    const answer = renew === undefined ? source.acquire(name) : source.renew(name, renew.identity, renew)
    answer.then(
      (identity) => this.#run({ kind: "identified", identity, nowMs: this.#nowMs() }),
      (thrown) => {
        const error = millraceError(thrown)
        if (error.kind === "not-found") this.retire()
        else this.#run({ kind: "unidentified", error, nowMs: this.#nowMs() })
      },
    )
  }

  #forget(batch: PendingBatch): void {
    if (this.#open === batch) this.closeBatch()
  }

  readonly #stamp = (resend: boolean): BatchStamp => {
    const { clock, random } = this.#context
    const timestampMicros = clock.nowMicros()
    const low = (BigInt(random.uint32() & 0x3ff) << 32n) | BigInt(random.uint32())
    const id = batchId(Number(timestampMicros / 1000n), random.uint32() & 0xfff, low)
    return { id, timestampMicros, resend }
  }

  #setTimer(): void {
    const atMs = this.#machine.wakeAtMs
    if (this.#timer !== undefined) {
      if (atMs !== undefined && this.#timerAtMs <= atMs) return
      this.#timer.cancel()
      this.#timer = undefined
    }
    if (atMs === undefined) return
    this.#timerAtMs = atMs
    this.#timer = this.#context.clock.setTimer(Math.max(0, atMs - this.#nowMs()), () => {
      this.#timer = undefined
      this.#run({ kind: "timer", nowMs: this.#nowMs() })
    })
  }

  #nowMs(): number {
    return this.#context.clock.monotonicMs()
  }
}

/** What a driver throws, as the contract says it should be. Anything else leaves the outcome open. */
export function millraceError(thrown: unknown): MillraceError {
  if (thrown instanceof MillraceError) return thrown
  const message = `the driver failed in an unexpected way: ${thrown instanceof Error ? thrown.message : String(thrown)}`
  return new MillraceError("protocol", message, { cause: thrown })
}
