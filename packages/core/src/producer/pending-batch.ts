import type {
  AppendResult,
  BatchStamp,
  BatchWriter,
  MillraceError,
  SealedBatch,
  TopicName,
  WireRecord,
} from "@millrace/contract"
import type { ObservableBatch, ObservedBatch } from "../observe/batch-observer.ts"
import type { BatchNumber } from "./batch-journal.ts"
import { BatchOutcome } from "./batch-outcome.ts"
import type { Call } from "./call.ts"
import type { Chunk } from "./chunk.ts"
import { unconfirmedRecords } from "./send-call.ts"
import { doubted, type SenderBatch } from "./sender-entry.ts"

/** The records of one call within a batch. */
export interface BatchPart {
  readonly call: Call
  /** Which record of the call the first one is. */
  readonly index: number
  readonly records: readonly WireRecord[]
}

export interface BatchOptions {
  readonly chunk: Chunk | undefined
  readonly resend: boolean
  readonly isMoved: boolean
  /** Asked once, when the batch is sealed. */
  readonly stamp: (resend: boolean) => BatchStamp
  /** Of one that was split off: how many records of the stamp's batch lie before its first one. */
  readonly skipped?: number
}

/**
 * A batch of one partition from its first record to its settlement, with the calls whose records are in it. The records of one call
 * stand together: a part is a call, where it starts in the batch, and which record of the call that is.
 */
export class PendingBatch implements SenderBatch, ObservableBatch {
  readonly partition: number
  /** The request of a larger call that this batch is, alone; absent when several calls may share it. */
  readonly chunk: Chunk | undefined
  readonly resend: boolean
  /** It holds records that were meant for an earlier incarnation of the topic. */
  readonly isMoved: boolean
  attempt = 0
  /** It was handed back, and may be stored. */
  isUnknown = false
  firstSentMs = 0
  lastError: MillraceError | undefined = undefined
  observed: ObservedBatch | undefined = undefined
  /** How many records of the stamp's batch lie before its first one. */
  readonly skipped: number
  /** Where a journal has written it down, and under which number; −1: not at all. */
  ordinal: number = -1
  numberedAs: BatchNumber | undefined = undefined
  readonly #stamp: (resend: boolean) => BatchStamp
  #usedStamp: BatchStamp | undefined
  /** Behind the last record of the last part. */
  #nextIndex = 0
  #writer: BatchWriter | undefined
  #sealed: SealedBatch | undefined
  #isFull = false
  #isDue = false
  #calls: Call[] = []
  #starts: number[] = []
  #indexes: number[] = []

  constructor(partition: number, content: BatchWriter | SealedBatch, options: BatchOptions) {
    this.partition = partition
    this.chunk = options.chunk
    this.resend = options.resend
    this.isMoved = options.isMoved
    this.skipped = options.skipped ?? 0
    this.#stamp = options.stamp
    if ("tryAppend" in content) this.#writer = content
    else this.#sealed = content
  }

  get count(): number {
    return this.#sealed?.count ?? this.#writer?.count ?? 0
  }

  /** Whose record was the last to join. */
  get lastCall(): Call | undefined {
    return this.#calls.at(-1)
  }

  get full(): boolean {
    return this.#isFull || this.#sealed !== undefined
  }

  /** Its time has come: it may go out before it is full. */
  get due(): boolean {
    return this.#isDue
  }

