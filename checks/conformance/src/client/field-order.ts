/** Chapter: how neighbours lost order or doubled records under concurrency, retries and faults, and what is right. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type ErrorKind, MillraceError } from "@millrace/contract"
import { seededRandom } from "@millrace/runtime"
import { type Client, PublishFailedError } from "millrace"
import { type ClientRig, encode, fill, nothingComes, takeTexts } from "../rig/client-rig.ts"
import { settlesWithin } from "../rig/deadline.ts"
import { numbered } from "../rig/records.ts"
import { checkedRefusal, refused } from "../rig/refusal.ts"

/** Rounds of the storm of A-28; each opens a client of its own. */
const stormRounds = process.env.MILLRACE_LONG === "1" ? 200 : 12

export function fieldOrderChapter(rig: ClientRig): void {
  describe("field reports: order and life", () => {
    test("A-22: an empty batch is answered at once with nothing, and makes nothing", async () => {
      const topic = rig.handle()
      const producer = topic.producer()
      const sent = await producer.sendBatch([])
      assert.deepEqual(sent.confirmations, [])
      assert.deepEqual((await topic.publishBatch().send()).confirmations, [])
      assert.deepEqual((await topic.batch([])).confirmations, [])
      await refused(() => topic.describe(), "not-found")
      await producer.shutdown()
    })

    test("A-22: a consumer of an empty topic hands out nothing and does not spin", async () => {
      const topic = await rig.topic()
      const consumer = topic.consumer("reader", 0)
      const before = process.cpuUsage()
      await nothingComes(consumer, 400)
      const { user, system } = process.cpuUsage(before)
      assert.ok((user + system) / 400_000 < 0.5, `waiting used ${(user + system) / 1000} ms of 400`)
      await consumer.shutdown()
    })

    test("A-24: an awaited send takes no longer than its append: no timer is in the way", async () => {
      const client = await rig.connect("fresh")
      const topic = await rig.topic(1, {}, client)
      const producer = topic.producer()
      await producer.send(encode("warm"))
      const times: number[] = []
      for (let index = 0; index < 200; index++) {
        const began = performance.now()
        await producer.send(encode("r"))
        times.push(performance.now() - began)
      }
      times.sort((one, other) => one - other)
      // A timer would hold up each of them; a busy machine does not.
      const quick = times[20] as number
      assert.ok(quick < 10, `the quickest tenth of 200 awaited sends takes ${quick.toFixed(2)} ms`)
      await client.close()
    })

    test("A-28: clients that are closed at any moment leave each call settled once, and nothing unhandled", async () => {
      const seed = Number(process.env.MILLRACE_SEED ?? 28)
      const random = seededRandom(seed)
      const stray: unknown[] = []
      const note = (reason: unknown): void => void stray.push(reason)
      process.on("unhandledRejection", note)
      try {
        for (let round = 0; round < stormRounds; round++) await storm(await rig.connect("fresh"), random.uint32() % 40)
        await new Promise((resolve) => setImmediate(resolve))
      } finally {
        process.off("unhandledRejection", note)
      }
      assert.deepEqual(stray, [], `seed ${seed}`)
    })

    test("A-29: a deleted topic fails alone, and works again once it is made anew", async () => {
      const [a, b] = [await rig.topic(), await rig.topic()]
      const settings = { createStream: false, createTopic: false }
      const [toA, toB] = [a.producer(settings), b.producer(settings)]
      await toA.send(encode("a0"))
      await a.delete()
      await toB.send(encode("b0"))
      await failsAs("not-found", () => toA.send(encode("lost")), a.name)
      await toB.send(encode("b1"))
      await a.ensure(1)
      await toA.send(encode("a1"))
      const reader = a.consumer(undefined, 0)
      assert.deepEqual(await takeTexts(reader, 1), ["a1"])
      await nothingComes(reader)
      await Promise.all([reader.shutdown(), toA.shutdown(), toB.shutdown()])
    })

    test("A-23: sends to several topics succeed and fail each for itself, and what failed can be sent again without doubling", async () => {
      const [first, last] = [await rig.topic(), await rig.topic()]
      const missing = rig.handle()
      const producer = first.producer({ createStream: false, createTopic: false })
      const topics = [first, missing, last]
      const outcomes = await Promise.allSettled(topics.map((topic) => producer.sendTo(topic, encode(topic.name))))
      assert.deepEqual(
        outcomes.map(({ status }) => status),
        ["fulfilled", "rejected", "fulfilled"],
      )
      const [, failed] = outcomes
      await failsAs("not-found", () => Promise.reject((failed as PromiseRejectedResult).reason), missing.name)
      await missing.ensure(1)
      await producer.sendTo(missing, encode(missing.name))
      for (const topic of topics) {
        const reader = topic.consumer(undefined, 0)
        assert.deepEqual(await takeTexts(reader, 1), [topic.name])
        await nothingComes(reader)
        await reader.shutdown()
      }
      await producer.shutdown()
    })

    test("A-29: a producer that may create writes on into the recreated topic by itself", async () => {
      const topic = await rig.topic()
      const producer = topic.producer()
      await producer.send(encode("old"))
      await topic.delete()
      await topic.ensure(1)
      await producer.send(encode("new"))
      const reader = topic.consumer(undefined, 0)
      assert.deepEqual(await takeTexts(reader, 1), ["new"])
      await Promise.all([reader.shutdown(), producer.shutdown()])
    })

    test("a topic that is deleted under a live consumer fails it by name, and no other", async () => {
      const [doomed, safe] = [await rig.topic(), await rig.topic()]
      const [one, other] = [doomed.consumer("reader", 0), safe.consumer("reader", 0)]
      const [failing, reading] = [Promise.allSettled([one.next()]), other.next()]
      await doomed.delete()
      const [failed] = await settlesWithin("next of a deleted topic", failing)
      assert.ok(failed?.status === "rejected")
      await refused(() => Promise.reject(failed.reason), { kind: "not-found", says: [doomed.name] })
      await fill(safe, ["still here"])
      const result = await settlesWithin("next of the other topic", reading)
      assert.equal(result.done, false)
      await Promise.all([one.shutdown(), other.shutdown()])
    })

    test("a consumer that follows many producers sees each one's order", async () => {
      const topic = await rig.topic()
      const producers = Array.from({ length: 4 }, () => topic.producer())
      await Promise.all(
        producers.flatMap((producer, index) =>
          numbered(`${index}:`, 0, 40).map((payload) => producer.send(encode(payload))),
        ),
      )
      const consumer = topic.consumer(undefined, 0)
      const seen = await takeTexts(consumer, 160)
      for (let index = 0; index < 4; index++) {
        assert.deepEqual(
          seen.filter((one) => one.startsWith(`${index}:`)),
          numbered(`${index}:`, 0, 40),
        )
      }
      await consumer.shutdown()
      await Promise.all(producers.map((producer) => producer.shutdown()))
    })
  })
}

