import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { CancelledError, FencedError } from "@millrace/contract"
import { failureOf, HandlerRig, keyed, laneOf, messages, prefixOf } from "./handler-rig.test-support.ts"

describe("a handler may", () => {
  test("be no promise at all", () => {
    const seen: bigint[] = []
    const rig = new HandlerRig({}, (message) => void seen.push(message.position.offset))
    rig.feed.put(0, ...messages("0", "1", "2"))
    rig.begin()
    assert.deepEqual(seen, [0n, 1n, 2n])
    assert.equal(prefixOf(rig), 3n)
  })

  test("answer any thenable, which counts once", async () => {
    const odd = {
      // biome-ignore lint/suspicious/noThenProperty: that is what is tested
      then(resolve: () => void, reject: (error: unknown) => void) {
        resolve()
        resolve()
        reject(new Error("late"))
      },
    }
    const rig = new HandlerRig({ concurrency: 2, order: "none" }, () => odd)
    rig.feed.put(0, ...messages("0", "1", "2"))
    rig.begin()
    await rig.settle()
    assert.deepEqual(laneOf(rig).told, [0n, 1n, 2n])
    assert.equal(rig.outcome, undefined)
  })

  for (const thrown of [undefined, null, "text", 7, Symbol("s"), Object.create(null), { retryable: true }]) {
    for (const how of ["throw", "reject"] as const) {
      test(`${how} what is no error: ${typeof thrown}`, async () => {
        const rig = new HandlerRig({}, () => {
          if (how === "reject") return Promise.reject(thrown)
          throw thrown
        })
        rig.feed.put(0, ...messages("0"))
        rig.begin()
        await rig.settle()
        const error = failureOf(rig)
        assert.equal(error.kind, "handler")
        assert.equal(error.cause, thrown)
        assert.match(error.message, /offset 0 of partition 0 of topic "s\/t"/)
        assert.equal(prefixOf(rig), 0n)
      })
    }
  }

  test("stop the run: nothing more starts, what runs finishes, and the rest comes again", async () => {
    const rig = new HandlerRig({ concurrency: 2, order: "none" })
    rig.feed.put(0, ...messages("0", "1", "2", "3"))
    rig.begin()
    rig.context("0").stop()
    await rig.finish("0")
    assert.equal(rig.outcome, undefined)
    assert.deepEqual(rig.started, ["0", "1"])
    await rig.finish("1")
    assert.deepEqual(rig.outcome, {})
    assert.equal(rig.feed.released, true)
    assert.equal(prefixOf(rig), 2n)
    assert.equal(rig.clock.timers, 0)
  })
})

describe("a failure", () => {
  test("stops the run once what runs has finished; nothing behind it starts, and it is not handled (A-11)", async () => {
    const rig = new HandlerRig({ concurrency: 2, order: "none" })
    rig.feed.put(0, ...messages("0", "1", "2"))
    rig.begin()
    await rig.fail("0", new Error("broken"))
    assert.equal(rig.outcome, undefined)
    await rig.finish("1")
    const error = failureOf(rig)
    assert.match(error.message, /the handler failed at offset 0 of partition 0 of topic "s\/t": broken/)
    assert.deepEqual(
      [error.context.offset, error.context.attempt, error.retryable, error.outcome],
      [0n, 1, false, "rejected"],
    )
    assert.deepEqual(laneOf(rig).told, [1n])
    assert.equal(prefixOf(rig), 0n)
    assert.equal(rig.feed.released, true)
    assert.deepEqual(rig.started, ["0", "1"])
    assert.equal(rig.clock.timers, 0)
  })

  test("waits for what runs no longer than drainTimeoutMs; then it counts no more", async () => {
    const rig = new HandlerRig({ concurrency: 2, order: "none", drainTimeoutMs: 500 })
    rig.feed.put(0, ...messages("0", "1"))
    rig.begin()
    const { signal } = rig.context("1")
    await rig.fail("0")
    await rig.clock.advance(499)
    assert.equal(rig.outcome, undefined)
    assert.equal(signal.aborted, false)
    await rig.clock.advance(1)
    assert.equal(failureOf(rig).context.offset, 0n)
    assert.equal(signal.aborted, true)
    await rig.finish("1")
    assert.deepEqual(laneOf(rig).told, [])
  })

  test("is skipped on request, and told", async () => {
    const told: [bigint | undefined, string][] = []
    const rig = new HandlerRig({
      onFailure: "skip",
      onError: (error, next) => void told.push([error.context.offset, next]),
    })
    rig.feed.put(0, ...messages("0", "1"))
    rig.begin()
    await rig.fail("0")
    await rig.finish("1")
    assert.equal(prefixOf(rig), 2n)
    assert.deepEqual(told, [[0n, "skip"]])
    assert.equal(rig.outcome, undefined)
  })

  test("of onError stops the run with what it threw, and the message is not handled", async () => {
    const broken = new Error("listener")
    const rig = new HandlerRig({
      onFailure: "skip",
      onError: () => {
        throw broken
      },
    })
    rig.feed.put(0, ...messages("0"))
    rig.begin()
    await rig.fail("0")
    assert.equal(rig.outcome?.error, broken)
    assert.equal(prefixOf(rig), 0n)
  })

  test("of an async onError ends the run too", async () => {
    const broken = new Error("listener")
    const rig = new HandlerRig({ onFailure: "skip", onError: () => Promise.reject(broken) as never })
    rig.feed.put(0, ...messages("0"))
    rig.begin()
    await rig.fail("0")
    await rig.settle()
    assert.equal(rig.outcome?.error, broken)
  })

  test("does not count when onError has moved the partition away from it", async () => {
    const rig = new HandlerRig({ onFailure: "skip", onError: () => rig.run.dropped(laneOf(rig)) })
    rig.feed.put(0, ...messages("0"))
    rig.begin()
    await rig.fail("0")
    assert.deepEqual(laneOf(rig).told, [])
    assert.equal(rig.outcome, undefined)
  })

  test("that no partition is about ends the run as it is", async () => {
    const rig = new HandlerRig()
    rig.begin()
    rig.feed.failure = new FencedError("gone")
    rig.feed.user?.ready()
    await rig.settle()
    assert.equal(failureOf(rig).kind, "fenced")
  })
})