  /** Whether its first record was sent before the other's. */
  isOlderThan(other: PendingBatch): boolean {
    const first = (this.#calls[0] as Call).ordinal - (other.#calls[0] as Call).ordinal
    return first === 0 ? (this.#indexes[0] as number) < (other.#indexes[0] as number) : first < 0
  }

  get gate(): "open" | "held" | "dropped" {
    return this.chunk === undefined ? "open" : this.chunk.gate(this.partition)
  }

  /** Takes one record of a call, or answers false when the batch is full; then it takes no more. */
  tryAppend(record: WireRecord, call: Call, index: number): boolean {
    if (this.full) return false
    const writer = this.#writer as BatchWriter
    const at = writer.count
    if (!writer.tryAppend(record)) {
      this.#isFull = true
      return false
    }
    if (this.#calls.at(-1) !== call || (call.isExact && index !== this.#nextIndex)) this.#join(call, at, index)
    this.#nextIndex = index + 1
    return true
  }

  /** No record joins any more. */
  close(): void {
    this.#isFull = true
  }

  /** It need not wait for more records. Some may still join until it goes out. */
  makeDue(): void {
    this.#isDue = true
  }

  /** The batch in its final form, the same each time, so that resends keep their ids. */
  seal(): SealedBatch {
    this.#sealed ??= (this.#writer as BatchWriter).seal(this.stamp)
    this.#writer = undefined
    return this.#sealed
  }

  /** The same each time it is asked for. */
  get stamp(): BatchStamp {
    this.#usedStamp ??= this.#stamp(this.resend)
    return this.#usedStamp
  }

  /** Every part: where in its call it begins, and how many records it has. */
  eachPart(visit: (call: Call, index: number, length: number) => void): void {
    for (let part = 0; part < this.#calls.length; part++) {
      visit(this.#calls[part] as Call, this.#indexes[part] as number, this.#lengthOf(part))
    }
  }

  /** Settles every part. */
  confirm(name: TopicName, result: AppendResult, resent: boolean): void {
    const outcome = new BatchOutcome(name, result, { partition: this.partition, count: this.count, resent })
    for (let part = 0; part < this.#calls.length; part++) {
      outcome.start = this.#starts[part] as number
      const call = this.#calls[part] as Call
      call.confirmPart(this.#indexes[part] as number, this.#lengthOf(part), outcome)
    }
    this.#end()
    this.chunk?.settled(false)
  }

  /** Gives every part back to its call. */
  fail(thrown: MillraceError): void {
    const error = this.isUnknown ? doubted(thrown) : thrown
    for (const { call, index, records } of this.takeParts()) {
      call.failPart(index, unconfirmedRecords(records, this.partition), error)
    }
    this.chunk?.settled(true)
  }

  /** The records of each part again, each with its id and time; the batch ends, and settling the parts is the caller's. */
  takeParts(): BatchPart[] {
    const records = this.#recordsAgain()
    const parts = this.#calls.map((call, part) => {
      const start = this.#starts[part] as number
      return { call, index: this.#indexes[part] as number, records: records.slice(start, start + this.#lengthOf(part)) }
    })
    this.#end()
    return parts
  }

  /** Two batches in the place of this one. */
  split(): [PendingBatch, PendingBatch] {
    const sealed = this.#sealed as SealedBatch
    const { count } = sealed
    const halves = sealed.split().map(
      (half, i) =>
        new PendingBatch(this.partition, half, {
          chunk: this.chunk,
          resend: this.resend,
          isMoved: this.isMoved,
          stamp: () => this.stamp,
          skipped: this.skipped + (i === 0 ? 0 : count - half.count),
        }),
    ) as [PendingBatch, PendingBatch]
    const [first, second] = halves
    const cut = first.count
    for (let part = 0; part < this.#calls.length; part++) {
      const call = this.#calls[part] as Call
      const start = this.#starts[part] as number
      const index = this.#indexes[part] as number
      const end = start + this.#lengthOf(part)
      if (start < cut) first.#join(call, start, index)
      if (end > cut) second.#join(call, Math.max(0, start - cut), index + Math.max(0, cut - start))
      call.movePart()
    }
    this.chunk?.opened(this.partition)
    this.chunk?.opened(this.partition)
    this.chunk?.settled(false)
    return halves
  }

  /** A batch that cannot give its records back must not keep its calls from settling. */
  #recordsAgain(): WireRecord[] {
    try {
      return this.seal().records()
    } catch {
      return []
    }
  }

  #join(call: Call, start: number, index: number): void {
    call.openPart()
    this.#calls.push(call)
    this.#starts.push(start)
    this.#indexes.push(index)
  }

  #lengthOf(part: number): number {
    return (this.#starts[part + 1] ?? this.count) - (this.#starts[part] as number)
  }

  #end(): void {
    this.#calls = []
    this.#sealed?.release()
  }
}
