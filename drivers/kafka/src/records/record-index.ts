/**
 * Where the records of a batch lie, found in one pass. Every length is checked against its record, and the records against the bytes:
 * behind this nothing reads outside of them. Headers are left to whoever asks for them.
 */

/** Numbers a record in the index, and what they are. */
const stride = 8
const slot = { offset: 0, time: 1, keyAt: 2, keyBytes: 3, valueAt: 4, valueBytes: 5, headersAt: 6, end: 7 } as const

/** A batch's records by index. Positions count from the start of the bytes; a length of −1 is null. */
export class RecordIndex {
  readonly count: number
  readonly #slots: Int32Array
  /** Timestamp deltas that 32 bits do not hold. */
  readonly #wideTimes: ReadonlyMap<number, bigint> | undefined

  constructor(count: number, slots: Int32Array, wideTimes: ReadonlyMap<number, bigint> | undefined) {
    this.count = count
    this.#slots = slots
    this.#wideTimes = wideTimes
  }

  offsetDelta(index: number): number {
    return this.#at(index, slot.offset)
  }

  timestampDelta(index: number): bigint {
    return this.#wideTimes?.get(index) ?? BigInt(this.#at(index, slot.time))
  }

  keyAt(index: number): number {
    return this.#at(index, slot.keyAt)
  }

  keyBytes(index: number): number {
    return this.#at(index, slot.keyBytes)
  }

  valueAt(index: number): number {
    return this.#at(index, slot.valueAt)
  }

  valueBytes(index: number): number {
    return this.#at(index, slot.valueBytes)
  }

  headersAt(index: number): number {
    return this.#at(index, slot.headersAt)
  }

  /** Behind the headers. */
  end(index: number): number {
    return this.#at(index, slot.end)
  }

  /** The first record whose offset delta is at least `delta`; `count` when there is none. */
  firstAtOrBehind(delta: number): number {
    let low = 0
    let high = this.count
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((this.#slots[middle * stride] as number) < delta) low = middle + 1
      else high = middle
    }
    return low
  }

  #at(index: number, which: number): number {
    const value = index < 0 ? undefined : this.#slots[index * stride + which]
    if (value === undefined) throw new RangeError(`record ${index} of a batch of ${this.count}`)
    return value
  }
}

/**
 * The index of `count` records in the bytes from `start` on, or what is wrong with them.
 * @param count At most the bytes / 7, as the caller has checked.
 */
export function indexRecords(bytes: Uint8Array, start: number, count: number): RecordIndex | string {
  const slots = new Int32Array(count * stride)
  const limit = bytes.length
  const scan = new Scan(bytes, start)
  let wideTimes: Map<number, bigint> | undefined
  let lastOffset = -1
  for (let i = 0, base = 0; i < count; i++, base += stride) {
    const size = scan.varint()
    const end = scan.position + size
    // A record has at least its attributes, two deltas, two lengths and a count of headers.
    if (size < 6 || end > limit) return `record ${i} of ${size} bytes does not fit into the batch`
    scan.position++
    const time = scan.varlong()
    const offset = scan.varint()
    if (offset <= lastOffset) return `record ${i} has offset delta ${offset} behind ${lastOffset}`
    lastOffset = offset
    const keyBytes = scan.varint()
    const keyAt = scan.position
    if (keyBytes < -1 || keyBytes > end - keyAt) return `record ${i} says its key has ${keyBytes} bytes`
    if (keyBytes > 0) scan.position = keyAt + keyBytes
    const valueBytes = scan.varint()
    const valueAt = scan.position
    if (valueBytes < -1 || valueBytes >= end - valueAt) return `record ${i} says its value has ${valueBytes} bytes`
    const headersAt = valueBytes > 0 ? valueAt + valueBytes : valueAt
    if (headersAt >= end || scan.failed) return `record ${i} ends within its parts`
    slots[base] = offset
    if (typeof time === "number") {
      slots[base + slot.time] = time
    } else {
      wideTimes ??= new Map()
      wideTimes.set(i, time)
    }
    slots[base + slot.keyAt] = keyAt
    slots[base + slot.keyBytes] = keyBytes
    slots[base + slot.valueAt] = valueAt
    slots[base + slot.valueBytes] = valueBytes
    slots[base + slot.headersAt] = headersAt
    slots[base + slot.end] = end
    scan.position = end
  }
  if (scan.position !== limit) return `${limit - scan.position} bytes are left behind its ${count} records`
  return new RecordIndex(count, slots, wideTimes)
}

/** Reads varints one behind the other. Behind the end, or where one is too long, it reads zeros and remembers that it failed. */
class Scan {
  position: number
  failed = false
  readonly #bytes: Uint8Array

  constructor(bytes: Uint8Array, start: number) {
    this.#bytes = bytes
    this.position = start
  }

  varint(): number {
    const bytes = this.#bytes
    let byte = bytes[this.position++]
    // Most are one byte.
    if (byte !== undefined && byte < 0x80) return (byte >>> 1) ^ -(byte & 1)
    let zigzag = 0
    for (let shift = 0; shift < 35; shift += 7) {
      if (byte === undefined) break
      zigzag |= (byte & 0x7f) << shift
      if (byte < 0x80) return (zigzag >>> 1) ^ -(zigzag & 1)
      byte = bytes[this.position++]
    }
    this.failed = true
    return 0
  }

  /** As a number when it takes at most four bytes, so that it certainly fits 32 bits. */
  varlong(): number | bigint {
    const start = this.position
    const bytes = this.#bytes
    let zigzag = 0
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = bytes[this.position++]
      if (byte === undefined) break
      zigzag |= (byte & 0x7f) << shift
      if (byte < 0x80) return (zigzag >>> 1) ^ -(zigzag & 1)
    }
    this.position = start
    let wide = 0n
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = bytes[this.position++]
      if (byte === undefined) break
      wide |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return BigInt.asIntN(64, (BigInt.asUintN(64, wide) >> 1n) ^ -(wide & 1n))
    }
    this.failed = true
    return 0
  }
}
