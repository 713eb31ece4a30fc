import type { Call } from "./call.ts"

interface Mark {
  readonly ordinal: number
  readonly reached: () => void
}

/** The calls that have not settled, oldest first. The links are fields of the calls, so that a call costs no entry of its own. */
export class CallList implements Iterable<Call> {
  #first: Call | undefined
  #last: Call | undefined
  #size = 0
  #nextOrdinal = 0
  /** In the order of their ordinals. */
  readonly #marks: Mark[] = []

  get size(): number {
    return this.#size
  }

  add(call: Call): void {
    call.ordinal = this.#nextOrdinal++
    call.older = this.#last
    if (this.#last === undefined) this.#first = call
    else this.#last.newer = call
    this.#last = call
    this.#size++
  }

  /** Takes a call out that is in the list. */
  remove(call: Call): void {
    const { older, newer } = call
    if (older === undefined) this.#first = newer
    else older.newer = newer
    if (newer === undefined) this.#last = older
    else newer.older = older
    call.older = undefined
    call.newer = undefined
    this.#size--
    if (older === undefined && this.#marks.length > 0) this.#reach()
  }

  /** Settles when all that are in the list now have left it. */
  passed(): Promise<void> {
    if (this.#size === 0) return Promise.resolve()
    return new Promise((reached) => {
      this.#marks.push({ ordinal: this.#nextOrdinal, reached })
    })
  }

  *[Symbol.iterator](): Iterator<Call> {
    for (let call = this.#first; call !== undefined; call = call.newer) yield call
  }

  #reach(): void {
    const oldest = this.#first?.ordinal ?? Number.POSITIVE_INFINITY
    let passed = 0
    while (passed < this.#marks.length && (this.#marks[passed] as Mark).ordinal <= oldest) passed++
    // A turn later, so that whoever awaits the last call itself hears of it first.
    for (const mark of this.#marks.splice(0, passed)) queueMicrotask(mark.reached)
  }
}
