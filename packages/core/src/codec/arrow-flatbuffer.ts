/**
 * Reads tables of the FlatBuffers encoding (https://flatbuffers.dev/internals), as far as Arrow's metadata needs it:
 *
 *     table     int32 distance back to its vtable, then its fields
 *     vtable    uint16 its size, uint16 the table's size, then for each slot a uint16: where the field is in the table, 0 for absent
 *     reference uint32 distance forward, from where it stands, to a table, a vector or a string
 *     vector    uint32 count, then the elements; a string is a vector of bytes
 *
 * References only point forward, so that no table holds itself.
 * @throws RangeError from every read outside the bytes
 */
export class FlatTable {
  readonly #view: DataView
  readonly #at: number
  readonly #vtable: number
  readonly #vtableBytes: number

  constructor(view: DataView, at: number) {
    this.#view = view
    this.#at = at
    this.#vtable = at - view.getInt32(at, true)
    this.#vtableBytes = view.getUint16(this.#vtable, true)
  }

  static root(bytes: Uint8Array): FlatTable {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    return new FlatTable(view, view.getUint32(0, true))
  }

  uint8(slot: number, fallback: number): number {
    const at = this.#field(slot)
    return at === 0 ? fallback : this.#view.getUint8(at)
  }

  flag(slot: number): boolean {
    return this.uint8(slot, 0) !== 0
  }

  int16(slot: number, fallback: number): number {
    const at = this.#field(slot)
    return at === 0 ? fallback : this.#view.getInt16(at, true)
  }

  int32(slot: number, fallback: number): number {
    const at = this.#field(slot)
    return at === 0 ? fallback : this.#view.getInt32(at, true)
  }

  int64(slot: number): bigint {
    const at = this.#field(slot)
    return at === 0 ? 0n : this.#view.getBigInt64(at, true)
  }

  table(slot: number): FlatTable | undefined {
    const at = this.#field(slot)
    return at === 0 ? undefined : this.#tableAt(at)
  }

  /** @throws TypeError when the bytes are not UTF-8 */
  text(slot: number): string | undefined {
    const vector = this.#vector(slot, 1)
    if (vector === undefined) return undefined
    return strictUtf8.decode(new Uint8Array(this.#view.buffer, this.#view.byteOffset + vector.at, vector.count))
  }

  /** @throws RangeError for more than `most` */
  tables(slot: number, most: number): FlatTable[] {
    const vector = this.#vector(slot, 4)
    if (vector === undefined) return []
    if (vector.count > most) throw new RangeError(`a vector of ${vector.count} tables is longer than ${most}`)
    return Array.from({ length: vector.count }, (_, index) => this.#tableAt(vector.at + 4 * index))
  }

  int32s(slot: number): number[] | undefined {
    const vector = this.#vector(slot, 4)
    if (vector === undefined) return undefined
    return Array.from({ length: vector.count }, (_, index) => this.#view.getInt32(vector.at + 4 * index, true))
  }

  /** A vector of structures of two int64 each: nodes and buffers of a batch. */
  pairs(slot: number): (readonly [bigint, bigint])[] {
    const vector = this.#vector(slot, 16)
    if (vector === undefined) return []
    const { at, count } = vector
    return Array.from({ length: count }, (_, index) => [
      this.#view.getBigInt64(at + 16 * index, true),
      this.#view.getBigInt64(at + 16 * index + 8, true),
    ])
  }

  /** How many elements of `elementBytes` each a vector has; 0 when it is absent. */
  count(slot: number, elementBytes: number): number {
    return this.#vector(slot, elementBytes)?.count ?? 0
  }

  #field(slot: number): number {
    const entry = 4 + 2 * slot
    if (entry + 2 > this.#vtableBytes) return 0
    const offset = this.#view.getUint16(this.#vtable + entry, true)
    return offset === 0 ? 0 : this.#at + offset
  }

  #tableAt(at: number): FlatTable {
    return new FlatTable(this.#view, at + this.#view.getUint32(at, true))
  }

  #vector(slot: number, elementBytes: number): { readonly at: number; readonly count: number } | undefined {
    const field = this.#field(slot)
    if (field === 0) return undefined
    const vector = field + this.#view.getUint32(field, true)
    const count = this.#view.getUint32(vector, true)
    if (count * elementBytes > this.#view.byteLength - vector - 4) {
      throw new RangeError(`a vector of ${count} elements ends behind its ${this.#view.byteLength} bytes`)
    }
    return { at: vector + 4, count }
  }
}

const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })
