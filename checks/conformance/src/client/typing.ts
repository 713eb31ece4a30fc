/** Chapter: typed topics: every codec by every way of sending and of reading, tombstones and headers. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  type Codec,
  type HeadersInit,
  Json,
  type Message,
  type Topic,
  type TypedMessage,
  type TypedTopic,
} from "millrace"
import { type ClientRig, take } from "../rig/client-rig.ts"
import { patienceMs, settlesWithin } from "../rig/deadline.ts"
import { text } from "../rig/records.ts"
import { checkedRefusal, refused } from "../rig/refusal.ts"
import { comparables, type TypedCase, textCodec, typedCases } from "../rig/typed-cases.ts"

export function typingChapter(rig: ClientRig): void {
  describe("typed values", () => {
    for (const each of typedCases) {
      test(`${each.name}: every way of sending, and offsets of one's own or stored ones, give the same values`, async () => {
        const topic = await rig.topic()
        const typed = each.topic(topic)
        const sent = comparables(each, await sendEveryWay(typed, each.values))
        for (const [way, values] of Object.entries(await readEveryWay(typed, sent.length))) {
          assert.deepEqual(comparables(each, values), sent, way)
        }
      })
    }

    test("members of a group and readers of pages get the values of every codec", async () => {
      for (const each of typedCases) {
        const typed = each.topic(await rig.topic())
        await typed.producer().sendBatch(each.values)
        const expected = comparables(each, each.values)
        const member = await typed.consumerGroup("members").consumer()
        assert.deepEqual(comparables(each, await takeValues(() => member.nextWithin(patienceMs))), expected, each.name)
        await member.shutdown()
        const reader = await typed.consumerGroup("pages").reader()
        const values: unknown[] = []
        while (values.length < 3) {
          const page = await reader.nextWithin(patienceMs)
          values.push(...page.messages.map((message) => message.value))
          await reader.ackPage(page)
        }
        assert.deepEqual(comparables(each, values), expected, each.name)
        await reader.shutdown()
      }
    })

    test("what the codec knows of its payloads stands in their headers, and in nobody else's", async () => {
      for (const each of typedCases) {
        const topic = await rig.topic()
        const typed = each.topic(topic)
        await typed.producer().sendBatch(each.values)
        await typed.publish(null)
        const records = await bytesOf(topic, 4)
        for (const [index, record] of records.entries()) {
          const said = index === 3 ? undefined : each.contentType
          const header = record.headers.get("millrace-ct")
          assert.equal(header?.value, said, `${each.name}, record ${index}`)
          if (said !== undefined) assert.equal(header?.kind, "uint8")
          const fingerprint = record.headers.get("millrace-sfp")
          assert.equal(fingerprint?.bytes.length, said === 7 ? 32 : undefined)
        }
      }
    })

    test("a topic that does not describe its records leaves the content type out, and reads all the same", async () => {
      const topic = await rig.topic()
      const json = topic.json<number>(new Json(Number), { describe: false })
      await json.publish(7, { headers: { own: "1" } })
      const [record] = await bytesOf(topic, 1)
      assert.deepEqual(
        Array.from(record?.headers ?? [], ([name]) => name),
        ["own"],
      )
      assert.deepEqual(await valuesOf(json), [7])
    })
  })

  describe("typed tombstones and headers", () => {
    test("A-17: null by any typed send has no payload for anybody, and the codec sees neither end of it", async () => {
      const topic = await rig.topic()
      const codec = new Counting()
      const typed = topic.typed(codec)
      const producer = typed.producer()
      await typed.publish(null, { key: "k" })
      await producer.send(null, { key: "k" })
      await producer.sendTo(topic, null, { key: "k" })
      await producer.sendAndConfirm(null, { key: "k" })
      await producer.sendBatch([null])
      await producer.sendRecords([{ value: null, key: "k" }])
      await typed.publishBatch().addValue(null, { key: "k" }).extendValues([null]).send()
      await producer.shutdown()
      const background = typed.producer({ background: true })
      await (await background.enqueue({ value: null, key: "k" })).delivery
      await background.shutdown()
      assert.equal(codec.encoded, 0)
      const count = 9
      for (const record of await bytesOf(topic, count)) assert.equal(record.payload, null)
      const reader = await typed.records("reader")
      assert.deepEqual(
        (await reader.poll()).map(({ kind }) => kind),
        new Array(count).fill("tombstone"),
      )
      await reader[Symbol.asyncDispose]()
      const consumer = typed.consumer(undefined, 0)
      for (let seen = 0; seen < count; seen++) {
        const message = await consumer.nextWithin(patienceMs)
        assert.deepEqual([message.kind, message.payload, message.value], ["tombstone", null, undefined])
      }
      await consumer.shutdown()
      assert.equal(codec.decoded, 0)
    })

    test("A-17: an empty payload is a value, and JSON's own null is inside of one", async () => {
      const topic = await rig.topic()
      await topic.text().publish("")
      await topic.bytes().publish(new Uint8Array(0))
      await topic.text().publish(null)
      assert.deepEqual(await valuesOf(topic.text()), ["", "", undefined])
      const boxes = (await rig.topic()).json<unknown>(new Json((value) => value))
      await boxes.publish([null])
      assert.deepEqual(await valuesOf(boxes), [[null]])
    })

    test("A-17: a codec that asks for tombstones gives them a value, by every way of reading", async () => {
      const topic = await rig.topic()
      const codec: Codec<string> = { ...textCodec, decodeTombstone: () => "gone" }
      const typed = topic.typed(codec)
      await typed.producer().sendBatch(["here", null, "again"])
      for (const [way, values] of Object.entries(await readEveryWay(typed, 3))) {
        assert.deepEqual(values, ["here", "gone", "again"], way)
      }
    })

    test("A-19: repeated headers keep their order by every typed send; behind them stands what the codec says", async () => {
      const topic = await rig.topic()
      const typed = topic.json<number>(new Json(Number))
      const headers: HeadersInit = [
        ["a", "1"],
        ["b", "x"],
        ["a", "2"],
      ]
      const producer = typed.producer()
      await typed.publish(1, { headers })
      await producer.send(2, { headers })
      await producer.sendRecords([{ value: 3, headers }])
      await typed.publishBatch().addValue(4, { headers }).send()
      await producer.shutdown()
      const own = [
        ["a", "1"],
        ["b", "x"],
        ["a", "2"],
      ]
      for (const record of await bytesOf(topic, 4)) {
        const pairs = Array.from(record.headers, ([name, value]) => [name, value.value])
        assert.deepEqual(pairs, [...own, ["millrace-ct", 1]])
      }
      const consumer = typed.consumer(undefined, 0)
      const message = await consumer.nextWithin(patienceMs)
      assert.deepEqual(
        message.headers.getAll("a").map((value) => value.value),
        ["1", "2"],
      )
      await consumer.shutdown()
    })

    test("index entries and a correlation go with a value, and reserved names are refused with nothing sent", async () => {
      const topic = await rig.topic()
      const typed = topic.json<number>(new Json(Number))
      await typed.publish(1, { metadata: { index: { region: "eu" }, correlation: "c-1" } })
      const [record] = await bytesOf(topic, 1)
      assert.equal(record?.headers.get("millrace-idx.region")?.value, "eu")
      assert.equal(record?.headers.get("millrace-corr")?.value, "c-1")
      await refused(() => typed.publish(2, { headers: { "millrace-ct": "1" } }), {
        kind: "invalid",
        says: ["millrace-ct", /reserved/],
      })
      assert.equal((await topic.watermarks())[0]?.end, 1n)
    })
  })

  describe("bytes of one codec read by another", () => {
    for (const each of typedCases) {
      const { bad } = each
      if (bad === undefined) continue
      test(`${each.name}: what does not decode is an error in its place for a reader and for a consumer`, async () => {
        const topic = await rig.topic()
        const typed = each.topic(topic)
        await typed.publish(each.values[0])
        await topic.producer().send(bad)
        await typed.publish(each.values[1])
        const reader = await typed.records("reader")
        const results = await reader.poll()
        assert.deepEqual(
          results.map(({ kind }) => kind),
          ["record", "error", "record"],
        )
        const [, failed] = results
        assert.ok(failed?.kind === "error")
        assert.equal(failed.position.offset, 1n)
        checkedRefusal(failed.error, { kind: "decode", outcome: "rejected", retryable: false })
        await reader[Symbol.asyncDispose]()
        const consumer = typed.consumer(undefined, 0)
        await consumer.nextWithin(patienceMs)
        const error = await refused(() => consumer.nextWithin(patienceMs), "decode")
        assert.equal(error.context.offset, 1n)
        const last = await consumer.nextWithin(patienceMs)
        assert.deepEqual(comparables(each, [last.value]), comparables(each, [each.values[1]]))
        await consumer.shutdown()
      })
    }
  })
}

/** Counts its calls. */
class Counting implements Codec<string> {
  readonly name = "counting"
  encoded = 0
  decoded = 0

