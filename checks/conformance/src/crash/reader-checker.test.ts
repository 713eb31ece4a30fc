import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Stored } from "./log-checker.ts"
import { checkAtLeastOnce, checkAtMostOnce, type Readings } from "./reader-checker.ts"

/** Twenty records of the lanes a and b in turn, in partition 0. */
const log: Stored[] = Array.from({ length: 20 }, (_, index) => ({
  lane: index % 2 === 0 ? "a" : "b",
  counter: Math.floor(index / 2),
  partition: 0,
  offset: BigInt(index),
}))
const none = new Map<number, bigint>()
const upTo = (next: bigint): Map<number, bigint> => new Map([[0, next]])

function readings(given: Partial<Readings>): Readings {
  return { lives: [], stored: none, log, wants: () => true, order: "partition", ...given }
}

describe("the checker of readers that repeat", () => {
  test("a life that goes on where progress was stored has no problems, repetitions included", () => {
    const lives = [
      { handled: log.slice(0, 12), before: none },
      { handled: log.slice(8, 15), before: upTo(8n) },
    ]
    assert.deepEqual(checkAtLeastOnce(readings({ lives, stored: upTo(15n) })), [])
  })

  test("progress past what nobody handled is reported, unless nobody wants it", () => {
    const lives = [{ handled: log.slice(0, 9).filter(({ lane }) => lane === "a"), before: none }]
    const stored = upTo(9n)
    assert.match(checkAtLeastOnce(readings({ lives, stored })).join(), /stored up to 9, but 1 was never handled/)
    const wants = ({ lane }: Stored): boolean => lane === "a"
    assert.deepEqual(checkAtLeastOnce(readings({ lives, stored, wants })), [])
    const problems = checkAtLeastOnce(readings({ lives: [{ handled: log.slice(0, 2), before: none }], wants }))
    assert.match(problems.join(), /0\/1 came, which nobody wants/)
  })

  test("what was stored before, what comes twice, and what the log has not are reported", () => {
    const stale = [{ handled: log.slice(3, 5), before: upTo(4n) }]
    assert.match(checkAtLeastOnce(readings({ lives: stale })).join(), /0\/3 came, though 4 was stored before/)
    const twice = [{ handled: [...log.slice(0, 2), ...log.slice(1, 2)], before: none }]
    assert.match(checkAtLeastOnce(readings({ lives: twice })).join(), /0\/1 came twice/)
    const foreign = [{ handled: [{ ...(log[0] as Stored), counter: 9 }], before: none }]
    assert.match(checkAtLeastOnce(readings({ lives: foreign })).join(), /a:9, which the log has not/)
  })

  test("a step back is reported in a partition, or in a key where only keys have an order", () => {
    const across = [{ handled: [log[1], log[0], log[2], log[3]] as Stored[], before: none }]
    assert.match(checkAtLeastOnce(readings({ lives: across })).join(), /0\/0 came behind 1/)
    assert.deepEqual(checkAtLeastOnce(readings({ lives: across, order: "key" })), [])
    const within = [{ handled: [log[2], log[0]] as Stored[], before: none }]
    assert.match(checkAtLeastOnce(readings({ lives: within, order: "key" })).join(), /0\/0 came behind 2/)
    assert.deepEqual(checkAtLeastOnce(readings({ lives: within, order: "none" })), [])
  })
})

describe("the checker of readers that lose", () => {
  test("what comes to two lives is reported, and a loss above what is read ahead", () => {
    const lives = [
      { handled: log.slice(0, 5), before: none },
      { handled: log.slice(8, 12), before: upTo(8n) },
    ]
    const fine = readings({ lives, stored: upTo(12n) })
    assert.deepEqual(checkAtMostOnce(fine, { mostLost: 3 }), [])
    assert.match(checkAtMostOnce(fine, { mostLost: 2 }).join(), /life 0 lost 3 records, more than 2/)
    const again = [lives[0], { handled: log.slice(4, 12), before: none }] as Readings["lives"]
    assert.match(
      checkAtMostOnce(readings({ lives: again, stored: upTo(12n) }), { mostLost: 9 }).join(),
      /0\/4 came to lives 0 and 1/,
    )
  })
})
