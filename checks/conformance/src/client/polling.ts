/** Chapter: how messages are fetched and handed over: whole batches, rented ones, bounds of polls and of what is read ahead. The rules are those of docs/consumers.md and docs/positions.md. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import type { Consumer, ConsumerOptions, Message } from "millrace"
import { type ClientRig, encode, fill, nothingComes, take, takeTexts } from "../rig/client-rig.ts"
import { isPending, patienceMs, settlesWithin, until } from "../rig/deadline.ts"
import { storedBecomes, storedBy } from "../rig/progress.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

export function pollingChapter(rig: ClientRig): void {
  describe("whole batches", () => {
    test("hold every record once, in order, of one partition each, at most batchLength; each is a page", async () => {
      const topic = await rig.topic()
      for (let from = 0; from < 60; from += 20) await fill(topic, numbered("r", from, from + 20))
      const consumer = topic.consumer("reader", 0, { batchLength: 8, commitPolicy: { kind: "all" } })
      const seen: string[] = []
      for await (const batch of consumer.batches()) {
        assert.ok(batch.count >= 1 && batch.count <= 8, `a batch of ${batch.count}`)
        assert.equal(batch.lastOffset, batch.firstOffset + BigInt(batch.count) - 1n)
        if (batch.firstOffset > 0n) await storedBecomes(topic, "reader", batch.firstOffset - 1n)
        assert.equal(text(batch.message(0).payload), `r${batch.firstOffset}`)
        await refused(() => batch.message(batch.count), { kind: "invalid", says: [`${batch.count}`] })
        seen.push(...textsOf(batch))
        if (seen.length === 60) break
      }
      assert.deepEqual(seen, numbered("r", 0, 60))
      await consumer.shutdown()
      const stored = await storedBy(topic, "reader")
      assert.ok(
        stored !== undefined && stored < 59n,
        `${stored}: the loop was left early, its last batch is not handled`,
      )
    })

    test("a signal ends them with CancelledError, and single messages go on in the midst", async () => {
      const topic = await rig.filled(5)
      const consumer = topic.consumer("reader", 0, { batchLength: 3 })
      const abort = new AbortController()
      const seen: string[] = []
      await refused(async () => {
        for await (const batch of consumer.batches({ signal: abort.signal })) {
          seen.push(...textsOf(batch))
          if (seen.length === 5) setImmediate(() => abort.abort())
        }
      }, "cancelled")
      assert.deepEqual(seen, numbered("r", 0, 5))
      await fill(topic, ["r5", "r6"])
      assert.deepEqual(await takeTexts(consumer, 1), ["r5"])
      for await (const batch of consumer.batches()) {
        assert.deepEqual(textsOf(batch), ["r6"])
        break
      }
      await consumer.shutdown()
    })

    test("a shutdown ends them", async () => {
      const topic = await rig.filled(2)
      const consumer = topic.consumer("reader", 0)
      const loop = (async () => {
        for await (const batch of consumer.batches()) if (batch.lastOffset === 1n) await consumer.shutdown()
      })()
      await settlesWithin("a loop over batches", loop)
      assert.equal(await storedBy(topic, "reader"), 1n)
    })
  })

  describe("rented batches", () => {
    test("are looked at until they are given back; a copy stays; the next one handles the one before", async () => {
      const topic = await rig.filled(4)
      const consumer = topic.consumer("reader", 0, { batchLength: 2, commitPolicy: { kind: "each" } })
      const kept: Message[] = []
      const copies: Message[] = []
      let bytes: Uint8Array | null = null
      {
        using batch = await consumer.receiveRented()
        for (const message of batch) {
          kept.push(message)
          copies.push(message.copy())
        }
        bytes = batch.message(0).payload
        assert.deepEqual(
          kept.map((message) => text(message.payload)),
          ["r0", "r1"],
        )
        assert.equal(await storedBy(topic, "reader"), undefined)
      }
      for (const look of [
        (message: Message) => message.payload,
        (message: Message) => message.position,
        (message: Message) => message.headers,
        (message: Message) => message.copy(),
        (message: Message) => message.checkpoint(),
      ]) {
        await refused(() => look(kept[0] as Message), { kind: "invalid", says: ["given back", "copy()"] })
      }
      assert.deepEqual(
        copies.map((message) => text(message.payload)),
        ["r0", "r1"],
      )
      assert.equal(text(bytes), "r0", "bytes that were taken out stay what they are")
      assert.equal(await storedBy(topic, "reader"), undefined, "giving it back handles nothing")
      const next = await consumer.receiveRented()
      assert.equal(await storedBy(topic, "reader"), 1n)
      assert.equal(next.firstOffset, 2n)
      next[Symbol.dispose]()
      next[Symbol.dispose]()
      await refused(() => next.message(0), "invalid")
      await consumer.commit(copies[1])
      await consumer.shutdown()
    })

    test("batches that are never given back neither stop the reading nor stay in memory", async () => {
      const topic = await rig.topic()
      for (let from = 0; from < 600; from += 100) await fill(topic, numbered("r", from, from + 100))
      const consumer = topic.consumer("reader", 0, { batchLength: 10, prefetchRecords: 20 })
      const forgotten: WeakRef<object>[] = []
      let seen = 0
      while (seen < 600) {
        const batch = await consumer.receiveRented()
        seen += batch.count
        forgotten.push(new WeakRef(batch), new WeakRef(batch.message(0)))
      }
      assert.equal(seen, 600)
      await until("what nobody holds to be collected", async () => {
        await new Promise((resolve) => setImmediate(resolve))
        collectGarbage()
        return forgotten.filter((one) => one.deref() !== undefined).length <= 2 ? true : undefined
      })
      await consumer.shutdown()
    })

    test("receiveRented ends with its signal and with a shutdown, and loses nothing", async () => {
      const topic = await rig.topic()
      const consumer = topic.consumer("reader", 0)
      const abort = new AbortController()
      const cancelled = consumer.receiveRented({ signal: abort.signal })
      assert.ok(await isPending(cancelled))
      abort.abort()
      await refused(() => cancelled, "cancelled")
      await fill(topic, ["r0"])
      {
        using batch = await settlesWithin("a batch", consumer.receiveRented())
        assert.deepEqual(textsOf(batch), ["r0"])
      }
      const waiting = consumer.receiveRented()
      assert.ok(await isPending(waiting))
      await consumer.shutdown()
      await refused(() => settlesWithin("a wait at shutdown", waiting), "closed")
    })
  })

  describe("polls", () => {
    test("nextWithin: what comes after the deadline goes to the next call, and is neither lost nor handled by coming", async () => {
      const topic = await rig.topic()
      const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "each" } })
      for (let round = 0; round < 5; round++) {
        const [outcome] = await Promise.all([
          consumer.nextWithin(round).catch((error: { kind?: string }) => error.kind),
          fill(topic, [`r${round}`]),
        ])
        const message = typeof outcome === "string" ? await consumer.nextWithin(patienceMs) : outcome
        assert.equal(text((message as Message).payload), `r${round}`)
        assert.equal(await storedBy(topic, "reader"), round === 0 ? undefined : BigInt(round - 1))
      }
      const abort = new AbortController()
      const cancelled = consumer.nextWithin(patienceMs, { signal: abort.signal })
      abort.abort()
      await refused(() => cancelled, "cancelled")
      await fill(topic, ["r5"])
      assert.deepEqual(await takeTexts(consumer, 1), ["r5"])
      await consumer.shutdown()
    })

    test("a waiting call is answered by what comes, without a wait of its own", async () => {
      const topic = await rig.topic()
      const consumer = topic.consumer("reader", 0, { maxWaitMs: 30_000, pollingRetryIntervalMs: 60_000 })
      for (let round = 0; round < 3; round++) {
        const waiting = consumer.nextWithin(patienceMs)
        await isPending(waiting)
        await fill(topic, [`r${round}`])
        const started = performance.now()
        assert.equal(text((await waiting).payload), `r${round}`)
        assert.ok(performance.now() - started < 2_000, `${performance.now() - started} ms after it was confirmed`)
      }
      await consumer.shutdown()
    })

    test("a batch above maxBytes and above what is read ahead comes alone", async () => {
      const topic = await rig.topic()
      const large = "x".repeat(20_000)
      for (const payload of [large, "small", large, large])
        await topic.producer().send(encode(payload), { partition: 0 })
      const consumer = topic.consumer("reader", 0, { maxBytes: 1_000, prefetchBytes: 1_500, prefetchRecords: 2 })
      assert.deepEqual(
        (await takeTexts(consumer, 4)).map(({ length }) => length),
        [20_000, 5, 20_000, 20_000],
      )
      await consumer.shutdown()
    })

    test("a loud partition does not keep a quiet one waiting for long, however slow the reading", async (t) => {
      const { groups } = rig.client.manifest
      if (!groups.supported) return t.skip(groups.reason)
      const topic = await rig.topic(2)
      for (let from = 0; from < 3_000; from += 500) await fill(topic, numbered("loud", from, from + 500), 0)
      const options: ConsumerOptions = { batchLength: 50, prefetchRecords: 200, startAt: { kind: "first" } }
      const consumer = await topic.consumerGroup("fair").consumer({ ...options, commitPolicy: { kind: "disabled" } })
      await take(consumer, 200)
      await new Promise((resolve) => setTimeout(resolve, 200))
      await fill(topic, ["quiet"], 1)
      let between = 0
      while ((await take(consumer, 1))[0]?.position.partition !== 1) {
        between++
        assert.ok(between < 2_000, "the quiet partition was left out")
        if (between % 100 === 0) await new Promise((resolve) => setTimeout(resolve, 20))
      }
      await consumer.shutdown()
    })

    test("A-15: a consumer that waits uses next to no processor, wherever it began", async () => {
      for (const startAt of [{ kind: "first" }, { kind: "last" }, { kind: "timestampMicros", value: 1n }] as const) {
        const topic = await rig.filled(3)
        const consumer = topic.consumer("reader", 0, { startAt })
        const seen = startAt.kind === "last" ? ["r2"] : ["r0", "r1", "r2"]
        assert.deepEqual(await takeTexts(consumer, seen.length), seen)
        await idle(consumer)
        await fill(topic, ["r3"])
        assert.deepEqual(await takeTexts(consumer, 1), ["r3"])
        await consumer.shutdown()
      }
    })
  })
}

/** Fails when every one of a few spans costs more than 5 % of a processor: one alone may hold somebody else's work. */
async function idle(consumer: Consumer): Promise<void> {
  const shares: number[] = []
  while (shares.length < 8) {
    const [before, began] = [process.cpuUsage(), performance.now()]
    await nothingComes(consumer, 200)
    const { user, system } = process.cpuUsage(before)
    const share = (user + system) / 1000 / (performance.now() - began)
    if (share < 0.05) return
    shares.push(share)
  }
  assert.fail(`waiting used ${shares.map((share) => `${(share * 100).toFixed(0)} %`).join(", ")} of a processor`)
}

/** What Node gives only to those who ask for it by a flag. */
function collectGarbage(): void {
  setFlagsFromString("--expose-gc")
  runInNewContext("gc")()
}

function textsOf(batch: Iterable<Message>): string[] {
  return Array.from(batch, (message) => text(message.payload))
}
