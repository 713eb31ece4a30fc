import type { OffsetRun } from "./offset-runs.ts"

/** Records that were read together, and are done together as far as the low-water mark goes. */
interface Stretch {
  readonly end: bigint
  readonly bytes: number
  /** Records that are not done. */
  remaining: number
}

/** What was accepted together: how much room it takes, and since when. */
interface Holding {
  end: bigint
  bytes: number
  readonly sinceMicros: bigint
}

/** Holdings are joined up to this size, so that a full spool of small sends costs little memory. */
const holdingBytes = 1 << 16

/**
 * How far a lane of the spool has got: what was accepted (`end`), what was read, what is done, and the low-water mark, below which
 * everything is. Pure.
 */
export class LaneProgress {
  /** Behind the last accepted record. */
  end: bigint
  /** Every record below is done. */
  low: bigint
  /** Records that were accepted and are not done. */
  waiting = 0
  /** Bytes that were accepted and lie above the low-water mark. */
  bytes = 0
  /** Bytes that were read and lie above the low-water mark. */
  readBytes = 0
  #stretches: Stretch[] = []
  #head = 0
  #holdings: Holding[] = []
  #firstHolding = 0

  constructor(low: bigint) {
    this.low = low
    this.end = low
  }

  /** Behind the last record that was read. */
  get readEnd(): bigint {
    return this.#stretches.length === this.#head ? this.low : (this.#stretches.at(-1) as Stretch).end
  }

  /** When the oldest record that waits was accepted; up to 64 KiB before it count as one with it. */
  get oldestMicros(): bigint | undefined {
    return this.waiting === 0 ? undefined : this.#holdings[this.#firstHolding]?.sinceMicros
  }

  /** Records from `end` on are stored. */
  accepted(count: number, bytes: number, sinceMicros: bigint): void {
    this.end += BigInt(count)
    this.waiting += count
    this.bytes += bytes
    const last = this.#holdings.at(-1)
    if (last !== undefined && this.#holdings.length > this.#firstHolding && last.bytes + bytes <= holdingBytes) {
      last.end = this.end
      last.bytes += bytes
    } else {
      this.#holdings.push({ end: this.end, bytes, sinceMicros })
    }
  }

  /** Records up to `end` were read. @param done How many of them are done already. */
  read(end: bigint, bytes: number, done: number): void {
    this.#stretches.push({ end, bytes, remaining: Number(end - this.readEnd) - done })
    this.readBytes += bytes
    this.waiting -= done
  }

  /** These were read, and are done. */
  done(runs: readonly OffsetRun[]): void {
    for (const { first, length } of runs) {
      this.waiting -= length
      let left = length
      for (let at = this.#find(first), from = first; left > 0; at++) {
        const stretch = this.#stretches[at] as Stretch
        const here = Math.min(left, Number(stretch.end - from))
        stretch.remaining -= here
        left -= here
        from = stretch.end
      }
    }
  }

  /** Moves the low-water mark up. Answers how many bytes of room are free now; `undefined` when it stays. */
  advance(): number | undefined {
    const before = this.low
    while (this.#head < this.#stretches.length && (this.#stretches[this.#head] as Stretch).remaining === 0) {
      const { end, bytes } = this.#stretches[this.#head++] as Stretch
      this.low = end
      this.readBytes -= bytes
    }
    if (this.low === before) return undefined
    if (this.#head > 1024 || this.#head === this.#stretches.length) {
      this.#stretches = this.#stretches.slice(this.#head)
      this.#head = 0
    }
    return this.#release()
  }

  #release(): number {
    let freed = 0
    while (this.#firstHolding < this.#holdings.length) {
      const { end, bytes } = this.#holdings[this.#firstHolding] as Holding
      if (end > this.low) break
      freed += bytes
      this.#firstHolding++
    }
    if (this.#firstHolding > 1024 || this.#firstHolding === this.#holdings.length) {
      this.#holdings = this.#holdings.slice(this.#firstHolding)
      this.#firstHolding = 0
    }
    this.bytes -= freed
    return freed
  }

  /** The index of the stretch that holds an offset. */
  #find(offset: bigint): number {
    let low = this.#head
    let high = this.#stretches.length - 1
    while (low < high) {
      const middle = (low + high) >> 1
      if ((this.#stretches[middle] as Stretch).end > offset) high = middle
      else low = middle + 1
    }
    return low
  }
}
