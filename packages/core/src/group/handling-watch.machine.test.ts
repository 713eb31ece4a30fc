import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { HandlingWatchMachine } from "./handling-watch.machine.ts"

const key = { name: "a" }
const other = { name: "b" }

test("work that looks the same for the time-out is overdue, at most two looks late", () => {
  const machine = new HandlingWatchMachine(1000)
  let found: number | undefined
  for (let atMs = 0; found === undefined; atMs += machine.intervalMs) {
    if (machine.look(atMs, [{ key, mark: 7n }]) !== undefined) found = atMs
  }
  assert.ok(found >= 1000 && found <= 1000 + 2 * machine.intervalMs, `found at ${found}`)
})

test("work that moves on, or ends and begins, is not", () => {
  const machine = new HandlingWatchMachine(1000)
  for (let step = 0; step < 100; step++) {
    assert.equal(machine.look(step * 100, [{ key, mark: Math.floor(step / 9) }]), undefined)
  }
  for (let step = 100; step < 200; step++) {
    assert.equal(machine.look(step * 100, step % 9 === 0 ? [] : [{ key, mark: 1 }]), undefined)
  }
})

test("of several the one that takes longest is told", () => {
  const machine = new HandlingWatchMachine(1000)
  machine.look(0, [{ key: other, mark: 1 }])
  for (let atMs = 100; atMs < 1000; atMs += 100) {
    assert.equal(
      machine.look(atMs, [
        { key, mark: 1 },
        { key: other, mark: 1 },
      ]),
      undefined,
    )
  }
  assert.equal(
    machine.look(1000, [
      { key, mark: 1 },
      { key: other, mark: 1 },
    ])?.key,
    other,
  )
})

test("time in which the process stood still does not count beyond two looks", () => {
  const machine = new HandlingWatchMachine(1000)
  machine.look(0, [{ key, mark: 1 }])
  assert.equal(machine.look(600_000, [{ key, mark: 1 }]), undefined)
})

test("whenever looks come: never before the time-out, whatever the marks are", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.integer({ min: 0, max: 400 }), fc.nat(2)), { maxLength: 80 }), (looks) => {
      const machine = new HandlingWatchMachine(1000)
      let atMs = 0
      let since = 0
      let last: number | undefined
      for (const [passed, mark] of looks) {
        atMs += passed
        if (mark !== last) since = atMs
        last = mark
        const overdue = machine.look(atMs, [{ key, mark }])
        if (overdue !== undefined) assert.ok(atMs - since >= 1000)
      }
    }),
  )
})
