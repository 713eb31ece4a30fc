import type { BatchStamp, BatchWriter, Headers, WireRecord } from "@millrace/contract"
import { headerKindCodes, InvalidError, RecordTooLargeError } from "@millrace/contract"
import { bodyChecksum } from "./checksum.ts"
import {
  at,
  batchFlags,
  batchFormat,
  headerBytes,
  indexEntryBytes,
  longestHeaderNameBytes,
  longestKeyBytes,
  recordFlags,
} from "./layout.ts"
import { type BatchTarget, EmbeddedBatch } from "./sealed-batch.ts"
import type { SlabPools } from "./slab.ts"

/** Below so many bytes a loop is quicker than a native copy. */
const loopBelowBytes = 16

/** A batch that outgrows its first slab is likely to become a large one: it is not copied at every power of two below this. */
const firstGrowthBytes = 64 << 10

/** Records that a batch has room for at first, and the most whose ends are kept for the next batch. */
const firstEnds = 64
const mostSpareEnds = 1 << 16

/** Encodes records in the form of `layout.ts`. */
export class EmbeddedBatchWriter implements BatchWriter {
  readonly #target: BatchTarget
  readonly #pools: SlabPools
  readonly #limitRecords: number
  readonly #limitBytes: number
  #bytes: Buffer
  #view: DataView
  /** The end of each record. */
  #ends: Uint32Array = new Uint32Array(firstEnds)
  #position = headerBytes
  #count = 0
  #flags = 0
  #sealed = false

  constructor(
    target: BatchTarget,
    pools: SlabPools,
    limits: { readonly records: number; readonly bytes: number; readonly sizeHintBytes?: number },
  ) {
    this.#target = target
    this.#pools = pools
    this.#limitRecords = limits.records
    this.#limitBytes = limits.bytes
    this.#bytes = pools.encoding.take(limits.sizeHintBytes ?? 0)
    this.#view = viewOf(this.#bytes)
  }

  get count(): number {
    return this.#count
  }

  get bytes(): number {
    return this.#position + this.#count * indexEntryBytes
  }

