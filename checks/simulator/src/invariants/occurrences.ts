import type { History } from "../backend/sim-topic.ts"
import { numberIn } from "../workload/history.ts"

/** One place where a record is stored. */
export interface Occurrence {
  readonly history: History
  readonly offset: number
  readonly storedMs: number
}

/** Where each record lies, in the order of storing. */
export class Occurrences {
  readonly #places = new Map<number, Occurrence[]>()

  constructor(histories: readonly History[]) {
    for (const history of histories) {
      for (const { base, records, storedMs } of history.log.batches) {
        for (const [index, { payload }] of records.entries()) {
          const number = numberIn(payload)
          const occurrence = { history, offset: base + index, storedMs }
          const known = this.#places.get(number)
          if (known === undefined) this.#places.set(number, [occurrence])
          else known.push(occurrence)
        }
      }
    }
    for (const places of this.#places.values()) if (places.length > 1) places.sort((a, b) => a.storedMs - b.storedMs)
  }

  of(number: number): readonly Occurrence[] {
    return this.#places.get(number) ?? none
  }
}

const none: readonly Occurrence[] = []
