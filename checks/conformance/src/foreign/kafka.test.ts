/** What we write is read by Kafka's own client, and the reverse. */
import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { serverNeed, sharedServer } from "@millrace/servers"
import { type Client, connect, HeaderValue, type Message, type Topic } from "millrace"
import { encode, take } from "../rig/client-rig.ts"
import { until } from "../rig/deadline.ts"
import { text } from "../rig/records.ts"
import { type JavaDraft, javaOffsets, javaProduce, javaRead } from "./java-client.ts"

const need = await serverNeed("kafka")

describe("Kafka across clients", { skip: need === undefined ? false : `needs kafka: ${need}` }, () => {
  // No hexadecimal digit comes behind the hyphen of `foreign-`, so the driver takes the name as it stands.
  const run = `run${process.pid}`
  let url: string
  let client: Client
  before(async () => {
    url = (await sharedServer("kafka")).url
    client = await connect(url)
  })
  after(() => client?.close())

  const fresh = async (name: string, partitions = 1): Promise<{ topic: Topic; kafka: string }> => {
    const topic = client.stream(`foreign-${run}`).topic(name)
    await topic.ensure(partitions)
    return { topic, kafka: `foreign-${run}.${name}` }
  }

  test("Java reads what we write: absent and empty, headers in order, times", async () => {
    for (const compression of ["none", "gzip", "snappy", "lz4", "zstd"] as const) {
      const { topic, kafka } = await fresh(`ours-${compression}`)
      await topic.producer({ compression }).sendBatch([
        { payload: encode("plain") },
        { payload: null, key: "k" },
        {
          payload: new Uint8Array(0),
          key: "k",
          headers: [
            ["a", "1"],
            ["b", "x"],
            ["a", "2"],
          ],
        },
        {
          payload: encode("kinds"),
          headers: [
            ["n", HeaderValue.int32(7)],
            ["s", "text"],
          ],
        },
        { payload: encode("dated"), timestampMicros: 1_000_000_000_123_000n },
        { payload: encode("z".repeat(10_000)) },
      ])
      const read = await javaRead(url, kafka)
      assert.deepEqual(
        read.map(({ value }) => (value === null ? null : text(value).slice(0, 10))),
        ["plain", null, "", "kinds", "dated", "zzzzzzzzzz"],
        compression,
      )
      assert.deepEqual(
        read.map(({ key }) => (key === null ? null : text(key))),
        [null, "k", "k", null, null, null],
      )
      const plain = read[2]?.headers.map(([name, value]) => `${name}=${text(value ?? new Uint8Array(0))}`)
      assert.deepEqual(plain, ["a=1", "b=x", "a=2"], "text headers have no company")
      const [number, spoken] = read[3]?.headers ?? []
      assert.deepEqual(number?.[1], Uint8Array.of(7, 0, 0, 0))
      assert.equal(text(spoken?.[1] ?? null), "text")
      assert.equal(read[4]?.timeMs, 1_000_000_000_123n)
      assert.equal(read[5]?.value?.length, 10_000)
    }
  })

  test("Java reads what a connection compresses, and what its producers compress otherwise, direct and in the background", async () => {
    const { topic, kafka } = await fresh("packed")
    const packed = await connect(`${url}?compression=zstd`)
    const same = packed.stream(topic.stream).topic(topic.name)
    const payload = encode("a block of text. ".repeat(1_000))
    await same.producer().send(payload)
    await same.producer({ compression: "none" }).send(payload)
    await same.producer({ compression: "lz4", background: true }).sendBatch([payload, payload])
    await packed.close()
    const read = await javaRead(url, kafka)
    assert.deepEqual(
      read.map(({ value }) => (value === null ? -1 : Buffer.compare(value, payload))),
      [0, 0, 0, 0],
    )
  })

  test("A-20: what Java writes is read, with every compression, in small and large batches", async () => {
    for (const compression of ["none", "gzip", "snappy", "lz4", "zstd"]) {
      const { topic, kafka } = await fresh(`theirs-${compression}`)
      const records: JavaDraft[] = [
        {
          value: encode("first"),
          key: encode("k"),
          headers: [
            ["a", encode("1")],
            ["a", encode("2")],
          ],
        },
        { value: null, key: encode("gone") },
        {
          value: new Uint8Array(0),
          key: new Uint8Array(0),
          headers: [
            ["raw", Uint8Array.of(255, 0)],
            ["none", null],
          ],
        },
        { value: encode("old"), timeMs: 12_345n },
        ...Array.from({ length: 2_000 }, (_, index) => ({ value: encode(`row ${index} ${"abc".repeat(index % 50)}`) })),
        { value: Buffer.alloc(300_000, "a block of text. ") },
      ]
      await javaProduce(url, kafka, { compression, records: records.map((record) => ({ ...record, partition: 0 })) })
      const consumer = topic.consumer(undefined, 0, { startAt: { kind: "first" } })
      const seen = await take(consumer, records.length)
      await consumer.shutdown()
      for (const [index, record] of records.entries()) {
        const message = seen[index] as Message
        assert.deepEqual(bytes(message.payload), bytes(record.value), `${compression}, record ${index}`)
        assert.deepEqual(bytes(message.key), bytes(record.key ?? null))
      }
      assert.deepEqual(
        [...(seen[0] as Message).headers].map(([name, value]) => [name, value.value]),
        [
          ["a", "1"],
          ["a", "2"],
        ],
      )
      assert.deepEqual((seen[2] as Message).headers.get("raw")?.bytes, Uint8Array.of(255, 0))
      assert.equal((seen[3] as Message).timestampMicros, 12_345_000n)
    }
  })

  test("A-16: in a compacted topic a consumer goes over the holes, and its lag ends at 0", async () => {
    const topic = client.stream(`foreign-${run}`).topic("compacted")
    const config = {
      "cleanup.policy": "compact",
      "segment.ms": "100",
      "min.cleanable.dirty.ratio": "0.01",
      "min.compaction.lag.ms": "0",
      "max.compaction.lag.ms": "100",
    }
    await topic.ensure(1, { native: { config } })
    const producer = topic.producer()
    const wave = async (name: string): Promise<void> => {
      await producer.sendBatch(Array.from({ length: 20 }, (_, n) => ({ payload: encode(`${name}${n}`), key: `k${n}` })))
    }
    await wave("old")
    await wave("new")
    const offsets = await until("the old values to be compacted away", async () => {
      // Only segments that are closed are compacted, and a closed one takes a record behind it.
      await producer.sendBatch([{ payload: encode("tick"), key: "tick" }])
      const read = await javaRead(url, `foreign-${run}.compacted`)
      const [first] = read
      return first !== undefined && first.offset >= 20n ? read.map(({ offset }) => offset) : undefined
    })
    const consumer = topic.consumer(`compacted-${run}`, 0, { commitPolicy: { kind: "each" } })
    const seen = await take(consumer, offsets.length)
    assert.deepEqual(
      seen.map(({ position }) => position.offset),
      offsets,
    )
    await consumer.commit(seen.at(-1))
    assert.deepEqual(
      (await consumer.lag()).map((each) => each.lag),
      [0n],
    )
    await consumer.shutdown()
  })

  test("A-21: keys go to the partitions that Java chooses", async () => {
    const { topic, kafka } = await fresh("keys", 12)
    const keys = [
      "100:48069",
      "wu",
      "fd7af248-ce5c-46a5-93d7-1c0c9005b99d",
      "ä",
      ...Array.from({ length: 60 }, (_, n) => `key-${n}`),
    ]
    const landed = await javaProduce(url, kafka, {
      compression: "none",
      records: keys.map((key) => ({ key: encode(key), value: encode("java") })),
    })
    const producer = topic.producer()
    for (const [index, key] of keys.entries()) {
      const { confirmations } = await producer.send(encode("ours"), { key })
      assert.equal(confirmations[0]?.partition, landed[index]?.partition, key)
    }
  })

  test("A-12: what is committed is the next offset, as Java sees it, for groups and for named consumers", async () => {
    const { topic, kafka } = await fresh("commits", 2)
    await topic.producer().sendBatch(["a", "b", "c"].map(encode), { partition: 1 })
    const group = await topic.consumerGroup(`group-${run}`).consumer({ commitPolicy: { kind: "disabled" } })
    const [, , third] = await take(group, 3)
    await group.commit(third)
    await group.shutdown()
    assert.deepEqual(await javaOffsets(url, `group-${run}`), new Map([[`${kafka}/1`, 3n]]))
    const named = topic.consumer(`reader-${run}`, 1, { commitPolicy: { kind: "disabled" } })
    await named.storeOffset(1n)
    await named.shutdown()
    assert.deepEqual(await javaOffsets(url, `millrace.consumer.reader-${run}`), new Map([[`${kafka}/1`, 2n]]))
  })
})

function bytes(value: Uint8Array | null): string | null {
  return value === null ? null : Buffer.from(value).toString("base64")
}
