/** `consumer.run` over the whole consumer: what is stored, and how it ends. */
import assert from "node:assert/strict"
import { AsyncLocalStorage } from "node:async_hooks"
import { describe, test } from "node:test"
import { ClosedError, InvalidError, type MillraceError, TimeoutError } from "@millrace/contract"
import { FakeClient, textOf } from "../consumer/fake-session.test-support.ts"
import type { Message } from "../record/message.ts"
import { open, running } from "./running-consumer.test-support.ts"

const kinds = ["polling", "all", "each"] as const

describe("what is stored", () => {
  for (const kind of kinds) {
    test(`policy ${kind}: of ten messages of which number 5 fails, five are stored (A-11)`, async () => {
      const client = new FakeClient()
      client.put(0, 10)
      const consumer = open(client, { commitPolicy: { kind }, batchLength: 3 })
      const seen: string[] = []
      const state = running(consumer, async (message) => {
        seen.push(textOf(message))
        if (textOf(message) === "5") throw new Error("no")
      })
      await client.clock.advance(100)
      assert.equal((state.done as MillraceError).context.offset, 5n)
      await consumer.shutdown()
      assert.equal(client.storedNext("worker"), 5n)
      assert.deepEqual(seen, ["0", "1", "2", "3", "4", "5"])
      const again = open(client)
      assert.equal(textOf((await again.next()).value as Message), "5")
      await again.shutdown()
    })
  }

  test("policy disabled: nothing but what the handler commits (A-11)", async () => {
    const client = new FakeClient()
    client.put(0, 3)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    running(consumer, async (message) => {
      if (textOf(message) === "1") await consumer.commit(message)
    })
    await client.clock.advance(100)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 2n)
  })

  test("never goes past what is open, whatever finishes first", async () => {
    const client = new FakeClient()
    client.put(0, 10)
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    const first = Promise.withResolvers<void>()
    let handled = 0
    running(
      consumer,
      async (message) => {
        if (textOf(message) === "0") await first.promise
        handled++
      },
      { concurrency: 4, order: "none" },
    )
    await client.clock.advance(100)
    assert.equal(handled, 9)
    assert.equal(client.storedNext("worker"), undefined)
    first.resolve()
    await client.clock.advance(100)
    assert.equal(client.storedNext("worker"), 10n)
    await consumer.shutdown()
  })

  test("after a failure the failed message comes again to the next run", async () => {
    const client = new FakeClient()
    client.put(0, 4)
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    let broken = true
    const seen: string[] = []
    const handler = async (message: Message): Promise<void> => {
      seen.push(textOf(message))
      if (broken && textOf(message) === "1") throw new Error("no")
    }
    const first = running(consumer, handler)
    await client.clock.advance(100)
    assert.equal(first.ended, true)
    broken = false
    running(consumer, handler)
    await client.clock.advance(100)
    assert.deepEqual(seen, ["0", "1", "1", "2", "3"])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 4n)
  })
})