describe("a retry", () => {
  const retry = { attempts: 3, backoffMs: 100, maxBackoffMs: 150 }

  test("comes after waits that double up to their cap, half of them random; the attempts are counted", async () => {
    const told: string[] = []
    const rig = new HandlerRig({ retry, onError: (error, next) => void told.push(`${error.context.attempt} ${next}`) })
    rig.feed.put(0, ...messages("0", "1"))
    rig.begin()
    assert.equal(rig.context("0").attempt, 1)
    await rig.fail("0")
    assert.deepEqual(rig.texts, [], "its partition waits with it")
    await rig.clock.advance(49)
    assert.equal(rig.started.length, 1)
    await rig.clock.advance(51)
    assert.equal(rig.context("0").attempt, 2)
    await rig.fail("0")
    await rig.clock.advance(74)
    assert.equal(rig.started.length, 2)
    await rig.clock.advance(76)
    assert.equal(rig.context("0").attempt, 3)
    await rig.fail("0")
    assert.match(failureOf(rig).message, /in attempt 3 of 3: no/)
    assert.deepEqual(told, ["1 retry", "2 retry", "3 stop"])
    assert.equal(rig.clock.timers, 0)
  })

  test("keeps its key back and gives its place to others", async () => {
    const rig = new HandlerRig({ concurrency: 1, order: "key", retry })
    rig.feed.put(0, ...keyed("a0", "a1", "b0"))
    rig.begin()
    await rig.fail("a0")
    assert.deepEqual(rig.texts, ["b0"])
    await rig.clock.advance(100)
    assert.deepEqual(rig.texts, ["b0"], "its place is taken for now")
    await rig.finish("b0")
    assert.deepEqual(rig.texts, ["a0"])
    assert.equal(prefixOf(rig), 0n)
    await rig.finish("a0")
    await rig.finish("a1")
    assert.equal(prefixOf(rig), 3n)
  })

  test("does not come for what says that it is of no use", async () => {
    const rig = new HandlerRig({ retry })
    rig.feed.put(0, ...messages("0"))
    rig.begin()
    await rig.fail("0", Object.assign(new Error("wrong"), { retryable: false }))
    assert.equal(failureOf(rig).context.attempt, 1)
  })

  test("is given up when the run ends: no timer stays, and the message is not handled", async () => {
    const rig = new HandlerRig({ retry })
    rig.feed.put(0, ...messages("0"))
    rig.begin()
    await rig.fail("0")
    assert.equal(rig.clock.timers, 1)
    await rig.run.ending(1000)
    await rig.settle()
    assert.deepEqual(rig.outcome, {})
    assert.equal(rig.clock.timers, 0)
    assert.equal(prefixOf(rig), 0n)
  })
})

describe("a signal", () => {
  test("ends the run with CancelledError once what runs has finished, and leaves no listener", async () => {
    const stop = new AbortController()
    const rig = new HandlerRig({ signal: stop.signal })
    rig.feed.put(0, ...messages("0", "1"))
    rig.begin()
    stop.abort("enough")
    await rig.settle()
    assert.equal(rig.outcome, undefined)
    await rig.finish("0")
    assert.ok(failureOf(rig) instanceof CancelledError)
    assert.equal(failureOf(rig).cause, "enough")
    assert.equal(prefixOf(rig), 1n)
    assert.deepEqual(rig.started, ["0"])
  })

  test("that has fired already starts nothing", async () => {
    const rig = new HandlerRig({ signal: AbortSignal.abort() })
    rig.feed.put(0, ...messages("0"))
    rig.begin()
    await rig.settle()
    assert.ok(failureOf(rig) instanceof CancelledError)
    assert.deepEqual(rig.started, [])
  })
})
