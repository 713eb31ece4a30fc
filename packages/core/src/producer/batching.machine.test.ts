/** When a batching producer flushes: seed 000, "Batching producers", and table 1.4 of the options. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import fc from "fast-check"
import { BatchingMachine, type BatchingStep } from "./batching.machine.ts"

const limits = { maxRecords: 3, maxBytes: 100, lingerMs: 10 }
const kinds = (...steps: BatchingStep[]): string[] => steps.map(({ kind }) => kind)

describe("empty", () => {
  test("the first record sets the timer to the next tick of the interval since the start", () => {
    const machine = new BatchingMachine(limits, 1000)
    assert.deepEqual(machine.queued(1, 1000), { kind: "setTimer", delayMs: 10 })
    const late = new BatchingMachine(limits, 1000)
    assert.deepEqual(late.queued(1, 1027), { kind: "setTimer", delayMs: 3 })
  })

  test("a record that is as large as the limit flushes at once, without a timer", () => {
    assert.deepEqual(new BatchingMachine(limits, 0).queued(100, 0), { kind: "flush", cancelTimer: false })
  })

  test("there is nothing to drain, and a late timer does nothing", () => {
    const machine = new BatchingMachine(limits, 0)
    assert.deepEqual(kinds(machine.drain(), machine.expired()), ["nothing", "nothing"])
  })
})

describe("waiting", () => {
  test("the last record that fits trips the limit of records", () => {
    const machine = new BatchingMachine(limits, 0)
    machine.queued(1, 0)
    assert.deepEqual(kinds(machine.queued(1, 1)), ["nothing"])
    assert.deepEqual(machine.queued(1, 2), { kind: "flush", cancelTimer: true })
    assert.equal(machine.records, 0)
  })

  test("the limit of bytes counts payload, and trips when it is reached", () => {
    const machine = new BatchingMachine(limits, 0)
    machine.queued(60, 0)
    assert.deepEqual(machine.queued(40, 0), { kind: "flush", cancelTimer: true })
  })

  test("the timer flushes", () => {
    const machine = new BatchingMachine(limits, 0)
    machine.queued(1, 0)
    assert.deepEqual(machine.expired(), { kind: "flush", cancelTimer: false })
  })

  test("a drain flushes and cancels the timer", () => {
    const machine = new BatchingMachine(limits, 0)
    machine.queued(1, 0)
    assert.deepEqual(machine.drain(), { kind: "flush", cancelTimer: true })
  })
})

describe("overdue", () => {
  const overdue = (): BatchingMachine => {
    const machine = new BatchingMachine(limits, 0)
    machine.queued(100, 0)
    machine.queued(1, 0)
    assert.deepEqual(kinds(machine.expired()), ["nothing"])
    return machine
  }

  test("what the timer cannot send during a flush goes out when that has landed", () => {
    const machine = overdue()
    machine.queued(1, 20)
    assert.deepEqual(machine.landed(), { kind: "flush", cancelTimer: false })
    assert.deepEqual(kinds(machine.landed()), ["nothing"])
  })

  test("a limit still trips inline, and then nothing is left for the landing", () => {
    const machine = overdue()
    machine.queued(1, 20)
    assert.deepEqual(machine.queued(1, 20), { kind: "flush", cancelTimer: false })
    assert.deepEqual(kinds(machine.landed(), machine.landed()), ["nothing", "nothing"])
  })

  test("it waits for every flush that was cut before", () => {
    const machine = overdue()
    machine.drain()
    machine.queued(1, 20)
    machine.expired()
    assert.deepEqual(kinds(machine.landed()), ["nothing"])
    assert.deepEqual(kinds(machine.landed()), ["flush"])
  })
})

test("whatever happens: no batch passes the limits, no record is left without a timer, a drain or a landing that takes it", () => {
  const event = fc.oneof(
    fc.record({ kind: fc.constant("queued" as const), bytes: fc.integer({ min: 0, max: 120 }) }),
    fc.constantFrom({ kind: "tick" as const }, { kind: "landed" as const }, { kind: "drain" as const }),
  )
  fc.assert(
    fc.property(fc.array(event, { maxLength: 60 }), (events) => {
      const machine = new BatchingMachine(limits, 0)
      let timerDue: number | undefined
      let waiting: number[] = []
      let underWay = 0
      let now = 0
      const obey = (step: BatchingStep): void => {
        if (step.kind === "setTimer") {
          assert.equal(timerDue, undefined)
          assert.ok(step.delayMs > 0 && step.delayMs <= limits.lingerMs)
          timerDue = now + step.delayMs
          assert.ok(timerDue % limits.lingerMs < 1e-6)
        } else if (step.kind === "flush") {
          assert.ok(waiting.length > 0 && waiting.length <= limits.maxRecords)
          const bytes = waiting.slice(0, -1).reduce((sum, each) => sum + each, 0)
          assert.ok(bytes < limits.maxBytes, "all but the last stay below the limit")
          if (step.cancelTimer) timerDue = undefined
          waiting = []
          underWay++
        }
      }
      for (const next of events) {
        if (next.kind === "queued") {
          now += 1
          waiting.push(next.bytes)
          obey(machine.queued(next.bytes, now))
        } else if (next.kind === "tick" && timerDue !== undefined) {
          now = timerDue
          timerDue = undefined
          obey(machine.expired())
        } else if (next.kind === "landed" && underWay > 0) {
          underWay--
          obey(machine.landed())
        } else if (next.kind === "drain") {
          obey(machine.drain())
          assert.equal(waiting.length, 0)
        }
        assert.equal(machine.records, waiting.length)
        if (waiting.length > 0) assert.ok(timerDue !== undefined || underWay > 0, "records wait for nothing")
      }
    }),
  )
})
