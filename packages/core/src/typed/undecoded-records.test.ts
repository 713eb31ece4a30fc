/** What a typed consumer does about records that do not decode, or cannot yet: skips, dead letters, and codecs that fetch first. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, InvalidError } from "@millrace/contract"
import type { Codec } from "../codec/codec.ts"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import { deadLetter } from "../handler/dead-letter.ts"
import { doors, seen } from "./typed-doors.test-support.ts"
import { DeadTopic, Fetching, failing, numbers, openTyped, putTexts } from "./typed-rig.test-support.ts"

describe("many records that do not decode", () => {
  for (const [door, taking] of Object.entries(doors)) {
    test(`are skipped a few hundred at a time, with the event loop's turn in between (${door})`, async () => {
      const client = new FakeClient()
      const turns = new Turns(client)
      putTexts(client, [...turns.bad(2000), "1"])
      const consumer = openTyped(client, { codec: turns.codec, onDecodeError: "skip" })
      const one = taking(consumer, 1)
      await client.clock.advance(10)
      assert.deepEqual(await one, [1])
      assert.ok(turns.longest <= 257, `${turns.longest} records in one turn`)
      assert.equal(consumer.decodeFailures.skipped, 2000)
      await consumer.shutdown()
      // Whether the message itself counts as handled is up to the way of taking.
      assert.ok((client.storedNext("worker") as bigint) >= 2000n)
      assert.equal(client.clock.timers, 0)
    })
  }

  test("do not keep a shutdown from ending the consumer", async () => {
    const client = new FakeClient()
    const turns = new Turns(client)
    putTexts(client, [...turns.bad(2000), "1"])
    const consumer = openTyped(client, { codec: turns.codec, onDecodeError: "skip" })
    const next = consumer.next()
    turns.after(3, () => consumer.shutdown())
    await client.clock.advance(10)
    assert.deepEqual(await next, { done: true, value: undefined })
    await client.clock.advance(10)
    const { skipped } = consumer.decodeFailures
    assert.ok(skipped > 0 && skipped < 2000, `${skipped} skipped`)
    assert.equal(client.clock.timers, 0)
    assert.equal(client.storedNext("worker"), BigInt(skipped))
  })

  test("are decoded once each, with dead letters: a codec that changes its mind does not deliver what was sent there", async () => {
    const client = new FakeClient()
    putTexts(client, ["0", "bad", "2"])
    let times = 0
    const bad = (): number => {
      if (times++ === 0) throw new Error("not this time")
      return -1
    }
    const topic = new DeadTopic()
    const consumer = openTyped(client, { codec: failing(bad), onDecodeError: deadLetter(topic) })
    const values = [await consumer.nextWithin(1000), await consumer.nextWithin(1000)].map(seen)
    assert.deepEqual([values, times, topic.sent.length], [[0, 2], 1, 1])
    assert.equal(consumer.decodeFailures.deadLettered, 1)
    await consumer.shutdown()
  })
})

describe("dead letters of a typed consumer", () => {
  test("that fail are told, and the next read tries again", async () => {
    const client = new FakeClient()
    putTexts(client, ["bad", "1"])
    const topic = new DeadTopic()
    topic.gate = Promise.reject(new InvalidError("it is full of letters"))
    topic.gate.catch(() => {})
    const consumer = openTyped(client, { codec: numbers, onDecodeError: deadLetter(topic) })
    await assert.rejects(
      consumer.nextWithin(1000),
      /could not be sent to dead-letter topic "s\/dead": it is full of letters/,
    )
    assert.equal(client.storedNext("worker"), undefined)
    topic.gate = undefined
    assert.equal((await consumer.nextWithin(1000)).value, 1)
    assert.equal(topic.sent.length, 2)
    assert.equal(topic.sent[0]?.id, topic.sent[1]?.id, "where ids are recognised it is one dead letter")
    await consumer.shutdown()
  })

  test("hold up their own partition alone; a seek goes past them", async () => {
    const client = new FakeClient()
    putTexts(client, ["bad", "1"])
    const topic = new DeadTopic()
    const confirmed = Promise.withResolvers<void>()
    topic.gate = confirmed.promise
    const consumer = openTyped(client, { codec: numbers, onDecodeError: deadLetter(topic) })
    const waiting = consumer.next()
    await client.clock.advance(10)
    assert.equal(topic.sent.length, 1)
    await consumer.seek(0, { kind: "offset", value: 1n })
    assert.equal((await waiting).value?.value, 1)
    confirmed.resolve()
    await client.clock.advance(10)
    assert.deepEqual(consumer.decodeFailures.deadLettered, 0)
    await consumer.shutdown()
  })

  test("that fail when nobody wants them any more are nobody's", async () => {
    const client = new FakeClient()
    putTexts(client, ["bad", "1", "2"])
    const topic = new DeadTopic()
    const confirmed = Promise.withResolvers<void>()
    topic.gate = confirmed.promise
    const consumer = openTyped(client, { codec: numbers, onDecodeError: deadLetter(topic) })
    const waiting = consumer.next()
    await client.clock.advance(10)
    await consumer.seek(0, { kind: "offset", value: 1n })
    assert.equal((await waiting).value?.value, 1)
    confirmed.reject(new InvalidError("too late to matter"))
    await client.clock.advance(10)
    assert.equal((await consumer.nextWithin(1000)).value, 2)
    await consumer.shutdown()
  })

  test("cannot come before the store of `onRead`, and not without headers", () => {
    const client = new FakeClient()
    const onDecodeError = deadLetter(new DeadTopic())
    assert.throws(
      () => openTyped(client, { codec: numbers, onDecodeError }, { commitPolicy: { kind: "onRead" } }),
      (error) => error instanceof InvalidError && /"onRead"/.test(error.message),
    )
  })
})

describe("a typed consumer whose codec has something to fetch first", () => {
  for (const [door, taking] of Object.entries(doors)) {
    test(`waits for it before anything is handed out, and asks once a batch (${door})`, async () => {
      const client = new FakeClient()
      putTexts(client, ["1", "2", "3"])
      const codec = new Fetching()
      const fetched = Promise.withResolvers<void>()
      codec.gate = fetched.promise
      const consumer = openTyped(client, { codec })
      let done = false
      const all = taking(consumer, 3).finally(() => {
        done = true
      })
      await client.clock.advance(500)
      assert.deepEqual([codec.asked, done], [[3], false])
      fetched.resolve()
      assert.deepEqual(await all, [1, 2, 3])
      putTexts(client, ["2"])
      assert.deepEqual(await taking(consumer, 1), [2])
      assert.deepEqual(codec.asked, [3])
      await consumer.shutdown()
      assert.equal(client.clock.timers, 0)
    })
  }

  test("tries again what may pass, for as long as it takes, in silence; also in a run", async () => {
    const client = new FakeClient()
    putTexts(client, ["1"])
    const codec = new Fetching()
    for (let n = 0; n < 30; n++) codec.failures.push(new ConnectionError("the registry is away"))
    const consumer = openTyped(client, { codec })
    const values: unknown[] = []
    const run = consumer.run((message) => void values.push(message.value))
    await client.clock.advance(29_999)
    assert.deepEqual(values, [])
    await client.clock.advance(2)
    assert.deepEqual(values, [1])
    await consumer.shutdown()
    await run
  })

  test("tells what will not pass, and asks again with the next call", async () => {
    const client = new FakeClient()
    putTexts(client, ["1"])
    const codec = new Fetching()
    codec.failures.push(new InvalidError("no such registry"))
    const consumer = openTyped(client, { codec })
    await assert.rejects(consumer.nextWithin(1000), /no such registry/)
    assert.equal((await consumer.nextWithin(1000)).value, 1)
    await consumer.shutdown()
  })

  test("lets a shutdown end the wait, and leaves nothing behind", async () => {
    const client = new FakeClient()
    putTexts(client, ["1"])
    const codec = new Fetching()
    for (let n = 0; n < 9; n++) codec.failures.push(new ConnectionError("away"))
    const consumer = openTyped(client, { codec })
    const waiting = consumer.next()
    await client.clock.advance(500)
    await consumer.shutdown()
    assert.deepEqual(await waiting, { done: true, value: undefined })
    assert.equal(codec.signal?.aborted, true)
    assert.equal(client.clock.timers, 0)
    assert.equal(client.storedNext("worker"), undefined)
  })
})

/** Counts how many records fail to decode between two turns of the event loop, as far as timers tell of them. */
class Turns {
  longest = 0
  readonly codec: Codec<number>
  #run = 0
  #turns = 0
  #after = { turns: 0, call: (): unknown => undefined }

  constructor(client: FakeClient) {
    this.codec = failing(() => {
      this.longest = Math.max(this.longest, ++this.#run)
      throw new Error("no number")
    })
    const { clock } = client
    const setTimer = clock.setTimer.bind(clock)
    clock.setTimer = (delayMs: number, callback: () => void) =>
      setTimer(delayMs, () => {
        if (this.#run > 0 && ++this.#turns === this.#after.turns) this.#after.call()
        this.#run = 0
        callback()
      })
  }

  bad(count: number): string[] {
    return Array.from({ length: count }, () => "bad")
  }

  /** Calls this with the so-many-th turn that ends a run of failures. */
  after(turns: number, call: () => unknown): void {
    this.#after = { turns, call }
  }
}
