/** The client over the real log through a session whose answers are lost and whose requests do not arrive, as a seed says. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { DiskFullError, type Session } from "@millrace/contract"
import { openClient } from "@millrace/core"
import { embeddedDriver } from "@millrace/embedded"
import { type Clock, seededRandom, systemClock, systemRandom } from "@millrace/runtime"
import { type Client, PublishFailedError, type Topic } from "millrace"
import { encode, takeTexts } from "../rig/client-rig.ts"
import { settlesWithin } from "../rig/deadline.ts"
import { type Fate, type FaultySession, faultySession } from "../rig/faulty-session.ts"
import { numbered } from "../rig/records.ts"
import { checkedRefusal } from "../rig/refusal.ts"

const patientPublish = { publishTimeoutMs: 5_000, publishRetries: 20, publishRetryBackoffMs: 1 }

describe("field reports: faults on the way", () => {
  for (const seed of [1, 2, 3]) {
    test(`A-01: 500 sends that are not awaited arrive once, in order, while answers and requests are lost (seed ${seed})`, async () => {
      const random = seededRandom(seed)
      const { client, session } = await open(() => fateOf(random.uint32() % 4))
      const topic = await topicOf(client)
      const producer = topic.producer({ batchLength: 10 })
      const sends = numbered("r", 0, 500).map((payload) => producer.send(encode(payload)))
      await settlesWithin("500 sends", Promise.all(sends))
      await producer.send(encode("r500"))
      assert.deepEqual(await stored(topic), numbered("r", 0, 501))
      const { lost, refused } = session.seen
      assert.ok(lost > 0 && refused > 0, `${lost} answers lost, ${refused} requests refused: the test proves nothing`)
      await client.close()
    })
  }

  test("A-01: a batch in many requests arrives once, in order", async () => {
    const random = seededRandom(7)
    const { client } = await open(() => fateOf(random.uint32() % 6))
    const topic = await topicOf(client)
    const producer = topic.producer({ batchLength: 10 })
    await settlesWithin("a batch of 30 requests", producer.sendBatch(numbered("r", 0, 300).map(encode)))
    assert.deepEqual(await stored(topic), numbered("r", 0, 300))
    await client.close()
  })

  test("A-30: a lost acknowledgement is answered by a resend that the log recognises", async () => {
    const { client, session } = await open((append) => (append === 0 ? "lost" : "well"))
    const topic = await topicOf(client)
    const producer = topic.producer()
    const sent = await settlesWithin("a send whose answer was lost", producer.send(encode("once")))
    assert.equal(sent.confirmations[0]?.baseOffset, 0n)
    await producer.send(encode("next"))
    assert.equal(session.seen.lost, 1)
    assert.deepEqual(await stored(topic), ["once", "next"])
    await client.close()
  })

  test("A-30: without a resend the outcome is unknown, not failed, and the record keeps its id for a resend by hand", async () => {
    const { client } = await open((append) => (append === 0 ? "lost" : "well"))
    const topic = await topicOf(client)
    const producer = topic.producer({ onUnknown: "fail" })
    const [outcome] = await Promise.allSettled([producer.send(encode("once"))])
    assert.ok(outcome?.status === "rejected")
    const error = outcome.reason as PublishFailedError
    checkedRefusal(error, { kind: "publish-failed", outcome: "unknown" })
    assert.ok(error instanceof PublishFailedError)
    assert.equal(error.unconfirmed.length, 1)
    assert.equal(typeof error.unconfirmed[0]?.id, "bigint")
    const again = await topic.batch(error.unconfirmed)
    assert.equal(again.duplicates, 1)
    assert.deepEqual(await stored(topic), ["once"])
    await client.close()
  })

  test("a publish that gives up tells what is confirmed and what is not, and the rest can be sent again", async () => {
    let cut = false
    const { client } = await open((append) => (append >= 2 && cut ? "refused" : "well"), {
      ...patientPublish,
      publishRetries: 1,
    })
    const topic = await topicOf(client)
    cut = true
    const producer = topic.producer({ batchLength: 10 })
    const [outcome] = await Promise.allSettled([producer.sendBatch(numbered("r", 0, 50).map(encode))])
    assert.ok(outcome?.status === "rejected")
    const error = outcome.reason as PublishFailedError
    checkedRefusal(error, { kind: "publish-failed", retryable: true, outcome: "rejected" })
    const confirmed = error.committed.reduce((sum, range) => sum + range.count, 0)
    assert.equal(confirmed + error.unconfirmed.length, 50)
    assert.deepEqual(await stored(topic), numbered("r", 0, confirmed))
    cut = false
    await topic.batch(error.unconfirmed)
    assert.deepEqual(await stored(topic), numbered("r", 0, 50))
    await client.close()
  })

  test("A-33: a full disk fails the send by name, and the next one works without a new client", async () => {
    let full = true
    const { client } = await open(
      () => (full ? "refused" : "well"),
      { ...patientPublish, publishRetries: 0 },
      () => {
        return new DiskFullError("no space is left on the device")
      },
    )
    const topic = await topicOf(client)
    const producer = topic.producer()
    const [outcome] = await Promise.allSettled([producer.send(encode("lost"))])
    assert.ok(outcome?.status === "rejected")
    checkedRefusal((outcome.reason as PublishFailedError).publishCause(), { kind: "disk-full", retryable: true })
    full = false
    await producer.send(encode("fits"))
    assert.deepEqual(await stored(topic), ["fits"])
    await client.close()
  })

  test("A-24: 10,000 sends that are not awaited share requests, at most one to 50 of them", async () => {
    const { client, session } = await open(() => "well")
    const topic = await topicOf(client)
    const producer = topic.producer()
    const began = session.seen.appends
    await Promise.all(Array.from({ length: 10_000 }, (_, index) => producer.send(encode(`r${index}`))))
    const requests = session.seen.appends - began
    assert.ok(requests <= 200, `${requests} requests for 10,000 sends`)
    assert.equal((await stored(topic)).length, 10_000)
    await client.close()
  })

  test("A-28: 200 rounds of sends, reads and commits over a faulty way leave nothing unhandled and nothing undecided", async () => {
    const random = seededRandom(99)
    const stray: unknown[] = []
    const note = (reason: unknown): void => void stray.push(reason)
    process.on("unhandledRejection", note)
    const { client } = await open(() => fateOf(random.uint32() % 4), { ...patientPublish, publishRetries: 2 })
    const topic = await topicOf(client)
    let confirmed = 0
    for (let round = 0; round < 200; round++) {
      const producer = topic.producer()
      const consumer = topic.consumer("reader", 0)
      const sends = Promise.allSettled([0, 1, 2].map(() => producer.send(encode(`round ${round}`))))
      const reads = Promise.allSettled([consumer.nextWithin(5), consumer.storeOffset(0n)])
      if (random.uint32() % 2 === 0) await new Promise((resolve) => setImmediate(resolve))
      const closing = Promise.allSettled([consumer.shutdown(), producer.shutdown()])
      const outcomes = await settlesWithin(`round ${round}`, sends)
      await settlesWithin(`reads and closing of round ${round}`, Promise.all([reads, closing]))
      confirmed += outcomes.filter((outcome) => outcome.status === "fulfilled").length
    }
    await new Promise((resolve) => setImmediate(resolve))
    process.off("unhandledRejection", note)
    assert.deepEqual(stray, [])
    const there = await stored(topic)
    assert.ok(there.length >= confirmed, `${there.length} stored of ${confirmed} confirmed`)
    await client.close()
  })

  test("A-35: a wall clock that goes back reorders nothing, and waits stay waits", async () => {
    let wall = 1_700_000_000_000_000n
    const clock: Clock = {
      nowMicros: () => {
        wall -= 1_000_000n
        return wall
      },
      monotonicMs: () => systemClock.monotonicMs(),
      setTimer: (delayMs, callback, options) => systemClock.setTimer(delayMs, callback, options),
    }
    const session = await connectMemory()
    const client = openClient(session, patientPublish, { clock, random: systemRandom })
    const topic = await topicOf(client)
    const producer = topic.producer()
    for (const payload of numbered("r", 0, 5)) await producer.send(encode(payload))
    assert.deepEqual(await stored(topic), numbered("r", 0, 5))
    const reader = topic.consumer("reader", 0, { startAt: { kind: "first" } })
    let last = 0n
    const ids = new Set<bigint | undefined>()
    for (let index = 0; index < 5; index++) {
      const message = await reader.nextWithin(5_000)
      assert.ok(message.timestampMicros >= last, "append times went back")
      last = message.timestampMicros
      ids.add(message.id)
    }
    assert.equal(ids.size, 5)
    await assert.rejects(settlesWithin("a wait of 20 ms", reader.nextWithin(20)), { kind: "timeout" })
    await client.close()
  })
})

async function connectMemory(): Promise<Session> {
  const target = { scheme: "memory", hosts: [], path: "", options: {} }
  return embeddedDriver.connect(target, { timeoutMs: 20_000 })
}

async function open(
  fate: (append: number) => Fate,
  publish = patientPublish,
  refusal?: () => Error,
): Promise<{ client: Client; session: FaultySession }> {
  const session = faultySession(await connectMemory(), fate, refusal)
  const client = openClient(session, publish, { clock: systemClock, random: systemRandom })
  return { client, session }
}

async function topicOf(client: Client): Promise<Topic> {
  const topic = client.stream("s").topic("t")
  await topic.ensure(1)
  return topic
}

/** Of a roll from 0: the answer to 0 is lost, the request of 1 does not arrive, all others go well. */
function fateOf(roll: number): Fate {
  if (roll < 1) return "lost"
  return roll < 2 ? "refused" : "well"
}

async function stored(topic: Topic): Promise<string[]> {
  const [marks] = await topic.watermarks()
  await using reader = topic.consumer(undefined, 0, { startAt: { kind: "first" } })
  return await takeTexts(reader, Number((marks?.end ?? 0n) - (marks?.first ?? 0n)))
}
