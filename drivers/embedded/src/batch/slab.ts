/**
 * The buffers of batches under way. A batch is encoded in a private buffer, where a small copy costs 30 ns (in shared memory 60 to 100),
 * and moved as a whole into shared memory when it is sealed (3 to 20 ns a record of 100 bytes): from there the worker writes the log,
 * while the main thread can still read the records again, whatever becomes of the worker.
 */

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

  /** @param kind Whether the worker sees the slabs. */
  constructor(kind: "private" | "shared") {
    this.#shared = kind === "shared"
  }

  /** A slab of at least so many bytes. Its content is arbitrary. */
  take(bytes: number): Buffer {
    const size = slabSize(bytes)
    const slab = this.#free.get(size)?.pop()
    if (slab === undefined) return Buffer.from(this.#shared ? new SharedArrayBuffer(size) : new ArrayBuffer(size))
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

/** The two pools of one session. */
export interface SlabPools {
  readonly encoding: SlabPool
  readonly sealed: SlabPool
}

/** Empty pools for a session. */
export function newSlabPools(): SlabPools {
  return { encoding: new SlabPool("private"), sealed: new SlabPool("shared") }
}

function slabSize(bytes: number): number {
  if (bytes > largestPooledBytes) return bytes
  let size = smallestBytes
  while (size < bytes) size *= 2
  return size
}
