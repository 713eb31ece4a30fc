/** Chapter: how neighbours changed what they carried, and what is right. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { HeaderValue, Json, type Message, type Topic } from "millrace"
import { type ClientRig, encode, take } from "../rig/client-rig.ts"
import { text } from "../rig/records.ts"

export function fieldFidelityChapter(rig: ClientRig): void {
  describe("field reports: fidelity", () => {
    test("A-17: a tombstone is null on both ends, an empty payload is empty, and keys alike", async () => {
      const topic = await rig.topic()
      const producer = topic.producer()
      await producer.send(null, { key: "k" })
      await producer.send(new Uint8Array(0), { key: "k" })
      await producer.send(encode("v"))
      await topic.publish().payload(null).key("k").send()
      await producer.shutdown()
      const [tombstone, empty, keyless, published] = await read(topic, 4)
      assert.equal(tombstone?.payload, null)
      assert.equal(text(tombstone?.key), "k")
      assert.deepEqual(empty?.payload, new Uint8Array(0))
      assert.equal(keyless?.key, null)
      assert.equal(published?.payload, null)
    })

    test("A-17: a codec is not called for a tombstone", async () => {
      const topic = await rig.topic()
      await topic.publish().payload(null).key("k").send()
      let calls = 0
      const codec = new Json<number>((value) => {
        calls++
        return Number(value)
      })
      const reader = await topic.json(codec).records("reader")
      await reader.poll()
      assert.equal(calls, 0)
      await reader[Symbol.asyncDispose]()
    })

    test("A-19: repeated header names are sent and read in their order", async () => {
      const topic = await rig.topic()
      const headers: [string, string][] = [
        ["a", "1"],
        ["b", "x"],
        ["a", "2"],
      ]
      await topic.producer().send(encode("p"), { headers })
      const [message] = await read(topic, 1)
      assert.deepEqual(
        [...(message?.headers ?? [])].map(([name, value]) => [name, value.value]),
        headers,
      )
      assert.deepEqual(
        message?.headers.getAll("a").map((value) => value.value),
        ["1", "2"],
      )
    })

    for (const [key, partitions, partition] of [
      ["100:48069", 12, 9],
      ["wu", 10, 0],
      ["fd7af248-ce5c-46a5-93d7-1c0c9005b99d", 32, 26],
    ] as const) {
      test(`A-21: key ${key} of ${partitions} partitions goes where Kafka's own client sends it`, async (t) => {
        if (rig.under.ownKeyHash !== undefined) return t.skip(rig.under.ownKeyHash)
        const topic = await rig.topic(partitions)
        const producer = topic.producer()
        for (const form of [key, encode(key)]) {
          const sent = await producer.send(encode("p"), { key: form })
          assert.equal(sent.confirmations[0]?.partition, partition)
        }
        const batch = await producer.sendBatch([{ payload: encode("p"), key }], {})
        assert.equal(batch.confirmations[0]?.partition, partition)
        await producer.shutdown()
      })
    }

    test("A-18: a message as JSON loses no digit and does not throw", async () => {
      const topic = await rig.topic()
      const id = 2n ** 127n + 1n
      const headers = [["n", HeaderValue.uint64(2n ** 64n - 1n)] as const]
      // Where the sender's time is the only one, backends refuse what lies far ahead.
      const far = rig.client.manifest.read.originTimestamp !== "only"
      const timestampMicros = far ? 2n ** 53n + 1n : 1_700_000_000_001_000n
      await topic.producer().send(encode("p"), { id, headers, timestampMicros })
      const [message] = await read(topic, 1)
      const json = JSON.stringify(message)
      for (const digits of [String(2n ** 64n - 1n), String(timestampMicros), String(message?.timestampMicros)]) {
        assert.ok(json.includes(digits), `${digits} is not in ${json}`)
      }
    })
  })
}

async function read(topic: Topic, count: number): Promise<Message[]> {
  await using consumer = topic.consumer(undefined, 0)
  return (await take(consumer, count)).map((message) => message.copy())
}
