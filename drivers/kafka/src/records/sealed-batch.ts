import type { BatchStamp, SealedBatch, TopicDescription, WireRecord } from "@millrace/contract"
import { InvalidError } from "@millrace/contract"
import type { SlabPool } from "@millrace/runtime"
import type { BatchTarget } from "./batch-writer.ts"
import { crc32c } from "./checksum.ts"
import { KafkaEncodedBatch } from "./encoded-batch.ts"
import { at, attributes } from "./layout.ts"

/** What the writer hands over. */
export interface BatchContent {
  /** At least `bytes` long. */
  readonly slab: Buffer
  /** The fixed part of the batch, in the slab. */
  readonly header: DataView
  readonly bytes: number
  readonly count: number
  readonly stamp: BatchStamp
  /** Whether some record carries a time of its own. */
  readonly timed: boolean
  /** A writer for another batch of the same partition, without limits (for `split`). */
  another(): PartWriter
}

/** As much of the batch writer as `split` needs. */
export interface PartWriter {
  tryAppend(record: WireRecord): boolean
  seal(stamp: BatchStamp): KafkaSealedBatch
}

/** Who sends a batch, and as what of its records (KIP-98). */
export interface ProducerStamp {
  readonly producerId: bigint
  readonly epoch: number
  /** Of record 0. */
  readonly sequence: number
  /** Default: false. */
  readonly transactional?: boolean
}

const nobody: ProducerStamp = { producerId: -1n, epoch: -1, sequence: -1 }

/** A closed batch, as it is sent but for who sends it. The slab goes back to its pool when it is released and no append is under way. */
export class KafkaSealedBatch implements SealedBatch {
  readonly #target: BatchTarget
  readonly #pool: SlabPool
  readonly #content: BatchContent
  #stamped: ProducerStamp | undefined
  #users = 1
  #released = false

  constructor(target: BatchTarget, pool: SlabPool, content: BatchContent) {
    this.#target = target
    this.#pool = pool
    this.#content = content
  }

  /** The topic as it was when the writer was made. */
  get topic(): TopicDescription {
    return this.#target.topic
  }

  get partition(): number {
    return this.#target.partition
  }

  get count(): number {
    return this.#content.count
  }

  get bytes(): number {
    return this.#content.bytes
  }

  /**
   * The bytes to send, a view of the slab. They must stay pinned until the answer came or the connection is gone. An equal stamp
   * leaves them as they are; another one must not be asked for while they are being sent.
   */
  stamp(producer: ProducerStamp = nobody): Uint8Array {
    const bytes = this.#live("stamp")
    const before = this.#stamped
    if (before !== undefined && isSame(before, producer)) return bytes
    const { header } = this.#content
    const kept = header.getInt16(at.attributes) & ~attributes.transactional
    header.setInt16(at.attributes, kept | (producer.transactional === true ? attributes.transactional : 0))
    header.setBigInt64(at.producerId, producer.producerId)
    header.setInt16(at.producerEpoch, producer.epoch)
    header.setInt32(at.sequence, producer.sequence)
    header.setUint32(at.crc, crc32c(bytes, at.attributes))
    this.#stamped = producer
    return bytes
  }

  records(): WireRecord[] {
    const { stamp } = this.#content
    return this.#decoded("records").map((record, i) => ({
      ...record,
      id: record.id ?? stamp.id + BigInt(i),
      timestampMicros: record.timestampMicros ?? stamp.timestampMicros,
    }))
  }

  split(): readonly [KafkaSealedBatch, KafkaSealedBatch] {
    const records = this.#decoded("split")
    if (records.length < 2) throw new InvalidError("a batch of one record cannot be split")
    const { stamp } = this.#content
    const half = records.length >> 1
    const parts = [
      this.#part(records.slice(0, half), stamp),
      this.#part(records.slice(half), { ...stamp, id: stamp.id + BigInt(half) }),
    ] as const
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
    if (--this.#users === 0) this.#pool.give(this.#content.slab)
  }

  /** The records with their own ids and times only, as views of a copy of the batch. */
  #decoded(what: string): WireRecord[] {
    const place = { ...this.#target.topic, partition: this.partition }
    const batch = new KafkaEncodedBatch(Buffer.from(this.#live(what)), place, { trusted: true })
    const records: WireRecord[] = []
    for (let i = 0; i < batch.count; i++) {
      records.push({
        payload: batch.payload(i),
        key: batch.key(i),
        headers: batch.headers(i),
        id: batch.id(i),
        timestampMicros: this.#content.timed ? batch.timestampMicros(i) : undefined,
      })
    }
    return records
  }

  #part(records: readonly WireRecord[], stamp: BatchStamp): KafkaSealedBatch {
    const writer = this.#content.another()
    for (const record of records) writer.tryAppend(record)
    return writer.seal(stamp)
  }

  #live(what: string): Buffer {
    if (this.#released) throw new InvalidError(`the batch was released: ${what}() comes too late`)
    return this.#content.slab.subarray(0, this.#content.bytes)
  }
}

function isSame(one: ProducerStamp, other: ProducerStamp): boolean {
  return (
    one.producerId === other.producerId &&
    one.epoch === other.epoch &&
    one.sequence === other.sequence &&
    (one.transactional ?? false) === (other.transactional ?? false)
  )
}
