/** Encodes records in the form of `layout.ts`, straight into the request that sends them. */

import {
  type BatchStamp,
  type BatchWriter,
  InvalidError,
  RecordTooLargeError,
  type WireRecord,
} from "@millrace/contract"
import type { SlabPool } from "@millrace/runtime"
import { sendTarget } from "../codec/message-structures.ts"
import { ByteWriter } from "../wire/byte-writer.ts"
import { headerBytes as frameHeaderBytes, mostRequestBytes } from "../wire/header.ts"
import { batchChecksum, messageChecksums } from "./checksum.ts"
import { batchAt, batchHeaderBytes, messageAt, messageHeaderBytes, messageLimits, mostTimeDelta } from "./layout.ts"
import { type BatchTarget, IggySealedBatch } from "./sealed-batch.ts"
import { userHeadersBytes, writeUserHeaders } from "./user-headers.ts"

export interface WriterLimits {
  readonly records: number
  /** Of the whole request. */
  readonly bytes: number
  /** How large it will probably be. */
  readonly sizeHintBytes?: number
}

/** A batch that outgrows its first slab is likely to become a large one: it is not copied at every power of two below this. */
const firstGrowthBytes = 64 << 10
const low32 = 0xffff_ffffn

export class IggyBatchWriter implements BatchWriter {
  readonly #target: BatchTarget
  readonly #pool: SlabPool
  readonly #limits: WriterLimits
  /** Where the batch header begins. */
  readonly #batchAt: number
  #bytes: Buffer
  #view: DataView
  #position: number
  #count = 0
  #ownIds = false
  /** A batch holds records with times of their own, or records that take the stamp's, so that no two are too far apart. */
  #timed = false
  #earliestMicros = 0n
  #latestMicros = 0n
  #sealed = false

  constructor(target: BatchTarget, pool: SlabPool, limits: WriterLimits) {
    this.#target = target
    this.#pool = pool
    this.#limits = limits
    const head = headOf(target)
    this.#batchAt = frameHeaderBytes + head.length
    this.#position = this.#batchAt + batchHeaderBytes
    this.#bytes = pool.take(Math.max(limits.sizeHintBytes ?? 0, this.#position))
    this.#view = viewOf(this.#bytes)
    this.#bytes.set(head, frameHeaderBytes)
  }

  get count(): number {
    return this.#count
  }

  /** Of the request: its header and target are in it from the start. */
  get bytes(): number {
    return this.#position
  }

