import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { CancelledError, DecodeError, TimeoutError } from "@millrace/contract"
import type { HandlerContext } from "./handler-context.ts"
import { failureOf, HandlerRig, keyed, laneOf, messages, prefixOf } from "./handler-rig.test-support.ts"

describe("a partition that goes", () => {
  test("fires the signal of its handlers; what they do counts no more, and the others go on", async () => {
    const rig = new HandlerRig({ concurrency: 4, partitions: 2, order: "key" })
    rig.feed.put(0, ...keyed("a0", "a1"))
    rig.feed.put(1, ...keyed("b0"))
    rig.begin()
    const old = laneOf(rig)
    const { signal } = rig.context("a0")
    rig.feed.lose(0)
    assert.equal(signal.aborted, true)
    assert.ok(signal.reason instanceof CancelledError)
    assert.equal(rig.context("b0").signal.aborted, false)
    await rig.finish("a0", "b0")
    assert.deepEqual(old.told, [])
    assert.equal(prefixOf(rig, 1), 1n)
    assert.deepEqual(rig.started, ["a0", "b0"], "what was taken of it does not start")
  })

  test("fires also a signal that is looked at only then", () => {
    const rig = new HandlerRig()
    rig.feed.put(0, ...messages("0"))
    rig.begin()
    rig.feed.lose(0)
    assert.equal(rig.context("0").signal.aborted, true)
  })

  test("takes the failures of its handlers with it", async () => {
    const rig = new HandlerRig({ concurrency: 2 })
    rig.feed.put(0, ...messages("0"))
    rig.begin()
    rig.feed.lose(0)
    await rig.fail("0")
    assert.equal(rig.outcome, undefined)
  })

  test("and comes back under the same handle keeps its order behind the handler that still runs", async () => {
    const rig = new HandlerRig({ concurrency: 4 })
    rig.feed.put(0, ...messages("0"))
    rig.begin()
    rig.run.dropped(laneOf(rig))
    rig.feed.put(0, ...messages("again"))
    assert.deepEqual(rig.texts, ["0"])
    await rig.finish("0")
    assert.deepEqual(rig.texts, ["again"])
    assert.deepEqual(laneOf(rig).told, [])
  })

  test("drains: what runs finishes and counts, nothing more of it starts", async () => {
    const rig = new HandlerRig({ concurrency: 4, order: "key", retry: { attempts: 5, backoffMs: 1 } })
    rig.feed.put(0, ...keyed("a0", "a1", "b0"))
    rig.begin()
    laneOf(rig).draining = true
    let over = false
    void rig.run.draining(laneOf(rig)).then(() => {
      over = true
    })
    await rig.finish("a0")
    assert.equal(over, false)
    await rig.fail("b0")
    await rig.clock.advance(100)
    assert.equal(over, true, "a failure is not tried again here")
    assert.deepEqual(rig.started, ["a0", "b0"])
    assert.equal(prefixOf(rig), 1n)
    assert.equal(rig.clock.timers, 0)
  })

  test("with nothing running is handed over at once, also when something waits", async () => {
    const rig = new HandlerRig({ concurrency: 1, order: "key", retry: { attempts: 2, backoffMs: 1000 } })
    rig.feed.put(0, ...keyed("a0", "a1"))
    rig.begin()
    await rig.fail("a0")
    await rig.run.draining(laneOf(rig))
    assert.equal(rig.clock.timers, 0)
  })
})

