/** Reads little-endian values one after the other. Every length is checked against what is there; nothing is copied. */
import { MillraceError } from "@millrace/contract"

const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

export class ByteReader {
  readonly #bytes: Buffer
  readonly #what: string
  #at = 0

  /** @param what Names the bytes in errors: `the reply to get_topic`. */
  constructor(bytes: Buffer, what: string) {
    this.#bytes = bytes
    this.#what = what
  }

  /** Bytes that are left. */
  get left(): number {
    return this.#bytes.length - this.#at
  }

  u8(): number {
    return this.#bytes.readUInt8(this.#take(1))
  }
  u16(): number {
    return this.#bytes.readUInt16LE(this.#take(2))
  }
  u32(): number {
    return this.#bytes.readUInt32LE(this.#take(4))
  }
  u64(): bigint {
    return this.#bytes.readBigUInt64LE(this.#take(8))
  }
  u128(): bigint {
    const low = this.u64()
    return (this.u64() << 64n) | low
  }
  f32(): number {
    return this.#bytes.readFloatLE(this.#take(4))
  }
  /** A view. */
  raw(length: number): Buffer {
    const at = this.#take(length)
    return this.#bytes.subarray(at, at + length)
  }
  text(length: number): string {
    const bytes = this.raw(length)
    try {
      return strictUtf8.decode(bytes)
    } catch {
      return this.fail("has text that is not UTF-8")
    }
  }
  /** The rest as a reader of its own, for a part whose length is known. */
  part(length: number): ByteReader {
    return new ByteReader(this.raw(length), this.#what)
  }
  /** Checks a count of items before anything is made for them. */
  count(items: number, leastBytes: number): number {
    if (items * leastBytes > this.left) this.fail(`counts ${items} items in ${this.left} bytes`)
    return items
  }
  /** @throws MillraceError `protocol` when bytes are left over */
  end(): void {
    if (this.left > 0) this.fail(`has ${this.left} bytes too many`)
  }
  /** @throws MillraceError of kind `protocol`, always */
  fail(why: string): never {
    throw new MillraceError("protocol", `${this.#what} ${why} (at byte ${this.#at} of ${this.#bytes.length})`)
  }

  #take(length: number): number {
    const at = this.#at
    if (length > this.#bytes.length - at) this.fail(`ends early: ${length} bytes wanted, ${this.left} left`)
    this.#at = at + length
    return at
  }
}
