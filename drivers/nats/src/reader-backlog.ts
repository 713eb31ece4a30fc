/**
 * The messages of one partition that came and were not handed over, and where reading stands. Pure. Sequences only grow; where one is
 * missing there is a gap, and what lies behind it is not ready until somebody has found out what the gap is.
 */
import type { ReaderMessage } from "./reader-message.ts"

/** What can be taken at once. */
export interface Portion {
  readonly records: number
  readonly bytes: number
}

export class ReaderBacklog {
  #messages: ReaderMessage[] = []
  /** The index of the first message behind a gap. */
  #gapAt: number | undefined
  #last: number
  #taken: number

  /** @param sequence The last that counts as read. */
  constructor(sequence: number) {
    this.#last = sequence
    this.#taken = sequence
  }

  /** The last sequence that waits here, or was handed over or passed over. */
  get last(): number {
    return this.#last
  }

  /** The last sequence that was handed over or passed over. */
  get taken(): number {
    return this.#taken
  }

  /** How many can be taken. */
  get ready(): number {
    return this.#gapAt ?? this.#messages.length
  }

  get empty(): boolean {
    return this.#messages.length === 0
  }

  /** The sequence in front of the first gap; `undefined` when there is none. */
  get gapAfter(): number | undefined {
    if (this.#gapAt === undefined) return undefined
    return this.#gapAt === 0 ? this.#taken : (this.#messages[this.#gapAt - 1] as ReaderMessage).sequence
  }

  /** Adds a message. `old`: it was there already, and is not added. `gap`: it is the first behind one. */
  add(message: ReaderMessage): "added" | "old" | "gap" {
    const expected = this.#last + 1
    if (message.sequence < expected) return "old"
    this.#messages.push(message)
    this.#last = message.sequence
    if (message.sequence === expected || this.#gapAt !== undefined) return "added"
    this.#gapAt = this.#messages.length - 1
    return "gap"
  }

  /** How much of what is ready fits; with `alone` the first one always does. */
  portion(limits: { readonly records: number; readonly bytes: number; readonly alone: boolean }): Portion {
    const most = Math.min(this.ready, limits.records)
    let records = 0
    let bytes = 0
    while (records < most) {
      const size = (this.#messages[records] as ReaderMessage).bytes
      if (bytes + size > limits.bytes && !(records === 0 && limits.alone)) break
      bytes += size
      records++
    }
    return { records, bytes }
  }

  /** Hands the first so many over; at least one, at most those that are ready. */
  take(records: number): readonly ReaderMessage[] {
    const all = records === this.#messages.length
    const taken = all ? this.#messages : this.#messages.slice(0, records)
    this.#messages = all ? [] : this.#messages.slice(records)
    if (this.#gapAt !== undefined) this.#gapAt -= records
    this.#taken = (taken[records - 1] as ReaderMessage).sequence
    return taken
  }

  /** The first gap is of no account: what was there is gone for good. What lies behind it is ready, up to the next gap. */
  passGap(): void {
    if (this.#gapAt === undefined) return
    let before = (this.#messages[this.#gapAt] as ReaderMessage).sequence
    for (let index = this.#gapAt + 1; index < this.#messages.length; index++) {
      const { sequence } = this.#messages[index] as ReaderMessage
      if (sequence !== before + 1) {
        this.#gapAt = index
        return
      }
      before = sequence
    }
    this.#gapAt = undefined
  }

  /** Forgets what lies behind the first gap. Answers how much that was. */
  dropBehindGap(): Portion {
    const at = this.#gapAt ?? this.#messages.length
    const dropped = this.#messages.slice(at)
    this.#messages = this.#messages.slice(0, at)
    this.#gapAt = undefined
    this.#last = this.#messages.at(-1)?.sequence ?? this.#taken
    return { records: dropped.length, bytes: dropped.reduce((sum, { bytes }) => sum + bytes, 0) }
  }

  /** There is nothing up to this sequence. Answers whether reading has moved by that; it does not while messages wait. */
  passTo(sequence: number): boolean {
    if (sequence <= this.#last || this.#messages.length > 0) return false
    this.#last = sequence
    this.#taken = sequence
    return true
  }

  clear(): void {
    this.#messages = []
    this.#gapAt = undefined
  }
}
