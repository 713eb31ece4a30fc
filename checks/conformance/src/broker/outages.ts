/** Chapter: the server is cut off, killed, restarted, slow; answers are lost. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Topic } from "millrace"
import { encode, take, takeTexts } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { type BrokerRig, collect, patientPublish } from "./broker-rig.ts"

export function outagesChapter(rig: BrokerRig): void {
  describe("outages", () => {
    test("A-30: a lost acknowledgement is answered by a resend, which is stored once where resends are recognised", async () => {
      const client = await rig.connect()
      const topic = await rig.topic(client)
      const producer = topic.producer()
      await producer.send(encode("before"))
      const fault = rig.proxy.cutBeforeReply()
      await settlesWithin("a send whose answer was lost", producer.send(encode("once")))
      await fault.happened
      await producer.send(encode("after"))
      const stored = await rig.stored(topic)
      if (client.manifest.append.dedup === "none") {
        assert.deepEqual([...new Set(stored)], ["before", "once", "after"])
      } else {
        assert.deepEqual(stored, ["before", "once", "after"])
      }
      await client.close()
    })

    test("A-08, A-10: a consumer goes on by itself after a restart of the server, and is told", async () => {
      const client = await rig.connect()
      const topic = await rig.topic(client)
      const producer = topic.producer()
      await producer.sendBatch(numbered("r", 0, 5).map(encode))
      const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "each" } })
      const group = await topic.consumerGroup("members").consumer({ commitPolicy: { kind: "each" } })
      let reconnections = 0
      consumer.on({
        reconnected: () => {
          reconnections++
        },
      })
      const alone = collect(consumer)
      const member = collect(group)
      await alone.reaches(5)
      await member.reaches(5)
      await rig.server.kill()
      await rig.server.start()
      await settlesWithin("a batch behind the restart", producer.sendBatch(numbered("r", 5, 15).map(encode)), 20_000)
      await alone.reaches(15, 10_000)
      await member.reaches(15, 20_000, { distinct: true })
      assert.deepEqual(alone.seen.map((message) => text(message.payload)).slice(0, 15), numbered("r", 0, 15))
      const inOrder = [...new Set(member.seen.map((message) => text(message.payload)))]
      assert.deepEqual(inOrder, numbered("r", 0, 15))
      assert.ok(reconnections > 0, "nobody was told that the connection was there again")
      await Promise.all([consumer.shutdown(), group.shutdown()])
      await client.close()
    })

    test("A-03: a client whose server has gone closes within its time, while it waits and while it closes", async () => {
      for (const when of ["before", "meanwhile"] as const) {
        const client = await rig.connect({ ...patientPublish, publishTimeoutMs: 5_000 })
        const topic = await rig.topic(client)
        const producer = topic.producer()
        await producer.send(encode("a"))
        const consumer = topic.consumer("reader", 0)
        await take(consumer, 1)
        const waiting = collect(consumer)
        if (when === "before") await rig.server.kill()
        const closed = client.close({ timeoutMs: 3_000 }).catch((error: unknown) => error)
        if (when === "meanwhile") await rig.server.kill()
        const started = performance.now()
        await settlesWithin("close without a server", closed, 6_000)
        assert.ok(performance.now() - started < 6_000)
        await settlesWithin("the consumer's end", waiting.ended)
        await rig.server.start()
      }
    })

    test("A-28: cuts, stalls and resets at any moment leave each call settled once, and nothing unhandled", async () => {
      const rounds = process.env.MILLRACE_LONG === "1" ? 200 : 12
      const unhandled: unknown[] = []
      const note = (error: unknown): void => void unhandled.push(error)
      process.on("unhandledRejection", note)
      process.on("uncaughtException", note)
      try {
        const client = await rig.connect({ publishTimeoutMs: 2_000, publishRetries: 3, publishRetryBackoffMs: 20 })
        const topic = await rig.topic(client, 2)
        const producer = topic.producer()
        const reader = topic.consumer("reader", 0, { commitPolicy: { kind: "each" }, pollingRetryIntervalMs: 20 })
        const reading = collect(reader)
        const member = await topic.consumerGroup("members").consumer({ commitPolicy: { kind: "each" } })
        const handling = collect(member)
        const committer = topic.consumer("committer", 1, { commitPolicy: { kind: "disabled" } })
        for (let round = 0; round < rounds; round++) {
          const calls = Promise.allSettled([
            committer.storeOffset(BigInt(round)),
            ...(round % 4 === 0 ? [joinAndLeave(topic)] : []),
            producer.send(encode(`r${round}`), { partition: 0 }),
            topic.describe(),
            topic.watermarks(),
            producer.sendBatch(numbered("b", 0, 50).map(encode), { partition: 1 }),
          ])
          await new Promise((resolve) => setTimeout(resolve, round % 7))
          if (round % 3 === 0) rig.proxy.cut("reset")
          else if (round % 3 === 1) rig.proxy.cut("end")
          else {
            rig.proxy.stall()
            setTimeout(() => rig.proxy.flow(), 30)
          }
          await settlesWithin(`the calls of round ${round}`, calls, 20_000)
        }
        await settlesWithin(
          "a send behind it all",
          topic.producer({ retries: 50 }).send(encode("last"), { partition: 0 }),
          20_000,
        )
        for (const { seen } of [reading, handling]) {
          await until(
            "the reader and the member to see the last record",
            () => (seen.some((message) => text(message.payload) === "last") ? true : undefined),
            20_000,
          )
        }
        await Promise.all([reader.shutdown(), member.shutdown(), committer.shutdown()])
        await client.close()
      } finally {
        process.off("unhandledRejection", note)
        process.off("uncaughtException", note)
      }
      assert.deepEqual(unhandled, [])
    })

    test("a topic that is deleted and made anew under a live producer and a live consumer goes on in the new one", async () => {
      const client = await rig.connect()
      const topic = await rig.topic(client)
      const producer = topic.producer()
      const consumer = topic.consumer("reader", 0, { onMissing: "wait", pollingRetryIntervalMs: 50 })
      await producer.sendBatch(numbered("old", 0, 5).map(encode))
      assert.deepEqual(await takeTexts(consumer, 5), numbered("old", 0, 5))
      let changes = 0
      consumer.on({
        sourceChanged: () => {
          changes++
        },
      })
      const other = await rig.connect()
      const same = other.stream(topic.stream).topic(topic.name)
      await same.delete()
      await same.ensure(1)
      await settlesWithin("sends into the new topic", producer.sendBatch(numbered("new", 0, 5).map(encode)), 20_000)
      assert.deepEqual(await takeTexts(consumer, 5), numbered("new", 0, 5))
      assert.equal(changes, 1)
      assert.deepEqual(await rig.stored(topic), numbered("new", 0, 5))
      await consumer.shutdown()
      await Promise.all([client.close(), other.close()])
    })
  })
}

/** A member of a group of its own, for a moment. */
async function joinAndLeave(topic: Topic): Promise<void> {
  const consumer = await topic.consumerGroup("comers").consumer()
  await consumer.shutdown()
}
