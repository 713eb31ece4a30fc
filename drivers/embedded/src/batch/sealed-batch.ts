import type { BatchStamp, Durability, Lineage, SealedBatch, TopicName, WireRecord } from "@millrace/contract"
import { InvalidError } from "@millrace/contract"
import type { SlabPool } from "@millrace/runtime"
import { BatchBody } from "./batch-body.ts"

/** Where a batch goes: what its topic was when its writer was made. */
export interface BatchTarget {
  readonly topic: TopicName
  readonly lineage: Lineage
  readonly partition: number
  readonly durability: Durability
}

/** What the writer hands over. */
export interface BatchContent {
  /** A view of shared memory, at least `bytes` long. */
  readonly slab: Buffer
  readonly bytes: number
  /** Of the bytes, as `bodyChecksum` has it. */
  readonly checksum: number
  readonly count: number
  readonly stamp: BatchStamp
  /** Whether some record carries an id of its own. */
  readonly ownIds: boolean
  /** A writer for another batch of the same partition, without limits (for `split`). */
  another(sizeHintBytes: number): PartWriter
}

/** As much of the batch writer as `split` needs. */
export interface PartWriter {
  tryAppend(record: WireRecord): boolean
  seal(stamp: BatchStamp): EmbeddedBatch
}

/** A closed batch in a slab that the worker sees too. The slab goes back to its pool when it is released and no append is under way. */
export class EmbeddedBatch implements SealedBatch {
  readonly target: BatchTarget
  readonly content: BatchContent
  readonly #pool: SlabPool
  #users = 1
  #released = false

  constructor(target: BatchTarget, pool: SlabPool, content: BatchContent) {
    this.target = target
    this.content = content
    this.#pool = pool
  }

  get partition(): number {
    return this.target.partition
  }

  get count(): number {
    return this.content.count
  }

  get bytes(): number {
    return this.content.bytes
  }

  records(): WireRecord[] {
    const body = this.#body("records")
    const records: WireRecord[] = []
    for (let i = 0; i < body.count; i++) records.push(copyOf(body, i))
    return records
  }

  split(): readonly [EmbeddedBatch, EmbeddedBatch] {
    const body = this.#body("split")
    if (body.count < 2) throw new InvalidError("a batch of one record cannot be split")
    const { stamp } = this.content
    const half = body.count >> 1
    const first = this.#part(body, { from: 0, to: half, explicitIds: false })
    const second = this.#part(body, { from: half, to: body.count, explicitIds: true })
    const parts = [first.seal(stamp), second.seal({ ...stamp, id: stamp.id + BigInt(half) })] as const
    this.release()
    return parts
  }

  release(): void {
    if (this.#released) return
    this.#released = true
    this.unpin()
  }

  /** An append begins to use the slab. */
  pin(): void {
    if (this.#released) throw new InvalidError("the batch was released and cannot be appended")
    this.#users++
  }

  /** An append has ended. */
  unpin(): void {
    if (--this.#users === 0) this.#pool.give(this.content.slab)
  }

  #body(what: string): BatchBody {
    if (this.#released) throw new InvalidError(`the batch was released: ${what}() comes too late`)
    const { slab, bytes } = this.content
    return new BatchBody(slab.buffer, slab.byteOffset, bytes)
  }

  /** The second half cannot derive its ids from a batch id whose low bits are zero, so its records carry them. */
  #part(body: BatchBody, range: { from: number; to: number; explicitIds: boolean }): PartWriter {
    const writer = this.content.another(this.content.bytes >> 1)
    for (let i = range.from; i < range.to; i++) {
      writer.tryAppend({
        payload: body.payload(i),
        key: body.key(i),
        headers: body.headers(i),
        id: range.explicitIds ? body.id(i) : body.ownId(i),
        timestampMicros: body.ownTimeMicros(i),
      })
    }
    return writer
  }
}

function copyOf(body: BatchBody, index: number): WireRecord {
  const payload = body.payload(index)
  const key = body.key(index)
  return {
    payload: payload === null ? null : new Uint8Array(payload),
    key: key === null ? null : new Uint8Array(key),
    headers: body.copiedHeaders(index),
    id: body.id(index),
    timestampMicros: body.originTimeMicros(index),
  }
}
