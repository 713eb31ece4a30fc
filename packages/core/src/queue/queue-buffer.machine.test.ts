import assert from "node:assert/strict"
import { describe, test } from "node:test"
import fc from "fast-check"
import { PrefetchMachine } from "./prefetch.machine.ts"
import { type HeldMessage, QueueBuffer } from "./queue-buffer.machine.ts"

class Held implements HeldMessage {
  readonly waitMs: number
  readonly cameMs: number
  readonly id: number
  readonly bytes = 10
  sinceMs: number
  extending = false
  lost = false
  /** When the queue hands it out again, by its own clock. */
  queueDeadlineMs: number
  where: "buffer" | "running" | "gone" = "buffer"

  constructor(id: number, nowMs: number, waitMs: number, earlyMs: number) {
    this.id = id
    this.waitMs = waitMs
    this.cameMs = nowMs - earlyMs
    this.sinceMs = nowMs - earlyMs
    this.queueDeadlineMs = nowMs + waitMs
  }
}

type Step =
  | { readonly kind: "pass"; readonly ms: number }
  | { readonly kind: "put"; readonly waitMs: number; readonly earlyMs: number }
  | { readonly kind: "take" }
  | { readonly kind: "done" }
  | { readonly kind: "putBack" }
  | { readonly kind: "look"; readonly busy: boolean }
  | { readonly kind: "answer"; readonly how: boolean | undefined }

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant("pass" as const), ms: fc.integer({ min: 0, max: 700 }) }),
  fc.record({
    kind: fc.constant("put" as const),
    waitMs: fc.integer({ min: 100, max: 1000 }),
    earlyMs: fc.integer({ min: 0, max: 100 }),
  }),
  fc.record({ kind: fc.constant("take" as const) }),
  fc.record({ kind: fc.constant("done" as const) }),
  fc.record({ kind: fc.constant("putBack" as const) }),
  fc.record({ kind: fc.constant("look" as const), busy: fc.boolean() }),
  fc.record({ kind: fc.constant("answer" as const), how: fc.constantFrom(true, false, undefined) }),
)

describe("the buffer", () => {
  test("hands nothing over that the queue may hand out again, keeps each message in one place, in order, and counts its bytes", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), fc.boolean(), (steps, autoExtend) => {
        const buffer = new QueueBuffer<Held>({ autoExtend, maxExtendMs: undefined })
        const all: Held[] = []
        const asked: { message: Held; atMs: number }[] = []
        let nowMs = 0
        let last: Held | undefined
        for (const one of steps) {
          if (one.kind === "pass") nowMs += one.ms
          else if (one.kind === "put") {
            const message = new Held(all.length, nowMs, one.waitMs, Math.min(one.earlyMs, one.waitMs / 8))
            all.push(message)
            buffer.put(message)
          } else if (one.kind === "take") {
            const message = buffer.take()
            const oldest = all.find(({ where }) => where === "buffer")
            assert.equal(message, oldest)
            if (message === undefined) continue
            message.where = "gone"
            last = message
            if (!buffer.isFresh(message, nowMs)) continue
            assert.ok(nowMs + message.waitMs / 4 <= message.queueDeadlineMs + 1e-6, "enough of its wait is left")
            message.where = "running"
            buffer.run(message)
          } else if (one.kind === "putBack") {
            if (last?.where !== "running") continue
            const first = all.find(({ where }) => where === "buffer")
            if (first !== undefined && first.id < last.id) continue
            buffer.done(last)
            buffer.putBack(last)
            last.where = "buffer"
          } else if (one.kind === "done") {
            const message = all.find(({ where }) => where === "running")
            if (message === undefined) continue
            assert.equal(buffer.done(message), true)
            message.where = "gone"
          } else if (one.kind === "look") {
            const { extend, release, dropped, lost } = buffer.look(nowMs, one.busy)
            for (const message of [...release, ...dropped]) {
              assert.equal(message.where, "buffer")
              message.where = "gone"
            }
            for (const message of lost) {
              assert.equal(message.where, "running")
              message.where = "gone"
            }
            for (const message of extend) {
              assert.notEqual(message.where, "gone")
              assert.ok(message.where === "buffer" || autoExtend)
              asked.push({ message, atMs: nowMs })
            }
            for (const message of all) {
              if (message.where === "buffer") assert.ok(buffer.isFresh(message, nowMs))
              if (message.where === "running") assert.ok(message.sinceMs + message.waitMs > nowMs)
            }
          } else {
            const request = asked.shift()
            if (request === undefined) continue
            const { message, atMs } = request
            // The queue begins the wait anew at some time between the question and the answer.
            if (one.how === true) message.queueDeadlineMs = nowMs + message.waitMs
            buffer.extended(message, atMs, one.how)
          }
          const buffered = all.filter(({ where }) => where === "buffer").length
          const running = all.filter(({ where }) => where === "running").length
          assert.deepEqual([buffer.count, buffer.bytes, buffer.running], [buffered, buffered * 10, running])
        }
      }),
      { numRuns: 500 },
    )
  })

  test("with looks in time and answers that come, a running message is never lost before its bound", () => {
    fc.assert(
      fc.property(fc.integer({ min: 50, max: 5000 }), fc.integer({ min: 1, max: 9 }), (waitMs, waits) => {
        const buffer = new QueueBuffer<Held>({ autoExtend: true, maxExtendMs: undefined })
        const message = new Held(0, 0, waitMs, waitMs / 8)
        buffer.run(message)
        const everyMs = buffer.lookAfterMs(waitMs) as number
        for (let nowMs = everyMs; nowMs < waits * waitMs; nowMs += everyMs) {
          const { extend, lost } = buffer.look(nowMs, true)
          assert.deepEqual(lost, [])
          for (const one of extend) buffer.extended(one, nowMs, true)
        }
      }),
    )
  })

  test("is looked at only while it holds something that has a wait", () => {
    const buffer = new QueueBuffer<Held>({ autoExtend: true, maxExtendMs: undefined })
    assert.equal(buffer.lookAfterMs(600), undefined)
    buffer.put(new Held(0, 0, 600, 0))
    assert.equal(buffer.lookAfterMs(600), 100)
    assert.equal(buffer.lookAfterMs(Number.POSITIVE_INFINITY), undefined)
  })
})

describe("how many are taken ahead", () => {
  test("never more than what a quarter of the wait handles at the slowest pace seen last, nor more than allowed", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 500 }),
        fc.integer({ min: 10, max: 60_000 }),
        fc.array(fc.tuple(fc.integer({ min: 1, max: 100 }), fc.double({ min: 0, max: 10_000, noNaN: true })), {
          minLength: 1,
        }),
        (most, waitMs, seen) => {
          const machine = new PrefetchMachine(most, waitMs)
          assert.equal(machine.ahead, 0)
          for (const [count, tookMs] of seen) {
            const before = machine.ahead
            machine.handled(count, tookMs)
            assert.ok(machine.ahead <= most)
            assert.ok(machine.ahead <= Math.max(4, before * 2))
            assert.ok(machine.ahead * (tookMs / count) <= waitMs / 4 + 1e-6)
          }
        },
      ),
    )
  })

  test("a pace that gets better counts bit by bit", () => {
    const machine = new PrefetchMachine(256, 2000)
    machine.handled(1, 1500)
    assert.equal(machine.ahead, 0)
    for (let n = 0; n < 200; n++) machine.handled(1, 0.01)
    assert.equal(machine.ahead, 256)
    machine.handled(1, 1500)
    assert.equal(machine.ahead, 0)
  })
})
