import type {
  AppendResult,
  BatchStamp,
  BatchWriter,
  MillraceError,
  SealedBatch,
  TopicName,
  WireRecord,
} from "@millrace/contract"
import type { Chunk } from "./chunk.ts"
import type { Confirmation } from "./confirmation.ts"
import { type SendCall, unconfirmedRecords } from "./send-call.ts"
import type { SenderBatch } from "./sender-entry.ts"

/** The records of one call within a batch. */
export interface BatchPart {
  readonly call: SendCall
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
}

/**
 * A batch of one partition from its first record to its settlement, with the calls whose records are in it. The records of one call
 * stand together: a part is a call, where it starts in the batch, and which record of the call that is.
 */
export class PendingBatch implements SenderBatch {
  readonly partition: number
  /** The request of a larger call that this batch is, alone; absent when several calls may share it. */
  readonly chunk: Chunk | undefined
  readonly resend: boolean
  /** It holds records that were meant for an earlier incarnation of the topic. */
  readonly isMoved: boolean
  readonly #stamp: (resend: boolean) => BatchStamp
  #writer: BatchWriter | undefined
  #sealed: SealedBatch | undefined
  #isFull = false
  #calls: SendCall[] = []
  #starts: number[] = []
  #indexes: number[] = []

  constructor(partition: number, content: BatchWriter | SealedBatch, options: BatchOptions) {
    this.partition = partition
    this.chunk = options.chunk
    this.resend = options.resend
    this.isMoved = options.isMoved
    this.#stamp = options.stamp
    if ("tryAppend" in content) this.#writer = content
    else this.#sealed = content
  }

  get count(): number {
    return this.#sealed?.count ?? this.#writer?.count ?? 0
  }

  get full(): boolean {
    return this.#isFull || this.#sealed !== undefined
  }

  get gate(): "open" | "held" | "dropped" {
    return this.chunk === undefined ? "open" : this.chunk.gate(this.partition)
  }

  /** Takes one record of a call, or answers false when the batch is full; then it takes no more. */
  tryAppend(record: WireRecord, call: SendCall, index: number): boolean {
    if (this.full) return false
    const writer = this.#writer as BatchWriter
    const at = writer.count
    if (!writer.tryAppend(record)) {
      this.#isFull = true
      return false
    }
    if (this.#calls.at(-1) !== call) this.#join(call, at, index)
    return true
  }

  /** No record joins any more. */
  close(): void {
    this.#isFull = true
  }

  /** The batch in its final form, the same each time, so that resends keep their ids. */
  seal(): SealedBatch {
    this.#sealed ??= (this.#writer as BatchWriter).seal(this.#stamp(this.resend))
    this.#writer = undefined
    return this.#sealed
  }

  /** Settles every part. Where only some records were duplicates, nothing is said about single offsets. */
  confirm(name: TopicName, result: AppendResult, resent: boolean): void {
    const count = this.count
    const whole = result.duplicates === count
    const ownEcho = resent && whole
    for (let part = 0; part < this.#calls.length; part++) {
      const start = this.#starts[part] as number
      const length = this.#lengthOf(part)
      const confirmation = this.#confirmation(name, result, { start, count: length })
      const duplicates = ownEcho ? 0 : whole ? length : length === count ? result.duplicates : 0
      const call = this.#calls[part] as SendCall
      call.confirmPart(this.#indexes[part] as number, confirmation, duplicates)
    }
    this.#end()
    this.chunk?.settled(false)
  }

  /** Gives every part back to its call. */
  fail(error: MillraceError): void {
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
    const halves = sealed.split().map(
      (half) =>
        new PendingBatch(this.partition, half, {
          chunk: this.chunk,
          resend: this.resend,
          isMoved: this.isMoved,
          stamp: this.#stamp,
        }),
    ) as [PendingBatch, PendingBatch]
    const [first, second] = halves
    const cut = first.count
    for (let part = 0; part < this.#calls.length; part++) {
      const call = this.#calls[part] as SendCall
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

  #join(call: SendCall, start: number, index: number): void {
    call.openPart()
    this.#calls.push(call)
    this.#starts.push(start)
    this.#indexes.push(index)
  }

  #lengthOf(part: number): number {
    return (this.#starts[part + 1] ?? this.count) - (this.#starts[part] as number)
  }

  #confirmation(
    name: TopicName,
    result: AppendResult,
    range: { readonly start: number; readonly count: number },
  ): Confirmation | undefined {
    if (result.base === undefined || !result.contiguous) return undefined
    return {
      stream: name.stream,
      topic: name.topic,
      partition: this.partition,
      baseOffset: result.base + BigInt(range.start),
      count: range.count,
    }
  }

  #end(): void {
    this.#calls = []
    this.#sealed?.release()
  }
}