describe("the end", () => {
  test("shutdown waits for what runs, stores it, and then the run resolves", async () => {
    const client = new FakeClient()
    client.put(0, 3)
    const consumer = open(client)
    const work = Promise.withResolvers<void>()
    const state = running(consumer, () => work.promise)
    await client.clock.advance(10)
    const end = consumer.shutdown()
    await client.clock.advance(10)
    assert.equal(state.ended, false)
    work.resolve()
    await client.settle()
    await end
    assert.equal(client.storedNext("worker"), 1n)
    await client.settle()
    assert.deepEqual(state, { ended: true })
    assert.equal(client.clock.timers, 0)
  })

  test("shutdown with a handler that never settles fails in time, with the position; the signal fires", async () => {
    const client = new FakeClient()
    client.put(0, 3)
    const consumer = open(client)
    let signal: AbortSignal | undefined
    const state = running(consumer, (_, context) => {
      signal = context.signal
      return new Promise(() => {})
    })
    await client.clock.advance(10)
    let late: unknown
    consumer.shutdown({ timeoutMs: 700 }).catch((error) => {
      late = error
    })
    await client.clock.advance(700)
    assert.ok(late instanceof TimeoutError)
    assert.match(late.message, /1 handler had not finished after 700 ms: offset 0 of partition 0/)
    assert.equal(signal?.aborted, true)
    assert.deepEqual(state, { ended: true })
    assert.equal(client.storedNext("worker"), undefined)
    assert.equal(client.clock.timers, 0)
    assert.equal(client.owned.size, 0)
  })

  test("shutdown that a handler awaits answers at once; its message counts, those behind it do not come (A-04)", async () => {
    const client = new FakeClient()
    client.put(0, 10)
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    const seen: string[] = []
    const state = running(consumer, async (message) => {
      seen.push(textOf(message))
      if (textOf(message) !== "3") return
      await Promise.resolve()
      await consumer.shutdown()
      seen.push("on")
    })
    await client.clock.advance(100)
    assert.deepEqual(seen, ["0", "1", "2", "3", "on"])
    assert.deepEqual(state, { ended: true })
    assert.equal(client.storedNext("worker"), 4n)
    assert.equal(client.clock.timers, 0)
  })

  test("a shutdown that a handler has called and that fails is told by the run", async () => {
    const client = new FakeClient()
    client.put(0, 1)
    const consumer = open(client)
    const state = running(consumer, async () => {
      await consumer.shutdown({ timeoutMs: 50 })
      await new Promise(() => {})
    })
    await client.clock.advance(60)
    assert.ok(state.done instanceof TimeoutError)
  })

  test("the client's close that a handler awaits does not wait for it; its message comes again", async () => {
    const client = new FakeClient()
    client.put(0, 3)
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    let closed = false
    const state = running(consumer, async (message) => {
      if (textOf(message) !== "1") return
      for (const owned of [...client.owned]) await owned.shutdown({ timeoutMs: 5000 })
      closed = true
    })
    await client.clock.advance(100)
    assert.equal(closed, true)
    assert.deepEqual(state, { ended: true })
    assert.equal(client.storedNext("worker"), 1n)
    assert.equal(client.clock.timers, 0)
  })

  test("context.stop leaves the consumer open", async () => {
    const client = new FakeClient()
    client.put(0, 5)
    const consumer = open(client)
    await consumer.run((message, context) => {
      if (textOf(message) === "1") context.stop()
    })
    assert.equal(textOf((await consumer.next()).value as Message), "2")
    await consumer.shutdown()
  })

  test("two runs at once, a read beside a run, a run of nothing, and one after the shutdown are refused", async () => {
    const client = new FakeClient()
    const consumer = open(client)
    await assert.rejects(consumer.run(undefined as never), InvalidError)
    running(consumer, () => {})
    await assert.rejects(
      consumer.run(() => {}),
      InvalidError,
    )
    await assert.rejects(consumer.next(), InvalidError)
    await consumer.shutdown()
    await assert.rejects(
      consumer.run(() => {}),
      ClosedError,
    )
  })
})

describe("inside a handler", () => {
  test("seek fires its signal, and reading goes on there", async () => {
    const client = new FakeClient()
    client.put(0, 10)
    const consumer = open(client)
    const seen: string[] = []
    let aborted = false
    running(consumer, async (message, context) => {
      seen.push(textOf(message))
      if (textOf(message) !== "2" || aborted) return
      const { signal } = context
      await consumer.seek(0, { kind: "offset", value: 7n })
      aborted = signal.aborted
    })
    await client.clock.advance(100)
    assert.equal(aborted, true)
    assert.deepEqual(seen, ["0", "1", "2", "7", "8", "9"])
    await consumer.shutdown()
  })

  test("pause keeps back what comes, resume brings it", async () => {
    const client = new FakeClient()
    client.put(0, 4)
    const consumer = open(client)
    const seen: string[] = []
    running(consumer, (message) => {
      seen.push(textOf(message))
      if (textOf(message) === "1") consumer.pause([0])
    })
    await client.clock.advance(100)
    assert.deepEqual(seen, ["0", "1"])
    consumer.resume([0])
    await client.clock.advance(100)
    assert.deepEqual(seen, ["0", "1", "2", "3"])
    await consumer.shutdown()
  })
})

test("handlers see the async context of who called run", async () => {
  const client = new FakeClient()
  client.put(0, 3)
  const consumer = open(client)
  const user = new AsyncLocalStorage<string>()
  const seen: (string | undefined)[] = []
  user.run("mine", () => {
    running(consumer, async () => {
      await Promise.resolve()
      seen.push(user.getStore())
    })
  })
  await client.clock.advance(10)
  assert.deepEqual(seen, ["mine", "mine", "mine"])
  await consumer.shutdown()
})
