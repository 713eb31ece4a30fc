import type { BatchStamp, BatchWriter, TopicDescription, WireRecord } from "@millrace/contract"
import { InvalidError, RecordTooLargeError } from "@millrace/contract"
import type { SlabPool } from "@millrace/runtime"
import { type CodecName, codecCodes, compress } from "../compression/codecs.ts"
import { at, headerBytes, magic, uncountedBytes } from "./layout.ts"
import { type HeaderPlan, planHeaders, putHeaders } from "./record-headers.ts"
import { millisOf, RecordTimes } from "./record-times.ts"
import { KafkaSealedBatch } from "./sealed-batch.ts"
import { putVarint, putVarlong, varintBytes, varlongBytes } from "./varint.ts"

/** Where a batch goes: what its topic was when its writer was made. */
export interface BatchTarget {
  readonly topic: TopicDescription
  readonly partition: number
}

export interface WriterLimits {
  /** Records and encoded bytes of a batch, before compression; the first record is taken whatever its size. */
  readonly records: number
  readonly bytes: number
  /** What a batch of one record may take, header included; absent: what Kafka's length fields hold. */
  readonly recordBytes?: number
  /** What the batch is compressed with when it is sealed, unless that makes it larger. Default: none. */
  readonly compression?: CodecName
}

/** Below so many bytes a loop is quicker than a native copy. */
const loopBelowBytes = 16
/** A batch that outgrows its first slab is likely to become a large one: it is not copied at every power of two below this. */
const firstGrowthBytes = 64 << 10
/** Lengths are signed 32-bit numbers. */
const longestBatchBytes = 0x7fffffff

/** Encodes records in the form of `layout.ts`, straight into the bytes that are sent. */
export class KafkaBatchWriter implements BatchWriter {
  readonly #target: BatchTarget
  readonly #pool: SlabPool
  readonly #limits: WriterLimits
  readonly #times = new RecordTimes()
  #bytes: Buffer
  #position = headerBytes
  #count = 0
  #sealed = false

  constructor(target: BatchTarget, pool: SlabPool, limits: WriterLimits) {
    this.#target = target
    this.#pool = pool
    this.#limits = limits
    this.#bytes = pool.take(0)
  }

  get count(): number {
    return this.#count
  }

  get bytes(): number {
    return this.#position
  }

