/** Chapter: both ways to send, while answers are lost, connections are cut and the server is away. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { MillraceError } from "@millrace/contract"
import { PublishFailedError } from "millrace"
import { encode } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { numbered } from "../rig/records.ts"
import { Sending, waysToSend } from "../rig/sending.ts"
import { type BrokerRig, patientPublish } from "./broker-rig.ts"

/** Connections that a client may try to make in an outage, all in all, however long it lasts. */
const mostAttempts = 20

/** How long the outage of A-25 lasts, in ms. The waits of direct sends double: what is behind an outage may come as much later again. */
const outageMs = process.env.MILLRACE_LONG === "1" ? 10_000 : 5_000

/** Of the background producer in an outage. Its memory may be a fifth more than that. */
const bufferBytes = 8 << 20

/** By how much a process under load grows beside its buffers: young objects, and the promises that this test keeps. */
const processBytes = 64 << 20

export function sendingChapter(rig: BrokerRig): void {
  for (const way of waysToSend) {
    describe(`${way} sends in trouble`, () => {
      test("A-01: 500 that are not awaited, over a connection that is cut twice, are stored once, in order", async () => {
        const client = await rig.connect()
        const topic = await rig.topic(client)
        const sending = new Sending(topic, way, {
          batchLength: 10,
          onUnknown: "resend",
          background: { batchLength: 10 },
        })
        await sending.producer.init()
        sending.send(encode("r0"))
        await sending.settled()
        const faults = [rig.proxy.cutBeforeReply(), rig.proxy.cutBeforeReply()]
        for (let index = 1; index < 500; index++) {
          sending.send(encode(`r${index}`))
          if (index % 50 === 0) await new Promise((resolve) => setImmediate(resolve))
        }
        await settlesWithin("500 sends", sending.settled(), 30_000)
        assert.deepEqual(sending.failures, [])
        assert.ok(
          faults.every(({ count }) => count === 1),
          "the connection was not cut twice: the test proves nothing",
        )
        sending.send(encode("r500"))
        await settlesWithin("one more send", sending.settled())
        const stored = await rig.stored(topic)
        // Where a resend is not recognised only what was not acknowledged may come again, and first occurrences are in order.
        const once = client.manifest.append.dedup === "none" ? [...new Set(stored)] : stored
        assert.deepEqual(once, numbered("r", 0, 501))
        await sending.producer.shutdown()
        await client.close()
      })

      test("A-30: a lost answer that is not resent is unknown, with the id; topic.batch doubles nothing where ids are looked up", async () => {
        const client = await rig.connect({ ...patientPublish, publishRetries: 0 })
        const topic = await rig.topic(client)
        const sending = new Sending(topic, way, { onUnknown: "fail" })
        sending.send(encode("before"))
        await sending.settled()
        const fault = rig.proxy.cutBeforeReply()
        sending.send(encode("once"))
        await settlesWithin("a send whose answer was lost", sending.settled(), 30_000)
        await fault.happened
        const [error] = sending.failures
        assert.ok(error instanceof PublishFailedError, String(error))
        assert.equal(error.outcome, "unknown")
        assert.equal(error.unconfirmed.length, 1)
        assert.equal(typeof error.unconfirmed[0]?.id, "bigint")
        const again = await rig.connect()
        await again.stream(topic.stream).topic(topic.name).batch(error.unconfirmed)
        const stored = await rig.stored(topic)
        const looksUp = client.manifest.append.idLookup !== "none"
        assert.deepEqual(looksUp ? stored : [...new Set(stored)], ["before", "once"])
        await sending.producer.shutdown()
        await Promise.all([client.close(), again.close()])
      })

      test("A-25: 5,000 a second through an outage cost few attempts, and what was accepted arrives in order", async () => {
        const client = await rig.connect()
        const topic = await rig.topic(client)
        const buffered = way === "background"
        const sending = new Sending(topic, way, {
          onUnknown: "resend",
          // In the background the waits between attempts do not grow.
          retries: 2_000,
          background: { maxBufferBytes: bufferBytes, failureMode: "failImmediately" },
          note: (error) => (error as MillraceError).kind,
        })
        const padding = ".".repeat(buffered ? 1_000 : 0)
        sending.send(encode("r0"))
        await sending.settled()
        await rig.server.kill()
        const [attemptsBefore, memoryBefore] = [rig.proxy.accepted, process.memoryUsage().rss]
        const over = performance.now() + outageMs
        let next = 1
        // A buffer is filled, however slow the machine is.
        const filling = (): boolean => buffered && sending.failures.length === 0 && performance.now() < over + 30_000
        while (performance.now() < over || filling()) {
          for (let each = 0; each < 25; each++) sending.send(encode(`r${next++}${padding}`))
          await new Promise((resolve) => setTimeout(resolve, 5))
        }
        const attempts = rig.proxy.accepted - attemptsBefore
        const grown = process.memoryUsage().rss - memoryBefore
        await rig.server.start()
        await settlesWithin("what was sent in the outage", sending.settled(), 60_000)
        assert.ok(attempts <= mostAttempts, `${attempts} attempts to connect`)
        const refusals = new Set(sending.failures)
        assert.deepEqual([...refusals], buffered ? ["buffer-full"] : [])
        if (buffered) assert.ok(grown < bufferBytes * 1.2 + processBytes, `the process grew by ${grown >> 20} MiB`)
        const stored = (await rig.stored(topic)).map((one) => Number(one.slice(1).replace(/\.+$/, "")))
        const once = client.manifest.append.dedup === "none" ? [...new Set(stored)] : stored
        assert.equal(once.length, next - sending.failures.length)
        assert.deepEqual(
          once,
          once.toSorted((a, b) => a - b),
        )
        assert.equal(new Set(once).size, once.length)
        await sending.producer.shutdown()
        await client.close()
      })

      test("A-03: a client that has sends under way closes within its time when the server has gone", async () => {
        for (const when of way === "direct" ? (["before"] as const) : (["before", "meanwhile"] as const)) {
          const client = await rig.connect({ ...patientPublish, publishTimeoutMs: 5_000 })
          const sending = new Sending(await rig.topic(client), way)
          sending.send(encode("a"))
          await sending.settled()
          if (when === "before") await rig.server.kill()
          for (let index = 0; index < 100; index++) sending.send(encode(`r${index}`))
          const began = performance.now()
          const closed = client.close({ timeoutMs: 3_000 }).catch((error: unknown) => error)
          if (when === "meanwhile") await rig.server.kill()
          const outcome = await settlesWithin("close without a server", closed, 6_000)
          assert.ok(performance.now() - began < 6_000)
          if (when === "before") assert.match(String((outcome as MillraceError).message), /100 (records|unconfirmed)/)
          await rig.server.start()
        }
      })

      test("A-28: connections that are cut under sends at any moment leave each settled, and nothing unhandled", async () => {
        const rounds = process.env.MILLRACE_LONG === "1" ? 200 : 6
        const stray: unknown[] = []
        const note = (error: unknown): void => void stray.push(error)
        process.on("unhandledRejection", note)
        process.on("uncaughtException", note)
        try {
          const client = await rig.connect({ publishTimeoutMs: 2_000, publishRetries: 3, publishRetryBackoffMs: 20 })
          const topic = await rig.topic(client, 2)
          for (let round = 0; round < rounds; round++) {
            const sending = new Sending(topic, way)
            for (let index = 0; index < 20; index++) sending.send(encode(`r${index}`), { partition: index % 2 })
            sending.sendBatch(numbered("b", 0, 50).map(encode), { partition: 1 })
            await new Promise((resolve) => setTimeout(resolve, round % 7))
            rig.proxy.cut(round % 2 === 0 ? "reset" : "end")
            await settlesWithin(`the sends of round ${round}`, sending.settled(), 20_000)
            await settlesWithin(
              `the shutdown of round ${round}`,
              sending.producer.shutdown().catch((error: unknown) => error),
              20_000,
            )
          }
          await client.close()
        } finally {
          await new Promise((resolve) => setImmediate(resolve))
          process.off("unhandledRejection", note)
          process.off("uncaughtException", note)
        }
        assert.deepEqual(stray, [])
      })
    })
  }

  describe("a background producer over a way that is stalled", () => {
    test("waits for room by itself, and delivers all in order when the way is free", async () => {
      const client = await rig.connect()
      const topic = await rig.topic(client)
      const sending = new Sending(topic, "background", {
        background: { maxBufferBytes: 64 << 10, batchBytes: 16 << 10 },
      })
      await sending.producer.init()
      rig.proxy.stall()
      let accepted = 0
      const sends = numbered("r", 0, 200).map((one) =>
        sending.producer.send(encode(one.padEnd(1_000, "."))).then(() => {
          accepted++
        }),
      )
      await until("the buffer to be full", () => (accepted > 10 ? true : undefined))
      for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve))
      assert.ok(accepted <= 66, `${accepted} sends of 1,000 bytes are in a buffer of 64 KiB`)
      rig.proxy.flow()
      await settlesWithin("sends that waited for room", Promise.all(sends), 20_000)
      await settlesWithin("their delivery", sending.settled(), 20_000)
      assert.deepEqual(sending.failures, [])
      const stored = (await rig.stored(topic)).map((one) => one.replace(/\.+$/, ""))
      const once = client.manifest.append.dedup === "none" ? [...new Set(stored)] : stored
      assert.deepEqual(once, numbered("r", 0, 200))
      await client.close()
    })

    for (const [failureMode, kind] of [
      ["failImmediately", "buffer-full"],
      ["blockWithTimeout", "timeout"],
    ] as const) {
      test(`refuses with ${failureMode} what finds no room, delivers what it took, and takes more then`, async () => {
        const client = await rig.connect()
        const topic = await rig.topic(client)
        const waits = failureMode === "blockWithTimeout" ? { blockTimeoutMs: 150 } : {}
        const sending = new Sending(topic, "background", {
          background: { maxBufferBytes: 64 << 10, batchBytes: 16 << 10, failureMode, ...waits },
        })
        await sending.producer.init()
        rig.proxy.stall()
        const payload = "x".repeat(1_000)
        const outcomes = await settlesWithin(
          "sends beyond the buffer",
          Promise.allSettled(Array.from({ length: 100 }, () => sending.producer.send(encode(payload)))),
        )
        const accepted = outcomes.filter(({ status }) => status === "fulfilled").length
        assert.ok(accepted > 10 && accepted <= 66, `${accepted} were accepted`)
        for (const outcome of outcomes) {
          if (outcome.status === "fulfilled") continue
          const error = outcome.reason as MillraceError
          assert.equal(error.kind, kind)
          assert.equal(error.outcome, "rejected")
          assert.equal(error.retryable, true)
          assert.match(error.message, /65536/)
        }
        rig.proxy.flow()
        await settlesWithin("the delivery of what was accepted", sending.settled(), 20_000)
        await sending.producer.send(encode(payload))
        await sending.producer.shutdown()
        const stored = await rig.stored(topic)
        if (client.manifest.append.dedup !== "none") assert.equal(stored.length, accepted + 1)
        else assert.ok(stored.length >= accepted + 1)
        await client.close()
      })
    }

    test("says at the deadline of its shutdown what was not delivered", async () => {
      const client = await rig.connect()
      const topic = await rig.topic(client)
      const producer = topic.producer({ background: true })
      // What a producer needs before its first request (an identity) is there then: the next one is sent, and not answered.
      await producer.send(encode("before"))
      await producer.flush()
      rig.proxy.stall()
      try {
        for (const payload of numbered("r", 0, 50)) await producer.send(encode(payload))
        const began = performance.now()
        const [outcome] = await settlesWithin(
          "a shutdown with a deadline",
          Promise.allSettled([producer.shutdown({ timeoutMs: 1_000 })]),
        )
        assert.ok(performance.now() - began >= 900)
        assert.ok(outcome?.status === "rejected")
        const error: unknown = outcome.reason
        assert.ok(error instanceof PublishFailedError, String(error))
        assert.deepEqual(
          error.unconfirmed.map(({ payload }) => new TextDecoder().decode(payload ?? new Uint8Array(0))),
          numbered("r", 0, 50),
        )
        assert.equal(error.outcome, "unknown")
      } finally {
        rig.proxy.flow()
      }
      await client.close()
    })
  })
}
