import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Stored } from "./log-checker.ts"
import { checkProgress } from "./progress-checker.ts"

const log: Stored[] = Array.from({ length: 20 }, (_, index) => ({
  lane: "w.single",
  counter: index,
  partition: 0,
  offset: BigInt(index),
}))
const none = new Map<number, bigint>()

describe("the progress checker", () => {
  test("a life that goes on where the one before was committed has no problems, repetitions included", () => {
    const lives = [
      { handled: log.slice(0, 12), before: none },
      { handled: log.slice(8, 15), before: new Map([[0, 8n]]) },
    ]
    assert.deepEqual(checkProgress(lives, new Map([[0, 15n]]), log), [])
    assert.deepEqual(checkProgress(lives, new Map([[0, 3n]]), log), [])
  })

  test("a commit past what was handled is reported", () => {
    const lives = [{ handled: log.slice(0, 5), before: none }]
    assert.match(checkProgress(lives, new Map([[0, 6n]]), log).join(), /committed up to 6, but 5 was never handled/)
  })

  test("a start behind what was stored, a gap and a step back are reported", () => {
    const skipping = [{ handled: log.slice(3, 5), before: new Map([[0, 2n]]) }]
    assert.match(checkProgress(skipping, none, log).join(), /0\/3 was handed over where at most 2 was due/)
    const gap = [{ handled: [...log.slice(0, 2), ...log.slice(3, 5)], before: none }]
    assert.match(checkProgress(gap, none, log).join(), /0\/3 was handed over where 2 was due/)
    const back = [{ handled: [...log.slice(0, 3), ...log.slice(1, 3)], before: none }]
    assert.match(checkProgress(back, none, log).join(), /0\/1 was handed over where 3 was due/)
  })

  test("a message that the log does not have is reported", () => {
    const lives = [{ handled: [{ ...(log[0] as Stored), counter: 99 }], before: none }]
    assert.match(checkProgress(lives, none, log).join(), /as w\.single:99, which the log has not/)
  })
})