/** A send fails with the error itself, or with one that carries it as the cause. */
async function failsAs(kind: ErrorKind, call: () => Promise<unknown>, name: string): Promise<void> {
  const [outcome] = await Promise.allSettled([call()])
  assert.ok(outcome?.status === "rejected", "the send succeeded")
  const { reason } = outcome
  const cause = reason instanceof PublishFailedError ? reason.publishCause() : reason
  checkedRefusal(cause, { kind, says: [name], retryable: false })
}

/** Everything at once, and a close in the midst of it. */
async function storm(client: Client, turns: number): Promise<void> {
  const topic = client.stream("storm").topic("t")
  await topic.ensure(2)
  const producer = topic.producer()
  const consumer = topic.consumer("reader", 0)
  const joining = topic.consumerGroup("g").consumer()
  const calls: Promise<unknown>[] = [joining, consumer.next(), consumer.next(), topic.watermarks()]
  for (let index = 0; index < 40; index++) calls.push(producer.send(encode(`r${index}`), { partition: index % 2 }))
  calls.push(
    joining.then((member) => member.next()),
    producer.sendBatch(numbered("b", 0, 50).map(encode)),
    consumer.storeOffset(0n),
    topic.publish().payload(encode("p")).send(),
    client.stream("storm").topic("new").ensure(1),
  )
  const settled = Promise.allSettled(calls)
  for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve))
  await settlesWithin("close in a storm", client.close())
  for (const outcome of await settlesWithin("calls in a storm", settled)) {
    if (outcome.status === "rejected") {
      assert.ok(outcome.reason instanceof MillraceError, `not a MillraceError: ${outcome.reason}`)
    }
  }
}
