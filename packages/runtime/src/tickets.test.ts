import assert from "node:assert/strict"
import { test } from "node:test"
import { Signal } from "./signal.ts"
import { Tickets } from "./tickets.ts"

test("tickets settle by number, once", async () => {
  const tickets = new Tickets()
  const [one, other, last] = [tickets.issue(), tickets.issue(), tickets.issue()]
  assert.equal(new Set([one.ticket, other.ticket, last.ticket]).size, 3)
  tickets.settle([one.ticket, last.ticket], undefined)
  tickets.settle([other.ticket, one.ticket], new Error("no"))
  await one.promise
  await last.promise
  await assert.rejects(other.promise, /no/)
})

test("a signal wakes all who wait, and is not kept for those who come later", async () => {
  const signal = new Signal()
  signal.wake()
  let woken = 0
  const count = (): void => {
    woken++
  }
  const waits = [signal.next().then(count), signal.next().then(count)]
  await Promise.resolve()
  assert.equal(woken, 0)
  signal.wake()
  await Promise.all(waits)
  assert.equal(woken, 2)
})
