import {
  type AppendResult,
  type BatchStamp,
  type BatchWriter,
  batchId,
  Headers,
  type Identity,
  type Lineage,
  MillraceError,
  type PartitionLog,
  type TopicName,
  type WireRecord,
} from "@millrace/contract"
import type { Clock, Random, Timer } from "@millrace/runtime"
import type { BatchObserver } from "../observe/batch-observer.ts"
import type { BatchJournal, BatchNumber, RestoredBatch } from "./batch-journal.ts"
import type { Call } from "./call.ts"
import type { Chunk } from "./chunk.ts"
import { DeliveryGroup } from "./delivery-group.ts"
import type { Identities, IdentityUser } from "./identity-source.ts"
import { PendingBatch } from "./pending-batch.ts"
import { SenderMachine } from "./sender.machine.ts"
import type { SenderCommand, SenderEvent, SenderSettings } from "./sender-command.ts"
import type { Entry } from "./sender-entry.ts"
import type { TransactionScope } from "./transaction-scope.ts"

/** What a sender works with, the same for all partitions of a topic. */
export interface SenderContext {
  readonly name: TopicName
  readonly log: PartitionLog
  readonly clock: Clock
  readonly random: Random
  readonly settings: SenderSettings
  /** What confirmations have to tell. */
  readonly confirm: "offsets" | "stored"
  /** Absent when batches carry no identity. */
  readonly identities: Identities | undefined
  /** Absent when batches are not part of transactions. */
  readonly transaction: TransactionScope | undefined
  readonly newWriter: (partition: number) => BatchWriter
  /** A writer for a batch of so many records, as large as the backend takes. */
  readonly restoringWriter: (partition: number, records: number) => BatchWriter
  /** Which history of the topic batches are made for. */
  readonly lineage: Lineage
  /** Absent where nobody will send the batches again. */
  readonly journal: BatchJournal | undefined
  /** So many records go out again although they may be stored, and their resend is not recognised. */
  readonly onDoubt: ((records: number) => void) | undefined
  /** Told of every batch. */
  readonly observer: BatchObserver
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

const noBatches: readonly PendingBatch[] = []

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
  #isAborted = false
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
  append(record: WireRecord, call: Call, index: number): void {
    const { observer } = this.#context
    const open = this.#open
    if (open?.tryAppend(record, call, index) === true) {
      if (observer.links) observer.joined(open, record)
      return
    }
    this.closeBatch()
    const { chunk, resend, isMoved } = this.#admission
    this.#context.transaction?.enter(this.#context.name, this.partition)
    const writer = this.#context.newWriter(this.partition)
    const batch = new PendingBatch(this.partition, writer, { chunk, resend, isMoved, stamp: this.#stamp })
    batch.tryAppend(record, call, index)
    if (observer.links) observer.joined(batch, record)
    if (chunk !== undefined) {
      chunk.opened(this.partition)
      chunk.onTurn(this.wake)
    }
    this.#open = batch
    this.#machine.enqueue(batch)
    this.wake()
  }

  /** Takes one record into the group that stands last in the open batch, or else into a new one. No group has records of two batches. */
  appendToGroup(record: WireRecord, open: () => DeliveryGroup): DeliveryGroup {
    const batch = this.#open
    const last = batch?.lastCall
    if (batch !== undefined && last instanceof DeliveryGroup && batch.tryAppend(record, last, last.count)) {
      const { observer } = this.#context
      if (observer.links) observer.joined(batch, record)
      return last
    }
    const group = open()
    this.append(record, group, 0)
    return group
  }

  /** Puts a batch of an earlier process on its way again. False when it cannot be made again as it was. */
  restore(call: Call, was: RestoredBatch): boolean {
    const { id, timestampMicros, resend, isMoved, skipped, records } = was
    const writer = this.#context.restoringWriter(this.partition, records.length)
    const stamp = (): BatchStamp => ({ id, timestampMicros, resend })
    const batch = new PendingBatch(this.partition, writer, { chunk: undefined, resend, isMoved, stamp, skipped })
    if (!fillAgain(batch, call, was)) return false
    batch.close()
    batch.ordinal = was.ordinal
    batch.numberedAs = was.identity
    this.#machine.restore(batch, { identity: was.identity, firstSentMs: this.#nowMs() - was.ageMs })
    this.wake()
    return true
  }

  /** No record joins the open batch any more. */
  closeBatch(): void {
    this.#open?.close()
    this.#open = undefined
  }

  /** What lingers for more records need not any more. */
  release(): void {
    if (this.#open === undefined || this.#open.due) return
    this.#open.makeDue()
    this.wake()
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
    this.#isAborted = true
    this.#run({ kind: "abort", error, nowMs: this.#nowMs() })
  }

  readonly #pump = (): void => {
    this.#isPumpDue = false
    const commands = this.#machine.dispatch(this.#nowMs(), this.#context.identities)
    this.#forgetNumbers()
    this.#execute(commands)
    if (commands.at(-1)?.kind === "fail") this.wake()
    this.#setTimer()
  }

  #run(event: SenderEvent<PendingBatch>): void {
    const commands = this.#machine.step(event)
    this.#forgetNumbers()
    this.#execute(commands)
    if (this.#machine.phase === "ended") this.#unregister?.()
    else this.#context.identities?.noticeSettled()
    this.wake()
  }

  /** What was written down ahead of a gap must not be sent before what the gap has left behind. */
  #forgetNumbers(): void {
    for (const batch of this.#machine.takeUnnumbered()) this.#context.journal?.voided(batch)
  }

  #execute(commands: readonly SenderCommand<PendingBatch>[]): void {
    for (const command of commands) {
      switch (command.kind) {
        case "append":
          this.#append(command.entry, command.attempt, command.identity)
          break
        case "confirm":
          this.#context.observer.confirmed(command.batch, command.result)
          this.#context.journal?.settled(command.batch)
          command.batch.confirm(this.#context.name, command.result, command.resent)
          break
        case "fail":
          this.#forget(command.batch)
          this.#context.observer.failed(command.batch, command.error)
          // What may be stored is still known by its number, which is not used again then.
          // Nor does what is given up with everything else lose its number: it goes out again ahead of those behind it.
          if (command.error.outcome === "rejected" && !this.#isAborted) this.#context.journal?.voided(command.batch)
          command.batch.fail(command.error)
          break
        case "split":
          this.#split(command.entry)
          break
        case "identify":
          this.#identify(command.renew)
          break
        case "handBack":
          this.#open = undefined
          for (const batch of command.batches) this.#context.observer.replaced(batch, noBatches)
          for (const batch of command.batches) this.#context.journal?.voided(batch)
          for (const batch of command.unknown) batch.isUnknown = true
          this.#context.onHandBack(this.partition, command.batches, command.error)
          break
      }
    }
  }

  #append(entry: Entry<PendingBatch>, attempt: number, identity: BatchNumber | undefined): void {
    const { batch } = entry
    this.#forget(batch)
    const { journal, lineage } = this.#context
    const written = journal?.dispatching(batch, { lineage, identity })
    if (written === undefined) this.#dispatch(entry, attempt, identity)
    else {
      this.#machine.hold(entry)
      written.then(
        () => {
          if (entry.state !== "inFlight" || entry.attempt !== attempt) return
          this.#machine.begin(entry, this.#nowMs())
          this.#setTimer()
          this.#dispatch(entry, attempt, identity)
        },
        (error) => this.#run({ kind: "failed", entry, attempt, error: millraceError(error), nowMs: this.#nowMs() }),
      )
    }
  }

  #dispatch(entry: Entry<PendingBatch>, attempt: number, identity: BatchNumber | undefined): void {
    const { batch } = entry
    if (attempt > 1) this.#context.onResend()
    if (entry.doubtful) this.#context.onDoubt?.(batch.count)
    entry.doubtful = false
    this.#context.observer.sending(batch, attempt)
    let answer: Promise<AppendResult>
    try {
      const sealed = batch.seal()
      const { log, confirm, transaction } = this.#context
      const options = identity === undefined ? { confirm } : { identity, confirm }
      answer = log.append(sealed, transaction === undefined ? options : { ...options, transaction: transaction.handle })
    } catch (error) {
      answer = Promise.reject(error)
    }
    answer.then(
      (result) => this.#run({ kind: "appended", entry, result, nowMs: this.#nowMs() }),
      (thrown) => {
        const error = millraceError(thrown)
        batch.lastError = error
        this.#run({ kind: "failed", entry, attempt, error, nowMs: this.#nowMs() })
      },
    )
  }

  #split(entry: Entry<PendingBatch>): void {
    this.#context.journal?.voided(entry.batch)
    const halves = entry.batch.split()
    this.#context.observer.replaced(entry.batch, halves)
    this.#machine.replace(entry, halves)
  }

  #identify(renew: { readonly identity: Identity; readonly fenced: boolean } | undefined): void {
    const { name } = this.#context
    const source = this.#context.identities as Identities
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

/** False when the batch does not take every record. */
function fillAgain(batch: PendingBatch, call: Call, { records, id, skipped }: RestoredBatch): boolean {
  try {
    for (const [i, record] of records.entries()) {
      const own = record instanceof Uint8Array ? bare(record) : record
      // Only the first part of a batch has ids that follow from its stamp alone.
      const wire = skipped === 0 || own.id !== undefined ? own : { ...own, id: id + BigInt(skipped + i) }
      if (!batch.tryAppend(wire, call, i)) return false
    }
    return true
  } catch {
    return false
  }
}

function bare(payload: Uint8Array): WireRecord {
  return { payload, key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined }
}

/** What a driver throws, as the contract says it should be. Anything else leaves the outcome open. */
export function millraceError(thrown: unknown): MillraceError {
  if (thrown instanceof MillraceError) return thrown
  const message = `the driver failed in an unexpected way: ${thrown instanceof Error ? thrown.message : String(thrown)}`
  return new MillraceError("protocol", message, { cause: thrown })
}
