/** Chapter: what a producer does when topics are raced for, when one record is too large, and when it has to give up. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type MillraceError, RecordTooLargeError } from "@millrace/contract"
import { type ProducerOptions, PublishFailedError, type Topic } from "millrace"
import { type ClientRig, encode, takeTexts } from "../rig/client-rig.ts"
import { settlesWithin } from "../rig/deadline.ts"
import { numbered } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

const largePayloadBytes = 64 << 10

export function sendingFailuresChapter(rig: ClientRig): void {
  describe("a producer whose topic is not there yet", () => {
    test("creates it at the same time as another one does, and both succeed", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = rig.handle()
      const others = await Promise.all([rig.connect(), rig.connect()])
      const racers = [topic, ...others.map((client) => rig.through(client, topic))]
      const producers = racers.map((one) => one.producer({ partitions: 2 }))
      await settlesWithin(
        "three first sends at once",
        Promise.all(producers.map((producer, i) => producer.send(encode(`r${i}`), { partition: 1 }))),
      )
      assert.deepEqual((await everything(topic, 1)).toSorted(), numbered("r", 0, 3))
      assert.equal((await topic.describe()).partitions, 2)
      await Promise.all([
        ...producers.map((producer) => producer.shutdown()),
        ...others.map((client) => client.close()),
      ])
    })

    test("changes nothing of one that is there", async () => {
      const topic = await rig.topic(2, { expireAfterMs: 3_600_000, maxTopicBytes: 1_000_000_000n })
      const before = await topic.describe()
      const producer = topic.producer({ partitions: 3, expireAfterMs: 60_000, maxTopicBytes: 2_000_000_000n })
      await producer.send(encode("a"))
      await producer.shutdown()
      assert.deepEqual(await topic.describe(), before)
    })

    test("fails early by init, and says what is missing", async () => {
      const topic = rig.handle()
      const producer = topic.producer({ createTopic: false })
      await refused(() => producer.init(), { kind: "not-found", says: [topic.name], retryable: false })
      await topic.ensure(1)
      await producer.init()
      await producer.send(encode("a"))
      await producer.shutdown()
    })
  })

  describe("options that contradict each other", () => {
    const contradictions: readonly (readonly [string, ProducerOptions, string, string])[] = [
      ["two expiries", { expireAfterMs: 1_000, neverExpire: true }, "expireAfterMs", "neverExpire"],
      ["two sizes", { maxTopicBytes: 1n, unlimitedTopicSize: true }, "maxTopicBytes", "unlimitedTopicSize"],
    ]
    for (const [what, options, one, other] of contradictions) {
      test(`${what} are refused when the producer is made, and no topic is`, async () => {
        const topic = rig.handle()
        await refused(() => topic.producer(options), { kind: "invalid", says: [one, other] })
        await refused(() => topic.describe(), "not-found")
      })
    }

    test("a batch with a key and a partition is refused", async () => {
      const topic = await rig.topic(2)
      const producer = topic.producer()
      await refused(() => producer.sendBatch([encode("a")], { key: "k", partition: 0 }), {
        kind: "invalid",
        says: ["key", "partition"],
      })
      await producer.shutdown()
      assert.deepEqual(await everything(topic, 0), [])
    })

    test("a compression that the backend lacks is refused, with those that it has; all that it has are taken", async () => {
      const { compression } = rig.client.manifest.append
      const topic = await rig.topic()
      for (const codec of ["none", "gzip", "snappy", "lz4", "zstd"] as const) {
        if (!compression.includes(codec)) {
          await refused(() => topic.producer({ compression: codec }), {
            kind: "unsupported",
            says: ["compression", codec, rig.client.manifest.backend, "none"],
          })
        } else {
          const producer = topic.producer({ compression: codec })
          await producer.sendBatch(numbered(`${codec}:`, 0, 50).map(encode))
          await producer.shutdown()
        }
      }
      const sent = compression.flatMap((codec) => numbered(`${codec}:`, 0, 50))
      assert.deepEqual(await everything(topic, 0), sent)
      await refused(() => topic.producer({ compression: "brotli" as never }), {
        kind: "invalid",
        says: ["brotli", "zstd"],
      })
    })

    test("idempotent: true is refused where the backend recognises no resends", async (t) => {
      const { dedup } = rig.client.manifest.append
      const topic = await rig.topic()
      if (dedup !== "none") {
        await topic.producer({ idempotent: true }).send(encode("a"))
        return t.diagnostic("this backend recognises resends")
      }
      await refused(() => topic.producer({ idempotent: true }), { kind: "unsupported", says: ["idempotent"] })
    })
  })

  describe("a record that is too large", () => {
    test("of sends that are not awaited fails alone, before it is sent, with its size and the limit", async () => {
      const topic = await rig.topic()
      const producer = topic.producer()
      const limitBytes = rig.client.manifest.limits.payloadBytes
      const payloads = [encode("r0"), encode("r1"), new Uint8Array(limitBytes + 1), encode("r2")]
      const sends = await Promise.allSettled(payloads.map((payload) => producer.send(payload)))
      const error = onlyFailure(sends, 2)
      assert.ok(error instanceof RecordTooLargeError)
      assert.deepEqual([error.context.sizeBytes, error.context.limitBytes], [limitBytes + 1, limitBytes])
      assert.deepEqual(await everything(topic, 0), numbered("r", 0, 3))
      await producer.send(encode("r3"))
      await producer.shutdown()
    })

    test("for the topic alone fails alone, with its size and the limit; its neighbours land in order", async (t) => {
      const { tight } = rig.under
      if (tight === undefined) return t.skip("the topics of this backend have no limit of their own")
      const topic = await rig.topic(1, tight.options)
      const producer = topic.producer()
      await producer.init()
      const payloads = [...numbered("r", 0, 20).map(encode), new Uint8Array(tight.tooLargeBytes).fill(0x61)]
      payloads.push(...numbered("r", 20, 40).map(encode))
      const sends = await settlesWithin(
        "sends, one of them too large",
        Promise.allSettled(payloads.map((payload) => producer.send(payload))),
      )
      const error = causeOf(onlyFailure(sends, 20))
      assert.ok(error instanceof RecordTooLargeError, String(error))
      assert.equal(error.retryable, false)
      assert.equal(error.outcome, "rejected")
      assert.ok(Number(error.context.sizeBytes) >= tight.tooLargeBytes, `sizeBytes is ${error.context.sizeBytes}`)
      assert.equal(error.context.limitBytes, tight.limitBytes)
      await producer.send(encode("r40"))
      assert.deepEqual(await everything(topic, 0), numbered("r", 0, 41))
      await producer.shutdown()
    })

    test("in the midst of a batch is told of, with all that did not land, and what is told as confirmed is there", async (t) => {
      const { tight } = rig.under
      if (tight === undefined) return t.skip("the topics of this backend have no limit of their own")
      const topic = await rig.topic(1, tight.options)
      const producer = topic.producer({ batchLength: 10 })
      const payloads = numbered("r", 0, 40).map((one, i) =>
        i === 15 ? new Uint8Array(tight.tooLargeBytes) : encode(one),
      )
      const [outcome] = await Promise.allSettled([producer.sendBatch(payloads)])
      assert.ok(outcome?.status === "rejected")
      const error: unknown = outcome.reason
      assert.ok(error instanceof PublishFailedError, String(error))
      assert.ok(error.publishCause() instanceof RecordTooLargeError)
      assert.equal(error.outcome, "rejected")
      const landed = await everything(topic, 0)
      const neighbours = [...numbered("r", 0, 15), ...numbered("r", 16, 20)]
      assert.deepEqual(landed, neighbours, "the neighbours within its request, and nothing behind the request")
      assert.equal(
        error.committed.reduce((sum, range) => sum + range.count, 0),
        landed.length,
      )
      assert.equal(error.unconfirmed.length, 21)
      assert.equal(error.unconfirmed[0]?.payload?.length, tight.tooLargeBytes)
      await topic.batch(error.unconfirmed.slice(1))
      assert.deepEqual(await everything(topic, 0), [...neighbours, ...numbered("r", 20, 40)])
      await producer.shutdown()
    })

    test("is not what a batch becomes: more than a request takes goes out in parts, in order", async () => {
      const topic = await rig.topic()
      const producer = topic.producer()
      const count = Math.ceil((2.5 * rig.client.manifest.limits.batchBytes) / largePayloadBytes)
      const payloads = Array.from({ length: count }, (_, i) => {
        const payload = new Uint8Array(largePayloadBytes)
        new DataView(payload.buffer).setUint32(0, i)
        return payload
      })
      const sent = await settlesWithin("a large batch", producer.sendBatch(payloads), 30_000)
      const confirmed = sent.confirmations.reduce((sum, range) => sum + range.count, 0)
      assert.equal(confirmed, count)
      assert.ok(sent.confirmations.length >= 3, `${sent.confirmations.length} requests`)
      await using reader = topic.consumer(undefined, 0, { startAt: { kind: "first" } })
      for (let i = 0; i < count; i++) {
        const payload = (await reader.nextWithin(15_000)).payload as Uint8Array
        assert.equal(new DataView(payload.buffer, payload.byteOffset).getUint32(0), i)
      }
      await producer.shutdown()
    })
  })

  describe("a producer", () => {
    test("sends a batch by key where the key points, and stores the key with each record", async () => {
      const topic = await rig.topic(4)
      const producer = topic.producer()
      const home = (await producer.send(encode("r0"), { key: "k" })).confirmations[0]?.partition as number
      const sent = await producer.sendBatch(numbered("r", 1, 4).map(encode), { key: "k" })
      assert.deepEqual([...new Set(sent.confirmations.map(({ partition }) => partition))], [home])
      const away = rig.handle()
      const other = await producer.sendTo(away, encode("b"), { key: "k", headers: { h: "1" } })
      await producer.shutdown()
      await using reader = topic.consumer(undefined, home)
      for (let i = 0; i < 4; i++) {
        const message = await reader.nextWithin(15_000)
        assert.equal(new TextDecoder().decode(message.key ?? new Uint8Array(0)), "k")
      }
      await using there = away.consumer(undefined, other.confirmations[0]?.partition ?? 0)
      const message = await there.nextWithin(15_000)
      assert.equal(message.headers.get("h")?.value, "1")
      assert.equal(new TextDecoder().decode(message.key ?? new Uint8Array(0)), "k")
    })

    test("asks a partitioner with the topic, the record and the count of partitions", async () => {
      const topic = await rig.topic(3)
      const asked: unknown[] = []
      const producer = topic.producer({
        partitioner: ({ stream, name }, { payload }, partitions) => {
          asked.push([stream, name, payload?.length, partitions])
          return 1
        },
      })
      const sent = await producer.send(encode("abc"))
      assert.equal(sent.confirmations[0]?.partition, 1)
      assert.deepEqual(asked, [[topic.stream, topic.name, 3, 3]])
      await producer.shutdown()
    })
  })
}

/** The error of the only send that failed, which must be the one at `index`. */
function onlyFailure(sends: readonly PromiseSettledResult<unknown>[], index: number): MillraceError {
  assert.deepEqual(
    sends.flatMap(({ status }, i) => (status === "rejected" ? [i] : [])),
    [index],
  )
  return (sends[index] as PromiseRejectedResult).reason as MillraceError
}

function causeOf(error: MillraceError): Error {
  return error instanceof PublishFailedError ? error.publishCause() : error
}

async function everything(topic: Topic, partition: number): Promise<string[]> {
  const { first, end } = (await topic.watermarks())[partition] as { readonly first: bigint; readonly end: bigint }
  if (first === end) return []
  await using reader = topic.consumer(undefined, partition, { startAt: { kind: "first" } })
  return await takeTexts(reader, Number(end - first))
}
