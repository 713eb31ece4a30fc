import { Buffer } from "node:buffer"
import type { SlabPool } from "@millrace/runtime"

/** Where the free bytes began: see `PooledSlabs.rewind`. */
export interface SlabMark {
  readonly slabs: number
  readonly used: number
}

/** Slabs of one batch double up to this size; one piece that is larger gets a slab of its own. */
const largestGrowthBytes = 1 << 20

const utf8 = new TextEncoder()

/**
 * Bytes of many records, one behind the other in slabs of a pool. A slab that is full is followed by another and never moves, so views
 * stay valid until `release`, when the slabs go back to the pool and belong to others.
 */
export class PooledSlabs {
  readonly #pool: SlabPool
  readonly #slabs: Buffer[] = []
  #nextBytes: number
  #used = 0

  /** @param sizeHintBytes Of the first slab, at least. It is taken with the first byte. */
  constructor(pool: SlabPool, sizeHintBytes: number) {
    this.#pool = pool
    this.#nextBytes = sizeHintBytes
  }

  get mark(): SlabMark {
    return { slabs: this.#slabs.length, used: this.#used }
  }

  /** A view of the next free bytes, zeroed. They are taken: `rewind` gives them back. */
  claim(bytes: number): Uint8Array {
    const view = this.#take(bytes)
    // A slab still holds the bytes of earlier batches: none may leak where the caller writes too little.
    view.fill(0)
    return view
  }

  /** A copy of the bytes. */
  copy(bytes: Uint8Array): Uint8Array {
    const view = this.#take(bytes.length)
    view.set(bytes)
    return view
  }

  /** The text as UTF-8, encoded in place. Lone surrogates become U+FFFD. */
  text(text: string): Uint8Array {
    const slab = this.#slabs.at(-1)
    if (slab !== undefined) {
      const free = new Uint8Array(slab.buffer, slab.byteOffset + this.#used, slab.length - this.#used)
      const { read, written } = utf8.encodeInto(text, free)
      if (read === text.length) return this.#view(slab, written)
    }
    const fresh = this.#addSlab(Buffer.byteLength(text))
    return this.#view(fresh, utf8.encodeInto(text, fresh).written)
  }

  /** Gives back everything that was taken since the mark. Its views must not be used any more. */
  rewind(mark: SlabMark): void {
    while (this.#slabs.length > mark.slabs) this.#pool.give(this.#slabs.pop() as Buffer)
    this.#used = mark.used
  }

  /** Whether these bytes lie in one of the slabs. */
  holds(bytes: Uint8Array): boolean {
    return this.#slabs.some((slab) => slab.buffer === bytes.buffer)
  }

  /** Gives all slabs back. Every view is void. Calling it again does nothing. */
  release(): void {
    this.rewind({ slabs: 0, used: 0 })
  }

  #take(bytes: number): Uint8Array {
    const slab = this.#slabs.at(-1)
    if (slab !== undefined && slab.length - this.#used >= bytes) return this.#view(slab, bytes)
    return this.#view(this.#addSlab(bytes), bytes)
  }

  #view(slab: Buffer, bytes: number): Uint8Array {
    const view = new Uint8Array(slab.buffer, slab.byteOffset + this.#used, bytes)
    this.#used += bytes
    return view
  }

  #addSlab(bytes: number): Buffer {
    const slab = this.#pool.take(Math.max(bytes, this.#nextBytes))
    this.#slabs.push(slab)
    this.#used = 0
    this.#nextBytes = Math.max(this.#nextBytes, Math.min(2 * slab.length, largestGrowthBytes))
    return slab
  }
}
