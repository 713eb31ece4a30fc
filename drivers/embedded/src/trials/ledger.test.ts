import assert from "node:assert/strict"
import test from "node:test"
import { Ledger } from "./ledger.ts"
import type { Reading } from "./trial-log.ts"
import { readTrialPayload, trialPayload } from "./trial-record.ts"

/** A log that holds records of these writers and sequences, from an offset on. */
function reading(first: bigint, ...records: readonly (readonly [writer: number, sequence: number])[]): Reading {
  return {
    first,
    head: first + BigInt(records.length),
    records: records.map(([writer, sequence], index) => {
      return { offset: first + BigInt(index), payload: trialPayload(writer, sequence, 40) }
    }),
  }
}

function ledger(): Ledger {
  const told = new Ledger()
  told.confirm({ writer: 1, base: 0n, first: 0, count: 2 })
  told.confirm({ writer: 2, base: 3n, first: 0, count: 1 })
  return told
}

test("a log that holds what was confirmed passes, with what was not confirmed or without", () => {
  ledger().check(reading(0n, [1, 0], [1, 1], [3, 9], [2, 0]))
  ledger().check(reading(0n, [1, 0], [1, 1], [3, 9], [2, 0], [2, 1], [1, 2]))
})

test("what is lost, moved, doubled, left out or made up is found", () => {
  assert.throws(() => ledger().check(reading(0n, [1, 0], [1, 1], [3, 9])), /writer 2, confirmed at 3, is lost/)
  assert.throws(
    () => ledger().check(reading(0n, [1, 0], [1, 1], [2, 0], [3, 9])),
    /writer 2, confirmed at 3, is not there/,
  )
  assert.throws(() => ledger().check(reading(0n, [1, 0], [1, 1], [1, 1], [2, 0])), /comes after record 1/)
  const gap = reading(0n, [1, 0], [1, 1], [3, 9], [2, 0])
  assert.throws(() => ledger().check({ ...gap, records: gap.records.toSpliced(1, 1) }), /offsets have a gap/)
  const payload = trialPayload(1, 0, 40)
  payload[39] = (payload[39] as number) ^ 1
  assert.throws(() => readTrialPayload(payload), /a record that nobody wrote/)
  assert.throws(() => readTrialPayload(trialPayload(1, 0, 40).subarray(0, 39)), /a record that nobody wrote/)
  assert.throws(() => readTrialPayload(null), /a record that nobody wrote/)
})
