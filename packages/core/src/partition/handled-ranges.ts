/**
 * Which offsets of a partition are handled: everything before `prefix`, and intervals beyond it. Pure. Offsets that no message has
 * (holes) are told by `pass`, so that what is unhandled below an offset can be counted exactly.
 */
export class HandledRanges {
  #prefix: bigint
  /** Sorted; neither touching each other nor the prefix. */
  #from: bigint[] = []
  #to: bigint[] = []
  /** Offsets in the intervals. */
  #beyond = 0n

  constructor(prefix = 0n) {
    this.#prefix = prefix
  }

  /** Everything before this is handled. */
  get prefix(): bigint {
    return this.#prefix
  }

  /** How many intervals lie beyond the prefix: what parallel handling has left in between. */
  get gaps(): number {
    return this.#from.length
  }

  /** Whether an offset is handled. */
  has(offset: bigint): boolean {
    if (offset < this.#prefix) return true
    const index = this.#firstTouching(offset + 1n)
    return index < this.#from.length && (this.#from[index] as bigint) <= offset
  }

  /** Messages before `end`, behind which nothing is handled, that are not. */
  open(end: bigint): number {
    return end <= this.#prefix ? 0 : Number(end - this.#prefix - this.#beyond)
  }

  /** Begins anew: nothing at or behind `prefix` is handled. */
  reset(prefix: bigint): void {
    this.#prefix = prefix
    this.#clear()
  }

  /** Everything before `next` is handled. @returns how many offsets were not before */
  through(next: bigint): number {
    if (next <= this.#prefix) return 0
    if (this.#from.length === 0) {
      const fresh = next - this.#prefix
      this.#prefix = next
      return Number(fresh)
    }
    return this.#insert(this.#prefix, next)
  }

  /** The offsets `from` to `to` − 1 are handled. @returns how many of them were not before */
  add(from: bigint, to: bigint): number {
    const start = from < this.#prefix ? this.#prefix : from
    if (to <= start) return 0
    if (start === this.#prefix && this.#from.length === 0) {
      this.#prefix = to
      return Number(to - start)
    }
    return this.#insert(start, to)
  }

  #insert(from: bigint, to: bigint): number {
    const first = this.#firstTouching(from)
    let start = from
    let end = to
    let covered = 0n
    let last = first
    for (; last < this.#from.length && (this.#from[last] as bigint) <= end; last++) {
      const left = this.#from[last] as bigint
      const right = this.#to[last] as bigint
      covered += overlap(left, right, from, to)
      this.#beyond -= right - left
      if (left < start) start = left
      if (right > end) end = right
    }
    if (start <= this.#prefix) {
      this.#from.splice(first, last - first)
      this.#to.splice(first, last - first)
      this.#prefix = end
    } else {
      this.#from.splice(first, last - first, start)
      this.#to.splice(first, last - first, end)
      this.#beyond += end - start
    }
    return Number(to - from - covered)
  }

  /** The first interval that ends at or behind `from`. */
  #firstTouching(from: bigint): number {
    let low = 0
    let high = this.#to.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((this.#to[middle] as bigint) < from) low = middle + 1
      else high = middle
    }
    return low
  }

  #clear(): void {
    this.#from = []
    this.#to = []
    this.#beyond = 0n
  }
}

function overlap(left: bigint, right: bigint, from: bigint, to: bigint): bigint {
  const start = left > from ? left : from
  const end = right < to ? right : to
  return end > start ? end - start : 0n
}