describe("shutdown", () => {
  test("waits for what runs; what waited does not start", async () => {
    const rig = new HandlerRig({ concurrency: 2, order: "key" })
    rig.feed.put(0, ...keyed("a0", "a1", "b0"))
    rig.begin()
    const ending = rig.run.ending(1000)
    await rig.finish("a0")
    await rig.finish("b0")
    await ending
    await rig.settle()
    assert.deepEqual(rig.outcome, {})
    assert.deepEqual(rig.started, ["a0", "b0"])
    assert.equal(rig.clock.timers, 0)
    assert.equal(rig.feed.released, false, "the consumer sees to the rest")
  })

  test("names what had not finished in time, fires its signal, and what comes of it counts no more", async () => {
    const rig = new HandlerRig({ concurrency: 9, order: "none", drainTimeoutMs: 1 })
    rig.feed.put(0, ...messages(..."0123456"))
    rig.begin()
    const ending = rig.run.ending(1000)
    await rig.finish("3")
    let late: unknown
    ending.catch((error) => {
      late = error
    })
    await rig.clock.advance(999)
    assert.equal(rig.outcome, undefined)
    await rig.clock.advance(1)
    assert.ok(late instanceof TimeoutError)
    assert.equal(late.context.running, 6)
    assert.match(
      late.message,
      /6 handlers had not finished after 1000 ms: offset 0 of partition 0 .*; offset 5 .* and 1 more$/,
    )
    assert.deepEqual(rig.outcome, {})
    assert.equal(rig.context("0").signal.aborted, true)
    await rig.finish("0", "1")
    assert.deepEqual(laneOf(rig).told, [3n])
    assert.equal(rig.clock.timers, 0)
  })

  test("with a failure on the way rejects the run with it", async () => {
    const rig = new HandlerRig()
    rig.feed.put(0, ...messages("0"))
    rig.begin()
    const ending = rig.run.ending(1000)
    await rig.fail("0")
    await ending
    assert.equal(failureOf(rig).kind, "handler")
  })

  test("that a handler waits for does not wait for that handler, whose message is not handled", async () => {
    const ended: string[] = []
    const handler = async (_: unknown, context: HandlerContext): Promise<void> => {
      await Promise.resolve()
      if (context.position.offset !== 1n) return
      await rig.run.ending(1000)
      ended.push("ending")
    }
    const rig: HandlerRig = new HandlerRig({}, handler)
    rig.feed.put(0, ...messages("0", "1", "2"))
    rig.begin()
    await rig.settle()
    assert.deepEqual(ended, ["ending"])
    assert.deepEqual(rig.outcome, {})
    assert.deepEqual(laneOf(rig).told, [0n])
    assert.equal(rig.clock.timers, 0)
  })
})

describe("what cannot be read", () => {
  const poison = (rig: HandlerRig, offset: bigint): DecodeError => {
    const message = laneOf(rig).put({ payload: Uint8Array.of(1) })
    laneOf(rig).left.pop()
    return new DecodeError("does not decrypt", { context: { ...laneOf(rig).partition, offset, message } })
  }
  const damaged = (rig: HandlerRig): DecodeError =>
    new DecodeError("a batch is damaged", { context: { ...laneOf(rig).partition } })

  test("stops the run with its own error", async () => {
    const rig = new HandlerRig()
    laneOf(rig).left.push(poison(rig, 0n))
    rig.begin()
    await rig.settle()
    assert.equal(failureOf(rig).kind, "decode")
    assert.equal(prefixOf(rig), 0n)
  })

  test("is skipped like a message", async () => {
    const rig = new HandlerRig({ onFailure: "skip" })
    laneOf(rig).left.push(poison(rig, 0n))
    rig.feed.put(0, ...messages("1"))
    rig.begin()
    await rig.finish("1")
    assert.equal(prefixOf(rig), 2n)
  })

  test("as a whole batch is passed once everything before it is handled", async () => {
    const rig = new HandlerRig({ onFailure: "skip", concurrency: 4, order: "none" })
    rig.feed.put(0, ...messages("0", "1"))
    laneOf(rig).left.push(damaged(rig))
    rig.begin()
    await rig.finish("1")
    assert.deepEqual(rig.feed.skipped, [])
    await rig.finish("0")
    assert.deepEqual(rig.feed.skipped, [laneOf(rig)])
  })

  test("as a whole batch is not passed when what came before it failed", async () => {
    const rig = new HandlerRig({ concurrency: 4, order: "none" })
    rig.feed.put(0, ...messages("0"))
    laneOf(rig).left.push(damaged(rig))
    rig.begin()
    await rig.fail("0")
    assert.equal(failureOf(rig).kind, "handler")
    assert.deepEqual(rig.feed.skipped, [])
  })
})