  tryAppend(record: WireRecord): boolean {
    if (this.#sealed) throw new InvalidError("the batch writer was sealed and takes no more records")
    const { payload, key, id, timestampMicros } = record
    const headers = record.headers
    let flags = 0
    let size = 1
    if (payload === null) flags = recordFlags.nullPayload
    else size += payload.length
    if (key !== null) {
      flags |= recordFlags.key
      size += 2 + key.length
    }
    let entriesBytes = 0
    if (headers.size > 0) {
      flags |= recordFlags.headers
      entriesBytes = headersBytes(headers)
      size += 4 + entriesBytes
    }
    if (id !== undefined) {
      flags |= recordFlags.ownId
      size += 16
    }
    if (timestampMicros !== undefined) {
      flags |= recordFlags.ownTime
      size += 8
    }
    const count = this.#count
    const whole = this.#position + size + (count + 1) * indexEntryBytes
    if (count > 0 && (whole > this.#limitBytes || count >= this.#limitRecords)) return false
    if (whole > this.#bytes.length) this.#grow(whole)
    const bytes = this.#bytes
    const view = this.#view
    let position = this.#position
    bytes[position++] = flags
    if (flags > recordFlags.nullPayload) {
      if (id !== undefined) {
        view.setBigUint64(position, id & 0xffffffffffffffffn, true)
        view.setBigUint64(position + 8, id >> 64n, true)
        position += 16
        this.#flags |= batchFlags.ownIds
      }
      if (timestampMicros !== undefined) {
        view.setBigInt64(position, timestampMicros, true)
        position += 8
      }
      if (key !== null) {
        if (key.length > longestKeyBytes) throw tooLarge("key", key.length, longestKeyBytes)
        view.setUint16(position, key.length, true)
        put(key, bytes, position + 2)
        position += 2 + key.length
      }
      if (entriesBytes > 0) {
        view.setUint32(position, entriesBytes, true)
        position = putHeaders(headers, bytes, position + 4)
      }
    }
    if (payload !== null) {
      put(payload, bytes, position)
      position += payload.length
    }
    if (count === this.#ends.length) this.#lengthen()
    this.#ends[count] = position
    this.#position = position
    this.#count = count + 1
    return true
  }

  seal(stamp: BatchStamp): EmbeddedBatch {
    if (this.#sealed) throw new InvalidError("the batch writer was sealed before")
    if (this.#count === 0) throw new InvalidError("a batch without records cannot be sealed")
    this.#sealed = true
    const bytes = this.#bytes
    const view = this.#view
    const ends = this.#ends
    const count = this.#count
    bytes[at.format] = batchFormat
    bytes[at.flags] = this.#flags
    view.setUint16(2, 0, true)
    view.setUint32(at.count, count, true)
    view.setBigUint64(at.id, stamp.id & 0xffffffffffffffffn, true)
    view.setBigUint64(at.id + 8, stamp.id >> 64n, true)
    view.setBigInt64(at.originMicros, stamp.timestampMicros, true)
    let position = this.#position
    for (let i = 0; i < count; i++) {
      view.setUint32(position, ends[i] as number, true)
      position += indexEntryBytes
    }
    const slab = this.#pools.sealed.take(position)
    const sealed = bytes.subarray(0, position)
    const checksum = bodyChecksum(sealed)
    // `set`, since `Buffer.copy` takes nearly three times as long into shared memory.
    slab.set(sealed)
    this.#pools.encoding.give(bytes)
    this.#spareEnds()
    return new EmbeddedBatch(this.#target, this.#pools.sealed, {
      slab,
      checksum,
      bytes: position,
      count,
      stamp,
      ownIds: (this.#flags & batchFlags.ownIds) !== 0,
      another: (sizeHintBytes) =>
        new EmbeddedBatchWriter(this.#target, this.#pools, {
          records: count,
          bytes: Number.POSITIVE_INFINITY,
          sizeHintBytes,
        }),
    })
  }

  /** Gives the slab of a batch back that will never be sealed. */
  discard(): void {
    if (this.#sealed) return
    this.#sealed = true
    this.#pools.encoding.give(this.#bytes)
  }

  /** Making them anew for each batch is dear: they are outside of the heap, and the collector is told of them. */
  #lengthen(): void {
    const { spareEnds } = this.#pools
    const ends = this.#ends
    if (spareEnds === undefined || spareEnds.length <= ends.length) {
      this.#ends = new Uint32Array(ends.length * 2)
    } else {
      this.#ends = spareEnds
      this.#pools.spareEnds = undefined
    }
    this.#ends.set(ends)
  }

  #spareEnds(): void {
    const { length } = this.#ends
    const spareLength = this.#pools.spareEnds?.length ?? firstEnds
    if (length > spareLength && length <= mostSpareEnds) this.#pools.spareEnds = this.#ends
  }

  #grow(needed: number): void {
    const old = this.#bytes
    this.#bytes = this.#pools.encoding.take(Math.max(needed, Math.min(nextSize(old.length), this.#limitBytes)))
    this.#view = viewOf(this.#bytes)
    old.copy(this.#bytes, 0, 0, this.#position)
    this.#pools.encoding.give(old)
  }
}

function nextSize(bytes: number): number {
  return Math.max(bytes * 2, firstGrowthBytes)
}

function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
}

/** Encoded bytes of a record's header entries. */
function headersBytes(headers: Headers): number {
  let size = 0
  for (const [name, value] of headers) size += 6 + Buffer.byteLength(name) + value.bytes.length
  return size
}

function putHeaders(headers: Headers, bytes: Buffer, start: number): number {
  let position = start
  for (const [name, value] of headers) {
    const nameBytes = Buffer.byteLength(name)
    if (nameBytes > longestHeaderNameBytes) throw tooLarge("header name", nameBytes, longestHeaderNameBytes)
    bytes[position++] = nameBytes
    position += bytes.write(name, position, nameBytes, "utf8")
    bytes[position++] = headerKindCodes[value.kind]
    bytes.writeUInt32LE(value.bytes.length, position)
    put(value.bytes, bytes, position + 4)
    position += 4 + value.bytes.length
  }
  return position
}

function put(from: Uint8Array, to: Buffer, position: number): void {
  const length = from.length
  if (length >= loopBelowBytes) to.set(from, position)
  else for (let i = 0; i < length; i++) to[position + i] = from[i] as number
}

function tooLarge(what: string, sizeBytes: number, limitBytes: number): RecordTooLargeError {
  return new RecordTooLargeError(`a ${what} of ${sizeBytes} bytes is too long: at most ${limitBytes} are allowed`, {
    context: { sizeBytes, limitBytes },
  })
}
