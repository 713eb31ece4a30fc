/** Chapter: ways to collect records before they are sent: batching producers, pooled batches, and batches with metadata. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type Message, type OutgoingRecord, PublishFailedError, type Topic } from "millrace"
import { type ClientRig, encode } from "../rig/client-rig.ts"
import { settlesWithin } from "../rig/deadline.ts"
import { numbered, text, texts } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

export function collectingChapter(rig: ClientRig): void {
  describe("a batching producer", () => {
    test("sends at a limit, at its timer, and at its close, in the order of the calls", async () => {
      const topic = await rig.topic(1)
      const expected = numbered("r", 0, 25)
      {
        await using batching = topic.batching().maxRecords(10).linger(20).build()
        for (const each of expected.slice(0, 12)) await batching.send(encode(each))
        await settlesWithin("what the timer sends", stored(topic, 12))
        for (const each of expected.slice(12)) await batching.send(encode(each))
      }
      assert.deepEqual(texts(await everything(topic)), expected)
    })

    test("keeps order when nothing is awaited, and the caller's buffer is free again at once", async () => {
      const topic = await rig.topic(1)
      const batching = topic.batching().maxRecords(7).build()
      const expected = numbered("r", 0, 100)
      const reused = new Uint8Array(8)
      const sends = expected.map((each) => {
        const { written } = new TextEncoder().encodeInto(each, reused)
        return batching.send(reused.subarray(0, written))
      })
      await Promise.all([...sends, batching.close()])
      assert.deepEqual(texts(await everything(topic)), expected)
    })

    test("with a key has all records in one partition, under the key", async () => {
      const topic = await rig.topic(4)
      const batching = topic.batching().partitionKey("node-7").build()
      for (const each of numbered("r", 0, 5)) await batching.send(encode(each), { h: each })
      await batching.flush()
      const [found] = (await Promise.all([0, 1, 2, 3].map((partition) => everything(topic, partition)))).filter(
        ({ length }) => length > 0,
      )
      assert.deepEqual(texts(found ?? []), numbered("r", 0, 5))
      assert.deepEqual(
        found?.map(({ key, headers }) => [text(key), headers.get("h")?.value]),
        numbered("r", 0, 5).map((each) => ["node-7", each]),
      )
      await batching.close()
      await refused(() => batching.send(encode("late")), "closed")
    })

    test("names every accepted record when the topic is not there", async () => {
      const batching = rig.handle().batching().linger(60_000).build()
      for (const each of numbered("r", 0, 3)) await batching.send(encode(each))
      const error = await failure(batching.close())
      assert.equal((error.publishCause() as { kind?: string }).kind, "not-found")
      assert.deepEqual(payloads(error.unconfirmed), numbered("r", 0, 3))
    })
  })

  describe("a pooled batch", () => {
    test("is stored as it was built, and its memory is another's at once", async () => {
      const topic = await rig.topic(1)
      const producer = topic.producer()
      const sends = numbered("batch", 0, 10).map((name) => {
        const builder = topic.batchBuilder()
        builder.add(encode(name), { headers: { h: name } }).addJson({ name })
        builder.add(3, (target) => target.set(encode("xyz")))
        return producer.send(builder.build())
      })
      await Promise.all(sends)
      const expected = numbered("batch", 0, 10).flatMap((name) => [name, JSON.stringify({ name }), "xyz"])
      const found = await everything(topic)
      assert.deepEqual(texts(found), expected)
      assert.equal(found[27]?.headers.get("h")?.value, "batch9")
    })

    test("with keys goes where they point, in the background too", async () => {
      const topic = await rig.topic(4)
      const producer = topic.producer({ background: true })
      const builder = topic.batchBuilder()
      for (const each of numbered("r", 0, 40)) builder.add(encode(each), { key: `key-${each.length}` })
      await producer.send(builder.build())
      topic.batchBuilder().add(new Uint8Array(1000).fill(1)).build()[Symbol.dispose]()
      await producer.shutdown()
      const found = (await Promise.all([0, 1, 2, 3].map((partition) => everything(topic, partition)))).flat()
      assert.deepEqual(new Set(texts(found)), new Set(numbered("r", 0, 40)))
      for (const message of found) assert.equal(text(message.key), `key-${text(message.payload).length}`)
    })

    test("cannot be used twice", async () => {
      const topic = await rig.topic(1)
      const producer = topic.producer()
      const batch = topic.batchBuilder().add(encode("once")).build()
      await producer.send(batch)
      await refused(() => producer.send(batch), { kind: "invalid", says: [/sent/] })
      assert.deepEqual(texts(await everything(topic)), ["once"])
    })
  })

  describe("a batch with metadata", () => {
    test("comes back with its content types, schema ids and index entries", async () => {
      const topic = await rig.topic(1)
      const batch = topic.publishBatch().schemaId(4_000_000_000).index("region", "eu").header("h", "batch")
      batch.addJson({ n: 1 })
      batch.add(encode("own"), { headers: { h: "own" }, metadata: { contentType: "cbor", index: { region: "us" } } })
      await batch.send()
      const found = await everything(topic)
      assert.deepEqual(
        found.map(({ headers }) =>
          ["h", "millrace-ct", "millrace-sid", "millrace-idx.region"].map((name) => headers.get(name)?.value),
        ),
        [
          ["batch", 1, 4_000_000_000, "eu"],
          ["own", 3, 4_000_000_000, "us"],
        ],
      )
    })

    test("holds all the metadata that is allowed", async () => {
      const topic = await rig.topic(1)
      const index = Object.fromEntries(
        Array.from({ length: 32 }, (_, i) => [String.fromCharCode(65 + i), "v".repeat(9)]),
      )
      await topic.publishBatch().add(encode("full"), { metadata: { index } }).send()
      const [message] = await everything(topic)
      for (const [key, value] of Object.entries(index)) {
        assert.equal(message?.headers.get(`millrace-idx.${key}`)?.value, value)
      }
    })
  })
}

const payloads = (records: readonly OutgoingRecord[]): string[] => records.map(({ payload }) => text(payload))

async function failure(promise: Promise<unknown>): Promise<PublishFailedError> {
  const error = await promise.then(
    () => assert.fail("it succeeded"),
    (thrown: unknown) => thrown,
  )
  if (error instanceof PublishFailedError) return error
  throw error
}

async function stored(topic: Topic, count: number): Promise<void> {
  await using reader = topic.consumer(undefined, 0, { startAt: { kind: "first" } })
  for (let i = 0; i < count; i++) await reader.nextWithin(15_000)
}

async function everything(topic: Topic, partition = 0): Promise<Message[]> {
  const { first, end } = (await topic.watermarks())[partition] as { readonly first: bigint; readonly end: bigint }
  const messages: Message[] = []
  await using reader = topic.consumer(undefined, partition, { startAt: { kind: "first" } })
  for (let offset = first; offset < end; offset++) messages.push((await reader.nextWithin(15_000)).copy())
  return messages
}