  tryAppend(record: WireRecord): boolean {
    if (this.#sealed) throw new InvalidError("the batch writer was sealed and takes no more records")
    const { payload, id, timestampMicros } = record
    const payloadBytes = payload === null ? 0 : payload.length
    if (payloadBytes > messageLimits.payloadBytes) throw tooLarge("a payload", payloadBytes, messageLimits.payloadBytes)
    const headersBytes =
      record.key === null && payload !== null && record.headers.size === 0 ? 0 : userHeadersBytes(record)
    const start = this.#position
    const end = start + messageHeaderBytes + payloadBytes + headersBytes
    if (this.#count > 0) {
      if (end > this.#limits.bytes || this.#count >= this.#limits.records || !this.#sameTime(timestampMicros))
        return false
    }
    const alone = end - start + this.#batchAt + batchHeaderBytes
    if (alone > mostRequestBytes) throw tooLarge("a record with its request", alone, mostRequestBytes)
    if (end > this.#bytes.length) this.#grow(end)
    this.#noteTime(timestampMicros)
    const view = this.#view
    view.setUint32(start + messageAt.offsetDelta, this.#count, true)
    view.setUint32(start + messageAt.timeDelta, 0, true)
    view.setUint32(start + messageAt.headersLength, headersBytes, true)
    view.setUint32(start + messageAt.payloadLength, payloadBytes, true)
    // The time waits in the reserved bytes until the earliest of the batch is known.
    if (timestampMicros === undefined) view.setFloat64(start + messageAt.reserved, 0, true)
    else view.setBigInt64(start + messageAt.reserved, timestampMicros, true)
    // An id of 0 stands for none until the stamp gives one.
    if (id === undefined) {
      view.setFloat64(start + messageAt.id, 0, true)
      view.setFloat64(start + messageAt.id + 8, 0, true)
    } else {
      view.setBigUint64(start + messageAt.id, BigInt.asUintN(64, id), true)
      view.setBigUint64(start + messageAt.id + 8, id >> 64n, true)
      this.#ownIds = true
    }
    if (payloadBytes > 0) this.#bytes.set(payload as Uint8Array, start + messageAt.payload)
    if (headersBytes > 0) writeUserHeaders(this.#bytes, start + messageAt.payload + payloadBytes, record)
    this.#position = end
    this.#count++
    return true
  }

  seal(stamp: BatchStamp): IggySealedBatch {
    if (this.#sealed) throw new InvalidError("the batch writer was sealed before")
    if (this.#count === 0) throw new InvalidError("a batch without records cannot be sealed")
    this.#sealed = true
    const bytes = this.#bytes
    const count = this.#count
    const hashes = this.#stampMessages(stamp)
    const at = this.#batchAt
    bytes.fill(0, at, at + batchHeaderBytes)
    bytes.writeBigUInt64LE(this.#timed ? this.#earliestMicros : stamp.timestampMicros, at + batchAt.originTime)
    bytes.writeBigUInt64LE(BigInt(this.#position - at), at + batchAt.length)
    bytes.writeUInt32LE(count, at + batchAt.count)
    bytes.writeBigUInt64LE(batchChecksum(bytes, at, hashes), at + batchAt.checksum)
    bytes.writeUInt32LE(count, at - 4)
    return new IggySealedBatch(this.#target, this.#pool, {
      slab: bytes,
      bytes: this.#position,
      batchAt: at,
      count,
      stamp,
      timed: this.#timed,
      another: (sizeHintBytes) => {
        const limits = { records: count, bytes: Number.POSITIVE_INFINITY, sizeHintBytes }
        return new IggyBatchWriter(this.#target, this.#pool, limits)
      },
    })
  }

  /** Gives each message the id and the time that it lacks, and its checksum; answers these. */
  #stampMessages(stamp: BatchStamp): Uint32Array {
    const view = this.#view
    const starts = new Uint32Array(this.#count)
    const idHigh = stamp.id >> 64n
    const idWords = [
      Number(idHigh & low32),
      Number(idHigh >> 32n),
      Number((stamp.id >> 32n) & low32),
      Number(stamp.id & low32),
    ] as const
    let start = this.#batchAt + batchHeaderBytes
    for (let i = 0; i < starts.length; i++) {
      starts[i] = start
      if (!this.#ownIds || isZero(view, start + messageAt.id)) {
        // The low 20 bits of a stamp's id are zero, so that counting up carries nothing.
        view.setUint32(start + messageAt.id, idWords[3] + i, true)
        view.setUint32(start + messageAt.id + 4, idWords[2], true)
        view.setUint32(start + messageAt.id + 8, idWords[0], true)
        view.setUint32(start + messageAt.id + 12, idWords[1], true)
      }
      if (this.#timed) {
        const delta = view.getBigInt64(start + messageAt.reserved, true) - this.#earliestMicros
        view.setUint32(start + messageAt.timeDelta, Number(delta), true)
        view.setFloat64(start + messageAt.reserved, 0, true)
      }
      const payload = view.getUint32(start + messageAt.payloadLength, true)
      start += messageHeaderBytes + payload + view.getUint32(start + messageAt.headersLength, true)
    }
    const bytes = this.#bytes
    const hashes = messageChecksums({ bytes, starts, end: start })
    for (let i = 0; i < starts.length; i++) {
      const at = starts[i] as number
      view.setUint32(at, hashes[i * 2] as number, true)
      view.setUint32(at + 4, hashes[i * 2 + 1] as number, true)
    }
    return hashes
  }

  #sameTime(micros: bigint | undefined): boolean {
    if (micros === undefined) return !this.#timed
    if (!this.#timed) return false
    const earliest = micros < this.#earliestMicros ? micros : this.#earliestMicros
    const latest = micros > this.#latestMicros ? micros : this.#latestMicros
    return latest - earliest <= BigInt(mostTimeDelta)
  }

  #noteTime(micros: bigint | undefined): void {
    if (micros === undefined) return
    if (!this.#timed || micros < this.#earliestMicros) this.#earliestMicros = micros
    if (!this.#timed || micros > this.#latestMicros) this.#latestMicros = micros
    this.#timed = true
  }

  #grow(needed: number): void {
    const limit = Math.min(this.#limits.bytes, firstGrowthBytes)
    const larger = this.#pool.take(Math.max(needed, limit, this.#bytes.length * 2))
    this.#bytes.copy(larger, 0, 0, this.#position)
    this.#pool.give(this.#bytes)
    this.#bytes = larger
    this.#view = viewOf(larger)
  }
}

/** What stands between the frame header and the batch header. The count is written when the batch is sealed. */
function headOf({ topic, partition }: BatchTarget): Buffer {
  const writer = new ByteWriter(64)
  const target = {
    stream: topic.stream,
    topic: topic.topic,
    partitioning: { kind: "partition", partition },
    messagesCount: 0,
  } as const
  sendTarget.write(writer, target, "0.11")
  return writer.bytes()
}

function isZero(view: DataView, at: number): boolean {
  for (let i = 0; i < 16; i += 4) if (view.getUint32(at + i, true) !== 0) return false
  return true
}

function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
}

function tooLarge(what: string, sizeBytes: number, limitBytes: number): RecordTooLargeError {
  return new RecordTooLargeError(`${what} has ${sizeBytes} bytes: Apache Iggy takes at most ${limitBytes}`, {
    context: { sizeBytes, limitBytes },
  })
}
