import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import { type Due, QueueDue } from "./queue-due.ts"

const dues = fc.array(fc.nat({ max: 50 })).map((times) => times.map((dueMs, i): Due => ({ lease: i + 1, dueMs })))

const inOrder = (list: readonly Due[]): Due[] => [...list].sort((a, b) => a.dueMs - b.dueMs || a.lease - b.lease)

function drained(heap: QueueDue, nowMs: number): Due[] {
  const taken: Due[] = []
  for (let due = heap.pop(nowMs); due !== undefined; due = heap.pop(nowMs)) taken.push(due)
  return taken
}

describe("What is over", () => {
  it("comes in the order of its time, of one time the oldest first, and nothing before", () => {
    fc.assert(
      fc.property(dues, fc.nat({ max: 60 }), (list, nowMs) => {
        const heap = new QueueDue()
        for (const due of list) heap.push(due)
        assert.equal(heap.nextMs, inOrder(list)[0]?.dueMs ?? Number.POSITIVE_INFINITY)
        const over = inOrder(list).filter(({ dueMs }) => dueMs <= nowMs)
        assert.deepEqual([...heap.over(nowMs)].sort(), over.map(({ lease }) => lease).sort())
        assert.deepEqual(drained(heap, nowMs), over)
        assert.equal(heap.size, list.length - over.length)
        assert.deepEqual(drained(heap, Number.POSITIVE_INFINITY), inOrder(list).slice(over.length))
      }),
    )
  })

  it("is forgotten but for what is to be kept, also between pushes", () => {
    fc.assert(
      fc.property(dues, dues, fc.func(fc.boolean()), (first, second, keeps) => {
        const heap = new QueueDue()
        for (const due of first) heap.push(due)
        const kept = new Set(first.map(({ lease }) => lease).filter((lease) => keeps(lease)))
        heap.keep(kept)
        for (const due of second) heap.push(due)
        const expected = [...first.filter(({ lease }) => kept.has(lease)), ...second]
        const times = (list: readonly Due[]): number[] => list.map(({ dueMs }) => dueMs)
        assert.deepEqual(times(drained(heap, 60)), times(inOrder(expected)))
      }),
    )
  })
})
