/** What was confirmed to whom, and the check that the log holds it: everything once, in order, where it was said to be. */
import assert from "node:assert/strict"
import type { Reading } from "./trial-log.ts"
import { readTrialPayload } from "./trial-record.ts"

/** A confirmed batch: records `first` to `first + count − 1` of a writer lie at `base` and behind. */
export interface Confirmed {
  readonly writer: number
  readonly base: bigint
  readonly first: number
  readonly count: number
}

export class Ledger {
  readonly #confirmed: Confirmed[] = []
  records = 0

  confirm(batch: Confirmed): void {
    this.#confirmed.push(batch)
    this.records += batch.count
  }

  get batches(): number {
    return this.#confirmed.length
  }

  /**
   * Checks a whole reading of one partition. Unconfirmed records may be there or not, but only once and in their writer's order.
   * @param options.newest only so many of the newest confirmed batches must be there: retention may have taken the others.
   * @throws AssertionError that names the first record that is lost, doubled, moved or made up.
   */
  check(reading: Reading, options: { readonly newest?: number } = {}): void {
    if (reading.error !== undefined) throw reading.error
    const found = checkSound(reading)
    const byPlace = this.#confirmed.toSorted((a, b) => Number(a.base - b.base))
    for (const [place, { writer, base, first, count }] of byPlace.entries()) {
      if (base < reading.first && place < byPlace.length - (options.newest ?? byPlace.length)) continue
      for (let index = 0; index < count; index += 1) {
        const at = found[Number(base - reading.first) + index]
        const name = `record ${first + index} of writer ${writer}, confirmed at ${base + BigInt(index)}`
        assert.ok(at !== undefined, `${name}, is lost: the log ends at ${reading.head}`)
        assert.ok(at.writer === writer && at.sequence === first + index, `${name}, is not there`)
      }
    }
  }
}

/**
 * Checks what needs no ledger: offsets without a gap, no record made up, each writer's records ascending (so none twice).
 * @returns the records, by their distance from `reading.first`.
 */
export function checkSound(reading: Reading): { writer: number; sequence: number }[] {
  const last = new Map<number, number>()
  return reading.records.map(({ offset, payload }, index) => {
    assert.equal(offset, reading.first + BigInt(index), "offsets have a gap")
    const record = readTrialPayload(payload)
    const before = last.get(record.writer) ?? -1
    assert.ok(
      record.sequence > before,
      `writer ${record.writer}: record ${record.sequence} at offset ${offset} comes after record ${before}`,
    )
    last.set(record.writer, record.sequence)
    return record
  })
}
