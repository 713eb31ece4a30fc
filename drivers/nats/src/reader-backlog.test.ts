import assert from "node:assert/strict"
import { describe, it } from "node:test"
import type { Msg } from "@nats-io/transport-node"
import fc from "fast-check"
import { ReaderBacklog } from "./reader-backlog.ts"
import { ReaderBudget, shareOf } from "./reader-budget.ts"
import { ReaderMessage } from "./reader-message.ts"

const message = (sequence: number, bytes = 10): ReaderMessage =>
  new ReaderMessage({ size: () => bytes } as unknown as Msg, sequence)
const roomy = { records: 1000, bytes: 1_000_000, alone: true }

describe("the backlog of a partition", () => {
  it("hands over what came, and nothing behind a gap before somebody has looked into it", () => {
    const backlog = new ReaderBacklog(3)
    assert.deepEqual(
      [4, 5, 9, 10, 12].map((sequence) => backlog.add(message(sequence))),
      ["added", "added", "gap", "added", "added"],
    )
    assert.equal(backlog.ready, 2)
    assert.equal(backlog.gapAfter, 5)
    backlog.passGap()
    assert.equal(backlog.ready, 4)
    assert.equal(backlog.gapAfter, 10)
    assert.deepEqual(
      backlog.take(3).map(({ sequence }) => sequence),
      [4, 5, 9],
    )
    assert.equal(backlog.taken, 9)
    assert.deepEqual(backlog.dropBehindGap(), { records: 1, bytes: 10 })
    assert.equal(backlog.last, 10)
    assert.equal(backlog.add(message(11)), "added")
  })

  it("does not take what it has again", () => {
    const backlog = new ReaderBacklog(3)
    assert.deepEqual(
      [1, 3, 4, 4, 2].map((sequence) => backlog.add(message(sequence))),
      ["old", "old", "added", "old", "old"],
    )
  })

  it("takes whole records within the limits, and a first one that is too large alone", () => {
    const backlog = new ReaderBacklog(0)
    for (const sequence of [1, 2, 3]) backlog.add(message(sequence, 100))
    assert.deepEqual(backlog.portion({ ...roomy, bytes: 250 }), { records: 2, bytes: 200 })
    assert.deepEqual(backlog.portion({ ...roomy, records: 1 }), { records: 1, bytes: 100 })
    assert.deepEqual(backlog.portion({ ...roomy, bytes: 50 }), { records: 1, bytes: 100 })
    assert.deepEqual(backlog.portion({ ...roomy, bytes: 50, alone: false }), { records: 0, bytes: 0 })
  })

  it("hands over every sequence that came once and in order, whatever comes and is taken", () => {
    const step = fc.oneof(
      fc.record({ skip: fc.integer({ min: -2, max: 3 }) }),
      fc.record({ take: fc.integer({ min: 1, max: 4 }) }),
      fc.constantFrom("pass" as const, "drop" as const),
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const backlog = new ReaderBacklog(0)
        const seen: number[] = []
        const came = new Set<number>()
        for (const one of steps) {
          if (one === "pass") backlog.passGap()
          else if (one === "drop") backlog.dropBehindGap()
          else if ("skip" in one) {
            const sequence = backlog.last + 1 + one.skip
            if (sequence > 0 && backlog.add(message(sequence)) !== "old") came.add(sequence)
          } else {
            const { records } = backlog.portion({ ...roomy, records: one.take })
            if (records > 0) seen.push(...backlog.take(records).map(({ sequence }) => sequence))
          }
          assert.ok(backlog.taken <= backlog.last)
        }
        assert.deepEqual(
          seen,
          [...new Set(seen)].sort((a, b) => a - b),
        )
        for (const sequence of seen) assert.ok(came.has(sequence))
      }),
    )
  })

  it("moves over an end without records, but not over records that wait", () => {
    const backlog = new ReaderBacklog(3)
    assert.equal(backlog.passTo(9), true)
    assert.equal(backlog.taken, 9)
    backlog.add(message(10))
    assert.equal(backlog.passTo(12), false)
    assert.equal(backlog.passTo(5), false)
  })
})

