import assert from "node:assert/strict"
import { test } from "node:test"
import { VirtualClock } from "@millrace/runtime"
import { BufferBudget } from "./buffer-budget.ts"

function budgetOf(limitBytes: number): BufferBudget {
  return new BufferBudget(new VirtualClock(), {
    owner: "the buffer",
    option: "maxBufferBytes",
    limitBytes,
    failureMode: "block",
    blockTimeoutMs: 0,
  })
}

test("a send that gives room back while it enters is in before the next one enters", async () => {
  const budget = budgetOf(10)
  assert.ok(budget.tryTake(10))
  const steps: string[] = []
  const first = budget.take(4, () => {
    steps.push("first begins")
    // What was open for another route is closed, and has settled long ago.
    budget.release(3)
    steps.push("first ends")
  })
  const rest = ["second", "third"].map((name) => budget.take(3, () => void steps.push(name)))
  budget.release(7)
  await Promise.all([first, ...rest])
  assert.deepEqual(steps, ["first begins", "first ends", "second", "third"])
  assert.equal(budget.usedBytes, 10)
})

test("room that is given back while somebody enters is not forgotten", async () => {
  const budget = budgetOf(10)
  assert.ok(budget.tryTake(10))
  const first = budget.take(10, () => budget.release(10))
  const second = budget.take(10, () => {})
  budget.release(10)
  await Promise.all([first, second])
  assert.equal(budget.usedBytes, 10)
  assert.equal(budget.waiting, 0)
})

test("an enter that throws gives its room back to the next", async () => {
  const budget = budgetOf(10)
  assert.ok(budget.tryTake(10))
  const first = budget.take(10, () => {
    throw new Error("no")
  })
  const second = budget.take(10, () => "in")
  budget.release(10)
  await assert.rejects(first, /no/)
  assert.equal(await second, "in")
  assert.equal(budget.usedBytes, 10)
})