  tryAppend(record: WireRecord): boolean {
    if (this.#sealed) throw new InvalidError("the batch writer was sealed and takes no more records")
    const { payload, key, headers, id } = record
    const count = this.#count
    const millis = record.timestampMicros === undefined ? undefined : millisOf(record.timestampMicros)
    const delta = this.#times.delta(millis)
    const plan = headers.size > 0 || id !== undefined ? planHeaders(headers, id) : undefined
    let size = 1 + varlongBytes(delta) + varintBytes(count)
    size += key === null ? 1 : varintBytes(key.length) + key.length
    size += payload === null ? 1 : varintBytes(payload.length) + payload.length
    size += plan === undefined ? 1 : plan.bytes
    const recordBytes = varintBytes(size) + size
    const limits = this.#limits
    if (headerBytes + recordBytes > (limits.recordBytes ?? longestBatchBytes)) throw tooLarge(recordBytes, limits)
    const whole = this.#position + recordBytes
    if (count > 0 && (count >= limits.records || whole + this.#times.slackBytes(millis) > limits.bytes)) return false
    if (whole > this.#bytes.length) this.#grow(whole)
    const bytes = this.#bytes
    let position = putVarint(size, bytes, this.#position)
    bytes[position++] = 0
    position = putVarlong(delta, bytes, position)
    position = putVarint(count, bytes, position)
    position = putBytes(key, bytes, position)
    position = putBytes(payload, bytes, position)
    this.#position = putPlan(plan, bytes, position)
    this.#times.add(millis)
    this.#count = count + 1
    return true
  }

  seal(stamp: BatchStamp): KafkaSealedBatch {
    if (this.#sealed) throw new InvalidError("the batch writer was sealed before")
    if (this.#count === 0) throw new InvalidError("a batch without records cannot be sealed")
    this.#sealed = true
    const times = this.#times.seal(millisOf(stamp.timestampMicros))
    if (times.untimed !== undefined) this.#rewriteTimes(times.untimed)
    const codec = this.#compress()
    const header = new DataView(this.#bytes.buffer, this.#bytes.byteOffset, headerBytes)
    header.setBigInt64(at.baseOffset, 0n)
    header.setInt32(at.length, this.#position - uncountedBytes)
    header.setInt32(at.leaderEpoch, -1)
    header.setInt8(at.magic, magic)
    header.setInt16(at.attributes, codecCodes[codec])
    header.setInt32(at.lastOffsetDelta, this.#count - 1)
    header.setBigInt64(at.baseTimestamp, times.base)
    header.setBigInt64(at.maxTimestamp, times.max)
    header.setInt32(at.count, this.#count)
    const unlimited: WriterLimits = {
      records: this.#count,
      bytes: Number.POSITIVE_INFINITY,
      compression: this.#limits.compression ?? "none",
    }
    return new KafkaSealedBatch(this.#target, this.#pool, {
      slab: this.#bytes,
      header,
      bytes: this.#position,
      count: this.#count,
      stamp,
      timed: this.#times.any,
      another: () => new KafkaBatchWriter(this.#target, this.#pool, unlimited),
    })
  }

  /** Gives the slab of a batch back that will never be sealed. */
  discard(): void {
    if (this.#sealed) return
    this.#sealed = true
    this.#pool.give(this.#bytes)
  }

  #rewriteTimes(delta: number | bigint): void {
    const old = this.#bytes.subarray(0, this.#position)
    const slab = this.#pool.take(this.#position + this.#times.rewriteBytes)
    this.#position = this.#times.rewrite(old, slab, { start: headerBytes, delta })
    this.#replace(slab)
  }

  #compress(): CodecName {
    const codec = this.#limits.compression ?? "none"
    if (codec === "none") return codec
    const records = this.#bytes.subarray(headerBytes, this.#position)
    const compressed = compress(codec, records)
    if (compressed.length >= records.length) return "none"
    const slab = this.#pool.take(headerBytes + compressed.length)
    slab.set(compressed, headerBytes)
    this.#position = headerBytes + compressed.length
    this.#replace(slab)
    return codec
  }

  #grow(needed: number): void {
    const old = this.#bytes
    const slab = this.#pool.take(
      Math.max(needed, Math.min(Math.max(old.length * 2, firstGrowthBytes), this.#limits.bytes)),
    )
    old.copy(slab, 0, 0, this.#position)
    this.#replace(slab)
  }

  #replace(slab: Buffer): void {
    this.#pool.give(this.#bytes)
    this.#bytes = slab
  }
}

function putBytes(from: Uint8Array | null, to: Buffer, start: number): number {
  if (from === null) {
    // The varint of −1.
    to[start] = 1
    return start + 1
  }
  const length = from.length
  const position = putVarint(length, to, start)
  if (length >= loopBelowBytes) to.set(from, position)
  else for (let i = 0; i < length; i++) to[position + i] = from[i] as number
  return position + length
}

function putPlan(plan: HeaderPlan | undefined, to: Buffer, start: number): number {
  if (plan !== undefined) return putHeaders(plan, to, start)
  to[start] = 0
  return start + 1
}

function tooLarge(recordBytes: number, limits: WriterLimits): RecordTooLargeError {
  const sizeBytes = headerBytes + recordBytes
  const limitBytes = limits.recordBytes ?? longestBatchBytes
  return new RecordTooLargeError(
    `a record takes ${sizeBytes} bytes with the header of its batch: at most ${limitBytes} are allowed`,
    { context: { sizeBytes, limitBytes } },
  )
}
