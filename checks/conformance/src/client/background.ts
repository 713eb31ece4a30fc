/** Chapter: sends in the background: accepted at once, confirmed later. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { MillraceError } from "@millrace/contract"
import { type BackgroundOptions, PublishFailedError, type Topic } from "millrace"
import { type ClientRig, encode, nothingComes, takeTexts } from "../rig/client-rig.ts"
import { settlesWithin } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

/** Sends that are not awaited, of 100 bytes, in A-24. */
const burst = 10_000

export function backgroundChapter(rig: ClientRig): void {
  describe("a background producer", () => {
    test("accepts sends without confirmations; what was accepted is there when flush settles", async () => {
      const topic = rig.handle()
      const producer = topic.producer({ background: true, partitions: 2 })
      const sent = await producer.send(encode("r0"), { partition: 1 })
      assert.deepEqual(sent.confirmations, [])
      const batch = await producer.sendBatch(numbered("r", 1, 4).map(encode), { partition: 1 })
      assert.deepEqual(batch.confirmations, [])
      await producer.flush()
      assert.deepEqual(await everything(topic, 1), numbered("r", 0, 4))
      await producer.send(encode("r4"), { partition: 1 })
      await producer.waitUntilAllSends()
      assert.deepEqual(await everything(topic, 1), numbered("r", 0, 5))
      assert.equal((await topic.describe()).partitions, 2)
      await producer.shutdown()
    })

    test("sends a lone record soon, without being told to", async () => {
      const topic = await rig.topic()
      const producer = topic.producer({ background: true })
      await producer.send(encode("alone"))
      await using reader = topic.consumer(undefined, 0)
      assert.equal(text((await reader.nextWithin(5_000)).payload), "alone")
      await producer.shutdown()
    })

    test("keeps the order of the calls in each partition, whatever kind they are, awaited or not", async () => {
      const topic = await rig.topic(2)
      const producer = topic.producer({ background: { maxInFlight: 5, batchLength: 50 } })
      const sends: Promise<unknown>[] = []
      for (let index = 0; index < 600; index += 3) {
        const to = { partition: (index / 3) % 2 }
        sends.push(producer.send(encode(`r${index}`), to))
        sends.push(producer.sendBatch([encode(`r${index + 1}`)], to))
        sends.push(producer.sendAndConfirm(encode(`r${index + 2}`), to))
      }
      await settlesWithin("600 sends", Promise.all(sends))
      await producer.shutdown()
      for (const partition of [0, 1]) {
        const own = numbered("r", 0, 600).filter((_, index) => Math.floor(index / 3) % 2 === partition)
        assert.deepEqual(await everything(topic, partition), own)
      }
    })

    test("over several lanes in balance loses nothing and doubles nothing", async () => {
      const topic = await rig.topic(3)
      const producer = topic.producer({ background: { shards: 3, sharding: "balanced", batchLength: 20 } })
      await Promise.all(numbered("r", 0, 500).map((one) => producer.send(encode(one))))
      await producer.shutdown()
      const all = await Promise.all([0, 1, 2].map((partition) => everything(topic, partition)))
      assert.deepEqual(all.flat().toSorted(), numbered("r", 0, 500).toSorted())
    })

    test("sends key, headers, id and time as a direct producer does, and to the same partition", async () => {
      const topic = await rig.topic(4)
      const direct = topic.producer()
      const home = (await direct.send(encode("direct"), { key: "k" })).confirmations[0]?.partition as number
      const producer = topic.producer({ background: true })
      const options = { headers: { h: "1" }, id: 0xabcdn, timestampMicros: 1_700_000_000_001_000n }
      await producer.send(encode("background"), { key: "k", ...options })
      await producer.send(null, { key: "k" })
      await producer.shutdown()
      await using reader = topic.consumer(undefined, home)
      assert.equal(text((await reader.nextWithin(15_000)).payload), "direct")
      const message = await reader.nextWithin(15_000)
      assert.equal(text(message.payload), "background")
      assert.equal(text(message.key), "k")
      assert.equal(message.id, options.id)
      assert.equal(message.originTimestampMicros, options.timestampMicros)
      assert.equal(message.headers.get("h")?.value, "1")
      assert.equal((await reader.nextWithin(15_000)).payload, null)
      await direct.shutdown()
    })

    test("has read the bytes of a send when it settles", async () => {
      const topic = await rig.topic()
      const producer = topic.producer({ background: true })
      const payload = encode("before")
      await producer.send(payload)
      payload.fill(0x78)
      await producer.shutdown()
      assert.deepEqual(await everything(topic, 0), ["before"])
    })

    test("shutdown delivers what was accepted; later sends are refused as closed, a second shutdown awaits the first", async () => {
      const topic = await rig.topic()
      const producer = topic.producer({ background: { lingerMs: 60_000, batchLength: 0, batchBytes: 0 } })
      await Promise.all(numbered("r", 0, 100).map((one) => producer.send(encode(one))))
      await settlesWithin("two shutdowns", Promise.all([producer.shutdown(), producer.shutdown()]))
      assert.deepEqual(await everything(topic, 0), numbered("r", 0, 100))
      for (const late of [
        () => producer.send(encode("late")),
        () => producer.sendBatch([encode("late")]),
        () => producer.sendAndConfirm(encode("late")),
        () => producer.enqueue({ payload: encode("late") }),
      ]) {
        await refused(late, { kind: "closed", retryable: false })
      }
      assert.equal((await everything(topic, 0)).length, 100)
    })

    test("a client's close delivers what its producers accepted", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await rig.topic()
      const client = await rig.connect()
      const producer = rig.through(client, topic).producer({ background: { lingerMs: 60_000 } })
      await Promise.all(numbered("r", 0, 200).map((one) => producer.send(encode(one))))
      await settlesWithin("close", client.close())
      assert.deepEqual(await everything(topic, 0), numbered("r", 0, 200))
    })

    test("A-22: an empty batch is accepted, and makes nothing", async () => {
      const topic = rig.handle()
      const producer = topic.producer({ background: true })
      assert.deepEqual((await producer.sendBatch([])).confirmations, [])
      await producer.flush()
      await producer.shutdown()
      await refused(() => topic.describe(), "not-found")
    })

    test("A-24: 10,000 sends that are not awaited share requests, and are done soon", async () => {
      const topic = await rig.topic()
      const producer = topic.producer({ background: true })
      await producer.init()
      const payload = new Uint8Array(100)
      const began = performance.now()
      await Promise.all(Array.from({ length: burst }, () => producer.send(payload)))
      await settlesWithin("10,000 sends", producer.flush())
      const tookMs = performance.now() - began
      const [marks] = await topic.watermarks()
      assert.equal(marks?.end, BigInt(burst))
      assert.ok(tookMs < 2_000, `10,000 sends took ${tookMs.toFixed()} ms`)
      await producer.shutdown()
    })
  })

  describe("sendAndConfirm and enqueue", () => {
    test("tell where each record is, and what it had", async () => {
      const topic = await rig.topic(2)
      const producer = topic.producer({ background: true })
      const deliveries = await Promise.all(
        numbered("r", 0, 50).map((one) => producer.sendAndConfirm(encode(one), { partition: 1 })),
      )
      for (const [index, delivery] of deliveries.entries()) {
        assert.equal(delivery.partition, 1)
        assert.equal(delivery.keyBytes, 0)
        assert.equal(delivery.payloadBytes, `r${index}`.length)
        // Where more can be under way without offsets than with them, the background does without, and nothing pretends to know them.
        const { offsets, stored } = rig.client.manifest.append.inFlight
        assert.equal(delivery.offset, stored > offsets ? undefined : BigInt(index))
      }
      assert.deepEqual(await everything(topic, 1), numbered("r", 0, 50))
      const keyed = await producer.sendAndConfirm(null, { key: "four" })
      assert.deepEqual([keyed.keyBytes, keyed.payloadBytes], [4, 0])
      await producer.shutdown()
    })

    test("a handle settles when its record is confirmed, and forgetting it takes nothing back", async () => {
      const topic = await rig.topic()
      const producer = topic.producer({ background: true })
      const handle = await producer.enqueue({ payload: encode("r0"), headers: { h: "1" } })
      await producer.enqueue({ payload: encode("r1") })
      assert.equal((await settlesWithin("a delivery", handle.delivery)).partition, 0)
      await producer.shutdown()
      assert.equal((await handle.delivery).payloadBytes, 2)
      assert.deepEqual(await everything(topic, 0), ["r0", "r1"])
    })

    test("a direct producer has them too, with the offset", async () => {
      const topic = await rig.topic()
      const producer = topic.producer()
      assert.equal((await producer.sendAndConfirm(encode("r0"))).offset, 0n)
      const handle = await producer.enqueue({ payload: encode("r1"), key: "k" })
      const delivery = await handle.delivery
      assert.deepEqual([delivery.offset, delivery.keyBytes], [1n, 1])
      await producer.shutdown()
    })

    test("reject for themselves alone, and nothing of it goes to onError", async () => {
      const topic = rig.handle()
      const told: unknown[] = []
      const producer = topic.producer({ createTopic: false, background: { onError: (error) => void told.push(error) } })
      const [failed] = await settlesWithin("a delivery", Promise.allSettled([producer.sendAndConfirm(encode("a"))]))
      assert.ok(failed?.status === "rejected")
      assert.equal(causeOf(failed.reason).kind, "not-found")
      await producer.shutdown()
      assert.deepEqual(told, [])
    })
  })

  describe("options of a background producer", () => {
    const wrong: readonly (readonly [string, BackgroundOptions, readonly (string | RegExp)[]])[] = [
      ["no shards", { shards: 0 }, ["shards", "0"]],
      ["a negative linger", { lingerMs: -1 }, ["lingerMs", "-1"]],
      ["a fraction of a send", { batchLength: 0.5 }, ["batchLength", "0.5"]],
      ["another sharding", { sharding: "random" as never }, ["sharding", "random", "balanced"]],
      ["another failure mode", { failureMode: "drop" as never }, ["failureMode", "drop", "failImmediately"]],
      ["a wait that nobody asked for", { blockTimeoutMs: 5 }, ["blockTimeoutMs", "blockWithTimeout"]],
      ["a wait without its time", { failureMode: "blockWithTimeout" }, ["blockTimeoutMs"]],
      ["an onError that is no function", { onError: "log" as never }, ["onError", "function"]],
      ["an unknown option", { linger: 5 } as never, ["linger", "lingerMs"]],
    ]
    for (const [what, background, says] of wrong) {
      test(`${what} is refused when the producer is made`, async () => {
        const topic = rig.handle()
        await refused(() => topic.producer({ background }), { kind: "invalid", says })
      })
    }
  })

  test("A-24: an awaited sendAndConfirm in the background takes its linger and its append, no other timer", async () => {
    const client = await rig.connect("fresh")
    const topic = await rig.topic(1, {}, client)
    const producer = topic.producer({ background: { lingerMs: 0 } })
    await producer.sendAndConfirm(encode("warm"))
    const times: number[] = []
    for (let index = 0; index < 200; index++) {
      const began = performance.now()
      await producer.sendAndConfirm(encode("r"))
      times.push(performance.now() - began)
    }
    times.sort((one, other) => one - other)
    const median = times[100] as number
    assert.ok(median < 10, `the median of 200 awaited sends is ${median.toFixed(2)} ms`)
    await using reader = topic.consumer(undefined, 0)
    assert.equal((await takeTexts(reader, 201)).length, 201)
    await nothingComes(reader)
    await client.close()
  })
}

function causeOf(error: unknown): MillraceError {
  return (error instanceof PublishFailedError ? error.publishCause() : error) as MillraceError
}

async function everything(topic: Topic, partition: number): Promise<string[]> {
  const { first, end } = (await topic.watermarks())[partition] as { readonly first: bigint; readonly end: bigint }
  if (first === end) return []
  await using reader = topic.consumer(undefined, partition, { startAt: { kind: "first" } })
  return await takeTexts(reader, Number(end - first))
}
