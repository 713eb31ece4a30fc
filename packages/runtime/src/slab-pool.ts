/** Buffers that are used again and again: a batch is encoded in a slab, and the slab goes back when nobody holds the batch any more. */

/** Slabs come in powers of two from the smallest to the largest; above that a buffer is made to measure and not kept. */
const smallestBytes = 4 << 10
const largestPooledBytes = 8 << 20

/** How many bytes of free slabs a pool keeps at most. */
const mostFreeBytes = 16 << 20

/** Slabs that are free, by size. Bounded: what does not fit is left to the garbage collector. */
export class SlabPool {
  readonly #shared: boolean
  readonly #free = new Map<number, Buffer[]>()
  #freeBytes = 0

  /** @param kind Whether other threads see the slabs (`shared`). Default `private`. */
  constructor(kind: "private" | "shared" = "private") {
    this.#shared = kind === "shared"
  }

  /** A slab of at least so many bytes, alone in its memory. Its content is arbitrary. */
  take(bytes: number): Buffer {
    const size = slabSize(bytes)
    const slab = this.#free.get(size)?.pop()
    if (slab === undefined)
      return this.#shared ? Buffer.from(new SharedArrayBuffer(size)) : Buffer.allocUnsafeSlow(size)
    this.#freeBytes -= size
    return slab
  }

  /** Takes a slab back. Nobody may hold it any more. */
  give(slab: Buffer): void {
    const size = slab.length
    if (size > largestPooledBytes || this.#freeBytes + size > mostFreeBytes) return
    const same = this.#free.get(size)
    if (same === undefined) this.#free.set(size, [slab])
    else same.push(slab)
    this.#freeBytes += size
  }

  /** Bytes that are kept for later. */
  get freeBytes(): number {
    return this.#freeBytes
  }
}

function slabSize(bytes: number): number {
  if (bytes > largestPooledBytes) return bytes
  let size = smallestBytes
  while (size < bytes) size *= 2
  return size
}
