/**
 * The times of a batch's records while it is written. Records with a time of their own are written as the distance from the first
 * such time. Those without get the time of the batch, which only the seal tells: where both are in one batch it is rewritten then.
 */
import { putVarint, putVarlong, varlongBytes } from "./varint.ts"

/** What a timestamp may take more when it is rewritten, and the length of its record with it. */
const slackBytes = 10

export class RecordTimes {
  /** Milliseconds since 1970 of the first record that has its own time. */
  #base = 0n
  #max = 0n
  /** The index of that record; −1 while there is none. */
  #firstTimed = -1
  /** The records without a time behind it. */
  readonly #laterUntimed: number[] = []
  #count = 0

  /** Whether some record has its own time. */
  get any(): boolean {
    return this.#firstTimed >= 0
  }

  /** What is written for a record, as a number where 32 bits hold it. */
  delta(millis: bigint | undefined): number | bigint {
    return millis === undefined || this.#firstTimed < 0 ? 0 : narrow(millis - this.#base)
  }

  /** The bytes that the rewriting of a batch may add once it has one more record. */
  slackBytes(millis: bigint | undefined): number {
    if (this.#firstTimed < 0) return millis === undefined ? 0 : this.#count * slackBytes
    return (this.#firstTimed + this.#laterUntimed.length + 1) * slackBytes
  }

  /** Takes note of one more record. */
  add(millis: bigint | undefined): void {
    const index = this.#count++
    if (millis === undefined) {
      if (this.#firstTimed >= 0) this.#laterUntimed.push(index)
    } else if (this.#firstTimed < 0) {
      this.#firstTimed = index
      this.#base = millis
      this.#max = millis
    } else if (millis > this.#max) {
      this.#max = millis
    }
  }

  /** The base and the largest time of the batch, and what records without their own are rewritten with, if they must be. */
  seal(batchMillis: bigint): { base: bigint; max: bigint; untimed: number | bigint | undefined } {
    if (this.#firstTimed < 0) return { base: batchMillis, max: batchMillis, untimed: undefined }
    const mixed = this.#firstTimed > 0 || this.#laterUntimed.length > 0
    const max = mixed && batchMillis > this.#max ? batchMillis : this.#max
    return { base: this.#base, max, untimed: mixed ? narrow(batchMillis - this.#base) : undefined }
  }

  /** Copies records, from `start` of `from` to its end and to `start` of `to`, with the delta of those without a time; answers the new end. */
  rewrite(from: Buffer, to: Buffer, options: { readonly start: number; readonly delta: number | bigint }): number {
    const more = varlongBytes(options.delta) - 1
    let read = options.start
    let write = options.start
    let nextUntimed = 0
    for (let index = 0; index < this.#count; index++) {
      const { value: size, end: begin } = varintAt(from, read)
      const end = begin + size
      const untimed = index < this.#firstTimed || this.#laterUntimed[nextUntimed] === index
      if (untimed) {
        if (index > this.#firstTimed) nextUntimed++
        write = putVarint(size + more, to, write)
        to[write++] = 0
        write = putVarlong(options.delta, to, write)
        write += from.copy(to, write, begin + 2, end)
      } else {
        write += from.copy(to, write, read, end)
      }
      read = end
    }
    return write
  }

  /** The most bytes that `rewrite` adds. */
  get rewriteBytes(): number {
    return (this.#firstTimed + this.#laterUntimed.length) * slackBytes
  }
}

/** Whole milliseconds of a time in µs, rounded down. */
export function millisOf(micros: bigint): bigint {
  return micros >= 0n ? micros / 1000n : -((999n - micros) / 1000n)
}

function narrow(value: bigint): number | bigint {
  return value >= -0x8000_0000n && value <= 0x7fff_ffffn ? Number(value) : value
}

/** A length that this package wrote: not negative. */
function varintAt(bytes: Buffer, start: number): { value: number; end: number } {
  let zigzag = 0
  let position = start
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[position++] as number
    zigzag |= (byte & 0x7f) << shift
    if (byte < 0x80) return { value: zigzag >>> 1, end: position }
  }
}
