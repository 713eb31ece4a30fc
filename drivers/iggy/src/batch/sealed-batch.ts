import {
  type BatchStamp,
  Headers,
  HeaderValue,
  headerKindCodes,
  InvalidError,
  type Lineage,
  type SealedBatch,
  type TopicName,
  type WireRecord,
} from "@millrace/contract"
import type { SlabPool } from "@millrace/runtime"
import { type IggyEncodedBatch, readBatch } from "./encoded-batch.ts"

/** Where a batch goes: what its topic was when its writer was made. */
export interface BatchTarget {
  readonly topic: TopicName
  readonly lineage: Lineage
  readonly partition: number
}

/** What the writer hands over. */
export interface BatchContent {
  readonly slab: Buffer
  /** Of the whole request. */
  readonly bytes: number
  /** Where the batch header begins. */
  readonly batchAt: number
  readonly count: number
  readonly stamp: BatchStamp
  /** Whether the records have times of their own. */
  readonly timed: boolean
  /** A writer for another batch of the same partition, without a limit of bytes (for `split`). */
  another(sizeHintBytes: number): PartWriter
}

/** As much of the batch writer as `split` needs. */
export interface PartWriter {
  tryAppend(record: WireRecord): boolean
  seal(stamp: BatchStamp): IggySealedBatch
}

/** A closed batch in a slab that goes back to its pool when it is released and nobody has it pinned. */
export class IggySealedBatch implements SealedBatch {
  readonly target: BatchTarget
  readonly #pool: SlabPool
  readonly #content: BatchContent
  readonly #frame: Buffer
  #users = 1
  #released = false

  constructor(target: BatchTarget, pool: SlabPool, content: BatchContent) {
    this.target = target
    this.#pool = pool
    this.#content = content
    this.#frame = content.slab.subarray(0, content.bytes)
  }

  get partition(): number {
    return this.target.partition
  }

  get count(): number {
    return this.#content.count
  }

  get bytes(): number {
    return this.#content.bytes
  }

  /** The whole request, but for what the connection writes into its header. @throws InvalidError when it is released and nobody has it pinned */
  get frame(): Buffer {
    if (this.#users === 0) throw new InvalidError("the batch was released and cannot be appended")
    return this.#frame
  }

  records(): WireRecord[] {
    const batch = this.#batch("records")
    const records: WireRecord[] = []
    for (let i = 0; i < batch.count; i++) records.push(copyOf(batch, i))
    return records
  }

  split(): readonly [IggySealedBatch, IggySealedBatch] {
    const batch = this.#batch("split")
    if (batch.count < 2) throw new InvalidError("a batch of one record cannot be split")
    const half = batch.count >> 1
    const parts = [this.#part(batch, 0, half), this.#part(batch, half, batch.count)] as const
    this.release()
    return parts
  }

  release(): void {
    if (this.#released) return
    this.#released = true
    this.unpin()
  }

  /** Somebody begins to use the slab: an append, a socket. @throws InvalidError when it is released and nobody has it pinned */
  pin(): void {
    if (this.#users === 0) throw new InvalidError("the batch was released and cannot be appended")
    this.#users++
  }

  /** Somebody is done with it. */
  unpin(): void {
    if (--this.#users === 0) this.#pool.give(this.#content.slab)
  }

  #batch(what: string): IggyEncodedBatch {
    if (this.#released) throw new InvalidError(`the batch was released: ${what}() comes too late`)
    return readBatch(this.#frame, this.#content.batchAt)
  }

  /** All ids are written out: a part cannot derive them from its stamp. */
  #part(batch: IggyEncodedBatch, from: number, to: number): IggySealedBatch {
    const writer = this.#content.another(this.#content.bytes >> 1)
    for (let i = from; i < to; i++) {
      writer.tryAppend({
        payload: batch.payload(i),
        key: batch.key(i),
        headers: batch.headers(i),
        id: batch.id(i),
        timestampMicros: this.#content.timed ? batch.originTimestampMicros(i) : undefined,
      })
    }
    return writer.seal(this.#content.stamp)
  }
}

function copyOf(batch: IggyEncodedBatch, index: number): WireRecord {
  const payload = batch.payload(index)
  const key = batch.key(index)
  return {
    payload: payload === null ? null : new Uint8Array(payload),
    key: key === null ? null : new Uint8Array(key),
    headers: copiedHeaders(batch.headers(index)),
    id: batch.id(index),
    timestampMicros: batch.originTimestampMicros(index),
  }
}

function copiedHeaders(headers: Headers): Headers {
  return Headers.ofStored(
    Array.from(headers, ([name, value]) => [
      name,
      HeaderValue.fromBytes(headerKindCodes[value.kind], new Uint8Array(value.bytes)),
    ]),
  )
}
