/** Reads the stored form of `layout.ts`. */
import { CorruptionError, DecodeError, Headers, HeaderValue, type MessageId } from "@millrace/contract"
import { at, batchFlags, batchFormat, headerBytes, indexEntryBytes, recordFlags } from "./layout.ts"

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** Records have the same names again and again, in the same order: the last ones, each at its place, need not be decoded. */
const knownNames: { readonly bytes: Uint8Array; readonly text: string }[] = []
const mostKnownNames = 64

/**
 * The records of one batch, by index. Nothing is decoded before it is asked for; arrays are views of the buffer.
 * @throws CorruptionError from the constructor when the header and the index contradict the length.
 */
export class BatchBody {
  readonly count: number
  readonly bytes: number
  readonly #buffer: ArrayBufferLike
  readonly #start: number
  readonly #view: DataView
  /** Where the index begins, counted from the batch. */
  readonly #index: number

  constructor(buffer: ArrayBufferLike, start: number, bytes: number) {
    if (bytes < headerBytes || start + bytes > buffer.byteLength) throw malformed(`${bytes} bytes hold no batch header`)
    const view = new DataView(buffer, start, bytes)
    const format = view.getUint8(at.format)
    if (format !== batchFormat) throw malformed(`format ${format} is not known, only ${batchFormat}`)
    const count = view.getUint32(at.count, true)
    const index = bytes - count * indexEntryBytes
    if (count === 0 || index < headerBytes + count) throw malformed(`${count} records do not fit into ${bytes} bytes`)
    if (view.getUint32(bytes - indexEntryBytes, true) !== index) throw malformed("its index does not meet its records")
    this.count = count
    this.bytes = bytes
    this.#buffer = buffer
    this.#start = start
    this.#view = view
    this.#index = index
  }