describe("the budget of a partition", () => {
  it("asks for what it may have, again when half of it is used up", () => {
    const budget = new ReaderBudget()
    budget.share = { records: 10, bytes: 100_000 }
    assert.deepEqual(budget.request(), { messages: 10, bytes: 100_000 })
    budget.pulled({ messages: 10, bytes: 100_000 })
    assert.equal(budget.request(), undefined)
    for (let came = 0; came < 10; came++) budget.arrived(100)
    assert.equal(budget.asked, false)
    assert.equal(budget.full, true, "nothing was taken yet")
    budget.left(4, 400)
    assert.equal(budget.request(), undefined)
    budget.left(1, 100)
    assert.deepEqual(budget.request(), { messages: 5, bytes: 99_500 })
  })

  it("asks again while half of its bytes are still to come, so that the server never waits for a request", () => {
    const budget = new ReaderBudget()
    budget.share = { records: 16_000, bytes: 1_000_000 }
    // What the server has open of each request: it serves them one after the other, and ends one whose bytes are used up.
    const open: { messages: number; bytes: number }[] = []
    const ask = (): void => {
      const request = budget.request()
      if (request === undefined) return
      budget.pulled(request)
      open.push({ messages: request.messages, bytes: request.bytes ?? Number.POSITIVE_INFINITY })
    }
    ask()
    let idle = 0
    for (let came = 0; came < 50_000; came++) {
      let pull = open[0]
      while (pull !== undefined && (pull.messages === 0 || pull.bytes < 350)) {
        if (pull.messages > 0) {
          budget.ended(pull.messages, pull.bytes)
          budget.tooLarge()
        }
        open.shift()
        pull = open[0]
      }
      if (pull === undefined) {
        idle++
        ask()
        continue
      }
      pull.messages--
      pull.bytes -= 350
      budget.arrived(350)
      budget.left(1, 350)
      ask()
    }
    assert.ok(idle <= 1, `the server had nothing to do ${idle} times`)
  })

  it("asks for a message alone and without a limit when it fits into no pull", () => {
    const budget = new ReaderBudget()
    budget.share = { records: 10, bytes: 20_000 }
    budget.pulled({ messages: 10, bytes: 20_000 })
    budget.ended(10, 20_000)
    budget.tooLarge()
    assert.deepEqual(budget.request(), { messages: 1, bytes: undefined })
    budget.pulled({ messages: 1, bytes: undefined })
    budget.arrived(300_000)
    assert.equal(budget.request(), undefined)
    budget.left(1, 300_000)
    assert.deepEqual(budget.request(), { messages: 10, bytes: 20_000 })
  })

  it("never has more than about twice its share, and asks for whole numbers that a server takes", () => {
    const step = fc.oneof(
      fc.integer({ min: 60, max: 5_000 }),
      fc.constantFrom("take" as const, "ended" as const, "lost" as const),
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const budget = new ReaderBudget()
        const share = { records: 50, bytes: 50_000 }
        budget.share = share
        let [open, waiting, bytes] = [0, 0, 0]
        for (const one of steps) {
          const request = budget.request()
          if (request !== undefined) {
            assert.ok(Number.isInteger(request.messages) && request.messages > 0)
            assert.ok(request.bytes === undefined || (Number.isInteger(request.bytes) && request.bytes > 0))
            budget.pulled(request)
            open += request.messages
          }
          assert.ok(open + waiting <= share.records)
          if (typeof one === "number" && open > 0) {
            budget.arrived(one)
            open--
            waiting++
            bytes += one
          } else if (one === "take") {
            budget.left(waiting, bytes)
            waiting = 0
            bytes = 0
          } else if (one === "ended") {
            budget.ended(undefined, undefined)
            open = 0
          } else if (one === "lost") {
            budget.lost()
            open = 0
          }
          assert.equal(budget.asked, open > 0)
        }
      }),
    )
  })

  it("shares bytes among partitions, and lets each have something", () => {
    assert.deepEqual(shareOf({ maxRecords: 500, maxBytes: 1_000_000 }, 10), { records: 500, bytes: 100_000 })
    assert.deepEqual(shareOf({ maxRecords: 1, maxBytes: 1 }, 100), { records: 1, bytes: 16_384 })
  })
})