  encode(value: string): Uint8Array {
    this.encoded++
    return textCodec.encode(value)
  }

  decode(payload: Uint8Array): string {
    this.decoded++
    return text(payload)
  }
}

/** Sends by every way there is, one after another, and answers what was sent in order. */
async function sendEveryWay(typed: TypedTopic<unknown>, values: TypedCase["values"]): Promise<unknown[]> {
  const [one, two, three] = values
  await typed.publish(one)
  const producer = typed.producer()
  await producer.send(two, { key: "k" })
  await producer.sendTo(typed, three)
  await producer.sendBatch([one, two])
  await producer.sendRecords([{ value: three, key: "k", headers: { h: "1" }, id: 7n }, { value: one }])
  await producer.sendAndConfirm(two)
  await producer.shutdown()
  await typed
    .publishBatch()
    .addValue(three, { headers: { h: "2" } })
    .extendValues([one])
    .send()
  const background = typed.producer({ background: true })
  await background.send(two)
  await background.enqueue({ value: three })
  await background.flush()
  await background.shutdown()
  return [one, two, three, one, two, three, one, two, three, one, two, three]
}

/** The values of `count` records, by each way of reading that needs no group. */
async function readEveryWay(typed: TypedTopic<unknown>, count: number): Promise<Record<string, unknown[]>> {
  const ways: Record<string, unknown[]> = { nextWithin: [], stream: [], batches: [], rented: [], run: [] }
  ways.records = await valuesOf(typed)
  const single = typed.consumer(undefined, 0)
  ways.nextWithin = await takeValues(() => single.nextWithin(patienceMs), count)
  await single.shutdown()
  const streamed = typed.consumer(undefined, 0, { batchLength: 5 })
  for await (const message of streamed) if (ways.stream?.push(message.value) === count) break
  await streamed.shutdown()
  const batched = typed.consumer(undefined, 0, { batchLength: 5 })
  for await (const batch of batched.batches()) {
    for (const message of batch) ways.batches?.push(message.value)
    if (ways.batches?.length === count) break
  }
  await batched.shutdown()
  const renting = typed.consumer(undefined, 0, { batchLength: 5 })
  while ((ways.rented?.length ?? count) < count) {
    using batch = await renting.receiveRented()
    for (const message of batch) ways.rented?.push(message.value)
  }
  await renting.shutdown()
  const running = typed.consumer(undefined, 0)
  const run = running.run((message, context) => {
    if (ways.run?.push(message.value) === count) context.stop()
  })
  await settlesWithin("a run over typed messages", run)
  await running.shutdown()
  return ways
}

async function takeValues(next: () => Promise<TypedMessage<unknown>>, count = 3): Promise<unknown[]> {
  const values: unknown[] = []
  while (values.length < count) values.push((await next()).value)
  return values
}

/** Every value up to the tail; `undefined` for a tombstone. */
async function valuesOf(typed: TypedTopic<unknown>): Promise<unknown[]> {
  await using reader = await typed.records("values")
  const values: unknown[] = []
  for await (const result of reader.stream()) {
    assert.ok(result.kind === "record" || result.kind === "tombstone", result.kind)
    values.push(result.kind === "record" ? result.value : undefined)
  }
  return values
}

/** The records as anybody sees them who knows nothing of the codec. */
async function bytesOf(topic: Topic, count: number): Promise<Message[]> {
  await using consumer = topic.consumer(undefined, 0)
  return (await take(consumer, count)).map((message) => message.copy())
}