  get batchId(): MessageId {
    return (this.#view.getBigUint64(at.id + 8, true) << 64n) | this.#view.getBigUint64(at.id, true)
  }

  get batchTimeMicros(): bigint {
    return this.#view.getBigInt64(at.originMicros, true)
  }

  /** Whether some record carries an id of its own. */
  get hasOwnIds(): boolean {
    return (this.#view.getUint8(at.flags) & batchFlags.ownIds) !== 0
  }

  payload(index: number): Uint8Array | null {
    const end = this.#end(index)
    const start = this.#begin(index)
    const flags = this.#view.getUint8(start)
    if (flags === 0) return new Uint8Array(this.#buffer, this.#start + start + 1, end - start - 1)
    if ((flags & recordFlags.nullPayload) !== 0) return null
    let position = this.#keyAt(start, flags)
    if ((flags & recordFlags.key) !== 0) position = this.#step(position, 2 + this.#view.getUint16(position, true), end)
    if ((flags & recordFlags.headers) !== 0)
      position = this.#step(position, 4 + this.#view.getUint32(position, true), end)
    return new Uint8Array(this.#buffer, this.#start + position, end - position)
  }

  key(index: number): Uint8Array | null {
    const end = this.#end(index)
    const start = this.#begin(index)
    const flags = this.#view.getUint8(start)
    if ((flags & recordFlags.key) === 0) return null
    const position = this.#keyAt(start, flags)
    const length = this.#view.getUint16(position, true)
    this.#step(position, 2 + length, end)
    return new Uint8Array(this.#buffer, this.#start + position + 2, length)
  }

  /** The stored bytes of a record, which mean the same in another batch, unless its id or time are the batch's. */
  record(index: number): Uint8Array {
    const end = this.#end(index)
    const start = this.#begin(index)
    return new Uint8Array(this.#buffer, this.#start + start, end - start)
  }

  /** Where each record ends, counted from the beginning of the first one. */
  recordEnds(): Uint32Array {
    const ends = new Uint32Array(this.count)
    let before = headerBytes
    for (let i = 0; i < ends.length; i++) {
      const end = this.#view.getUint32(this.#index + i * indexEntryBytes, true)
      if (end > this.#index || end <= before) throw malformed(`record ${i} ends at ${end}`)
      ends[i] = end - headerBytes
      before = end
    }
    return ends
  }

  /** All the bytes of the batch. */
  get whole(): Uint8Array {
    return new Uint8Array(this.#buffer, this.#start, this.bytes)
  }

  /** @throws DecodeError when the header block is malformed. */
  headers(index: number): Headers {
    return this.#headers(index, false)
  }

  /** The headers with values that do not look into the batch's buffer. */
  copiedHeaders(index: number): Headers {
    return this.#headers(index, true)
  }

  id(index: number): MessageId {
    return this.ownId(index) ?? this.batchId + BigInt(index)
  }

  /** The id that the record itself carries. */
  ownId(index: number): MessageId | undefined {
    const start = this.#begin(index)
    this.#end(index)
    if ((this.#view.getUint8(start) & recordFlags.ownId) === 0) return undefined
    return (this.#view.getBigUint64(start + 9, true) << 64n) | this.#view.getBigUint64(start + 1, true)
  }

  originTimeMicros(index: number): bigint {
    return this.ownTimeMicros(index) ?? this.batchTimeMicros
  }

  /** The time that the record itself carries. */
  ownTimeMicros(index: number): bigint | undefined {
    const start = this.#begin(index)
    this.#end(index)
    const flags = this.#view.getUint8(start)
    if ((flags & recordFlags.ownTime) === 0) return undefined
    return this.#view.getBigInt64(start + 1 + ((flags & recordFlags.ownId) !== 0 ? 16 : 0), true)
  }

  #headers(index: number, copied: boolean): Headers {
    const end = this.#end(index)
    const start = this.#begin(index)
    const view = this.#view
    const flags = view.getUint8(start)
    if ((flags & recordFlags.headers) === 0) return Headers.empty
    let position = this.#keyAt(start, flags)
    if ((flags & recordFlags.key) !== 0) position = this.#step(position, 2 + view.getUint16(position, true), end)
    const stop = this.#step(position, 4 + view.getUint32(position, true), end)
    position += 4
    const entries: (readonly [string, HeaderValue])[] = []
    while (position < stop) {
      const nameBytes = view.getUint8(position)
      const kindAt = position + 1 + nameBytes
      const valueAt = kindAt + 5
      if (valueAt > stop) throw new DecodeError(`header ${entries.length} of record ${index} runs over its block`)
      const valueBytes = view.getUint32(kindAt + 1, true)
      if (valueAt + valueBytes > stop)
        throw new DecodeError(`the value of header ${entries.length} of record ${index} runs over its block`)
      const name = this.#name(position + 1, nameBytes, { index, place: entries.length })
      entries.push([name, HeaderValue.fromBytes(view.getUint8(kindAt), this.#slice(valueAt, valueBytes, copied))])
      position = valueAt + valueBytes
    }
    return Headers.ofStored(entries)
  }

  /** A header's name; `place` is the header's number in its record. */
  #name(
    position: number,
    length: number,
    { index, place }: { readonly index: number; readonly place: number },
  ): string {
    const known = knownNames[place]
    if (known !== undefined && this.#holds(position, length, known.bytes)) return known.text
    const bytes = this.#slice(position, length, true)
    const text = decodeName(bytes, index)
    if (place < mostKnownNames) knownNames[place] = { bytes, text }
    return text
  }

  #holds(position: number, length: number, bytes: Uint8Array): boolean {
    if (length !== bytes.length) return false
    for (let i = 0; i < length; i++) if (this.#view.getUint8(position + i) !== bytes[i]) return false
    return true
  }

  #slice(position: number, length: number, copied: boolean): Uint8Array {
    const view = new Uint8Array(this.#buffer, this.#start + position, length)
    return copied ? new Uint8Array(view) : view
  }

  /** Behind the flags, the id and the time of a record. */
  #keyAt(start: number, flags: number): number {
    return start + 1 + ((flags & recordFlags.ownId) !== 0 ? 16 : 0) + ((flags & recordFlags.ownTime) !== 0 ? 8 : 0)
  }

  #step(position: number, length: number, end: number): number {
    if (position + length > end) throw malformed(`a record that ends at ${end} has a part up to ${position + length}`)
    return position + length
  }

  #begin(index: number): number {
    return index === 0 ? headerBytes : this.#view.getUint32(this.#index + (index - 1) * indexEntryBytes, true)
  }

  #end(index: number): number {
    if (index >= this.count || index < 0) throw new RangeError(`record ${index} of a batch of ${this.count}`)
    const end = this.#view.getUint32(this.#index + index * indexEntryBytes, true)
    if (end > this.#index || end <= this.#begin(index)) throw malformed(`record ${index} ends at ${end}`)
    return end
  }
}

function decodeName(bytes: Uint8Array, index: number): string {
  try {
    return utf8.decode(bytes)
  } catch (cause) {
    throw new DecodeError(`a header name of record ${index} is not valid UTF-8`, { cause })
  }
}

function malformed(detail: string): CorruptionError {
  return new CorruptionError(`a stored batch is malformed: ${detail}`)
}
