import assert from "node:assert/strict"
import { test } from "node:test"
import { type ConfirmedRecord, checkChaos, type FoundRecord } from "./chaos-checker.ts"

const lane = "a"

function found(counters: readonly number[], settings: Partial<FoundRecord> = {}): FoundRecord[] {
  return counters.map((counter, index) => ({
    lane,
    key: lane,
    counter,
    partition: 0,
    offset: BigInt(index),
    ...settings,
  }))
}

function confirmed(...counters: readonly number[]): ConfirmedRecord[] {
  return counters.map((counter) => ({ lane, counter }))
}

const once = { once: true }
const perhapsTwice = { once: false }

test("a topic that is right has no problems, also with records that nobody heard a confirmation of", () => {
  assert.deepEqual(checkChaos(confirmed(0, 2), found([0, 1, 2, 3]), once), [])
  const told = [{ lane, counter: 1, partition: 0, offset: 1n }]
  assert.deepEqual(checkChaos(told, found([0, 1]), once), [])
  // What failed for good leaves a hole in its lane.
  assert.deepEqual(checkChaos(confirmed(0, 2), found([0, 2]), once), [])
})

test("each breach is found", () => {
  const says = (problems: readonly string[], pattern: RegExp): void => {
    assert.equal(problems.length, 1, problems.join("\n"))
    assert.match(problems[0] as string, pattern)
  }
  says(checkChaos(confirmed(0, 1), found([0]), once), /a:1 was confirmed and is not there/)
  says(checkChaos([], found([0, 1, 1]), once), /a:1 is there twice: at 0\/1 and 0\/2/)
  says(checkChaos([], found([0, 2, 1]), once), /a:1 is at 0\/2 behind a:2/)
  says(checkChaos([], found([0, 2, 1]), perhapsTwice), /a:1 is at 0\/2 behind a:2/)
  const moved = [...found([0]), ...found([1], { partition: 1 })]
  says(checkChaos([], moved, once), /a:1 is at 1\/0, its lane in partition 0/)
  says(
    checkChaos([{ lane, counter: 0, partition: 0, offset: 5n }], found([0]), once),
    /confirmed at 0\/5 and is at 0\/0/,
  )
  says(checkChaos([], found([0], { key: "b" }), once), /has the key "b"/)
  const back = [...found([0, 1]), ...found([2], { offset: 0n })]
  says(checkChaos([], back, once), /0\/0 comes behind offset 1/)
})

test("where a resend may double, the first occurrences are in order", () => {
  assert.deepEqual(checkChaos(confirmed(0, 1, 2), found([0, 1, 0, 1, 2]), perhapsTwice), [])
})
