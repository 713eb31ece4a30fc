/** Chapter: sending: confirmations, routing, order, builders, and what a producer does when things are missing or it is closed. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { HeaderValue, type Message, type OutgoingRecord, type SendResult, type Topic } from "millrace"
import { type ClientRig, encode } from "../rig/client-rig.ts"
import { settlesWithin } from "../rig/deadline.ts"
import { numbered, text, texts } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

export function producingChapter(rig: ClientRig): void {
  describe("a producer", () => {
    test("creates what is missing, sends, and tells where each record is", async () => {
      const topic = rig.handle()
      await using producer = topic.producer({ partitions: 2 })
      const sent = await producer.send(encode("a"), { partition: 1 })
      assert.deepEqual(sent.confirmations, [
        { stream: topic.stream, topic: topic.name, partition: 1, baseOffset: 0n, count: 1 },
      ])
      const batch = await producer.sendBatch([encode("b"), encode("c")], { partition: 1 })
      assert.deepEqual(
        batch.confirmations.map(({ partition, baseOffset, count }) => [partition, baseOffset, count]),
        [[1, 1n, 2]],
      )
      assert.equal((await topic.watermarks()).length, 2)
      assert.deepEqual(texts(await everything(topic, 1)), ["a", "b", "c"])
    })

    test("creates nothing when it is told not to", async () => {
      const topic = rig.handle()
      const producer = topic.producer({ createStream: false, createTopic: false })
      await refused(() => producer.send(encode("a")), { kind: "not-found", says: [topic.stream] })
      await refused(() => producer.init(), "not-found")
      await refused(() => topic.describe(), "not-found")
      await producer.shutdown()
    })

    test("keeps the order of the calls in each partition, also when none is awaited", async () => {
      const topic = await rig.topic(2)
      const producer = topic.producer()
      const calls = Array.from({ length: 400 }, (_, index) =>
        producer.send(encode(`r${index}`), { partition: index % 2 }),
      )
      await Promise.all(calls)
      await producer.shutdown()
      const even = numbered("r", 0, 400).filter((_, index) => index % 2 === 0)
      assert.deepEqual(texts(await everything(topic, 0)), even)
      assert.equal((await everything(topic, 1)).length, 200)
    })

    test("tells each of many calls its own offset", async () => {
      const topic = await rig.topic()
      const producer = topic.producer()
      const results = await Promise.all(numbered("r", 0, 100).map((payload) => producer.send(encode(payload))))
      assert.deepEqual(
        results.map(onlyOffset),
        Array.from({ length: 100 }, (_, index) => BigInt(index)),
      )
      await producer.shutdown()
    })

    test("splits a large batch into requests, and confirms each", async () => {
      const topic = await rig.topic()
      const producer = topic.producer({ batchLength: 100 })
      const sent = await producer.sendBatch(numbered("r", 0, 250).map(encode))
      assert.deepEqual(
        sent.confirmations.map(({ baseOffset, count }) => [baseOffset, count]),
        [
          [0n, 100],
          [100n, 100],
          [200n, 50],
        ],
      )
      await producer.shutdown()
      assert.deepEqual(texts(await everything(topic, 0)), numbered("r", 0, 250))
    })

    test("sends equal keys to one partition, in order, and different keys to several", async () => {
      const topic = await rig.topic(4)
      const producer = topic.producer()
      const used = new Map<string, Set<number>>()
      for (let index = 0; index < 60; index++) {
        const key = `key-${index % 12}`
        const sent = await producer.send(encode(`${key}:${index}`), { key: index % 2 === 0 ? key : encode(key) })
        const partitions = used.get(key) ?? new Set()
        partitions.add(sent.confirmations[0]?.partition ?? -1)
        used.set(key, partitions)
      }
      await producer.shutdown()
      for (const [key, partitions] of used) assert.equal(partitions.size, 1, `${key} went to ${[...partitions]}`)
      assert.ok(new Set([...used.values()].flatMap((partitions) => [...partitions])).size > 1)
    })

    test("without a key spreads over every partition", async () => {
      const topic = await rig.topic(3)
      const producer = topic.producer()
      for (let index = 0; index < 30; index++) await producer.send(encode("r"))
      await producer.shutdown()
      for (const { partition, first, end } of await topic.watermarks()) {
        assert.ok(end - first > 0n, `partition ${partition} got nothing`)
      }
    })

    test("routes as its options say, and a send may say otherwise", async () => {
      const topic = await rig.topic(3)
      const fixed = topic.producer({ routing: { kind: "partition", partition: 2 } })
      assert.equal((await fixed.send(encode("a"))).confirmations[0]?.partition, 2)
      assert.equal((await fixed.send(encode("b"), { partition: 0 })).confirmations[0]?.partition, 0)
      await fixed.shutdown()
      const keyed = topic.producer({ routing: { kind: "key", key: "k" } })
      const [one, other] = [await keyed.send(encode("c")), await keyed.send(encode("d"), { key: "k" })]
      assert.equal(one.confirmations[0]?.partition, other.confirmations[0]?.partition)
      await keyed.shutdown()
    })

    test("takes a partitioner of the caller's", async () => {
      const topic = await rig.topic(4)
      const producer = topic.producer({ partitioner: () => 3 })
      assert.equal((await producer.send(encode("a"))).confirmations[0]?.partition, 3)
      await producer.shutdown()
    })

    test("sends key, headers, id and time of a record", async () => {
      const topic = await rig.topic()
      const id = 0x0123456789abcdef0123456789abcdefn
      const record: OutgoingRecord = {
        payload: encode("p"),
        key: "k",
        id,
        timestampMicros: 1_700_000_000_001_000n,
        headers: [
          ["n", HeaderValue.int32(7)],
          ["n", "eight"],
        ],
      }
      const producer = topic.producer()
      await producer.sendBatch([record, { payload: null, key: encode("k2") }])
      await producer.shutdown()
      const [first, second] = await everything(topic, 0)
      assert.equal(first?.id, id)
      assert.equal(text(first?.key), "k")
      assert.equal(first?.originTimestampMicros, 1_700_000_000_001_000n)
      assert.deepEqual(
        [...(first?.headers ?? [])].map(([name, value]) => [name, value.kind, value.value]),
        [
          ["n", "int32", 7],
          ["n", "string", "eight"],
        ],
      )
      assert.equal(second?.payload, null)
      assert.equal(text(second?.key), "k2")
    })

    test("sends to another topic, which it creates", async () => {
      const [home, away] = [await rig.topic(), rig.handle()]
      const producer = home.producer()
      const sent = await producer.sendTo(away, encode("a"))
      assert.equal(sent.confirmations[0]?.topic, away.name)
      await producer.shutdown()
      assert.deepEqual(texts(await everything(away, 0)), ["a"])
      assert.equal((await everything(home, 0)).length, 0)
    })

    test("shutdown waits for what was sent; later sends are refused as closed", async () => {
      const topic = await rig.topic()
      const producer = topic.producer()
      const sends = numbered("r", 0, 50).map((payload) => producer.send(encode(payload)))
      await settlesWithin("shutdown", producer.shutdown())
      assert.equal((await Promise.all(sends)).length, 50)
      await refused(() => producer.send(encode("late")), "closed")
      await refused(() => producer.sendBatch([encode("late")]), "closed")
      await producer.shutdown()
      assert.equal((await everything(topic, 0)).length, 50)
    })

    test("flush settles after every send before it", async () => {
      const topic = await rig.topic()
      const producer = topic.producer()
      let settled = 0
      for (let index = 0; index < 40; index++) void producer.send(encode("r")).then(() => settled++)
      await producer.flush()
      assert.equal(settled, 40)
      await producer.shutdown()
    })
  })

  describe("publish", () => {
    test("one record, with all that a builder takes", async () => {
      const topic = await rig.topic(2)
      const sent = await topic.publish().json({ n: 1 }).partition(1).header("h", HeaderValue.bool(true)).send()
      assert.equal(onlyOffset(sent), 0n)
      const [message] = await everything(topic, 1)
      assert.deepEqual(JSON.parse(text(message?.payload)), { n: 1 })
      assert.equal(message?.headers.get("h")?.value, true)
    })

    test("a batch that is collected goes out at once, and a bad record is named", async () => {
      const topic = await rig.topic(2)
      const batch = topic.publishBatch().partition(1)
      batch.add(encode("a"))
      batch.addRecord({ payload: encode("b"), headers: { own: "1" } })
      batch.addJson({ c: true })
      const sent = await batch.send()
      assert.deepEqual(
        sent.confirmations.map(({ partition, baseOffset, count }) => [partition, baseOffset, count]),
        [[1, 0n, 3]],
      )
      const bad = topic.publishBatch()
      bad.add(encode("fine"))
      await refused(
        async () => {
          bad.addRecord({ payload: "text" as never })
          await bad.send()
        },
        { kind: "invalid", says: [/record #1/] },
      )
      assert.deepEqual((await topic.publishBatch().send()).confirmations, [])
    })

    test("records that carry their ids and were stored already are left out of a resend", async (t) => {
      if (rig.client.manifest.append.idLookup === "none") return t.skip("this backend looks up no ids")
      const topic = await rig.topic()
      const producer = topic.producer()
      await producer.sendBatch(numbered("r", 0, 3).map(encode), { partition: 0 })
      await producer.shutdown()
      const stored = await everything(topic, 0)
      const again: OutgoingRecord[] = stored.map(({ payload, id, position }) => ({
        payload,
        partition: position.partition,
        ...(id === undefined ? {} : { id }),
      }))
      const sent = await topic.batch(again)
      assert.equal(sent.duplicates, 3)
      assert.equal((await everything(topic, 0)).length, 3)
    })
  })
}

/** Every message of a partition, from the first to the present end. */
async function everything(topic: Topic, partition: number): Promise<Message[]> {
  const [marks] = (await topic.watermarks()).filter((entry) => entry.partition === partition)
  if (marks === undefined) throw new Error(`no watermarks of partition ${partition}`)
  const messages: Message[] = []
  const reader = topic.consumer(undefined, partition, { startAt: { kind: "first" } })
  try {
    for (let offset = marks.first; offset < marks.end; offset++) messages.push(await reader.nextWithin(15_000))
  } finally {
    await reader.shutdown()
  }
  return messages
}

function onlyOffset(sent: SendResult): bigint | undefined {
  assert.equal(sent.confirmations.length, 1)
  assert.equal(sent.confirmations[0]?.count, 1)
  return sent.confirmations[0]?.baseOffset
}
