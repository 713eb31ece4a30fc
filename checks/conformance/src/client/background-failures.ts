/** Chapter: what becomes of background sends that cannot be delivered. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type MillraceError, RecordTooLargeError } from "@millrace/contract"
import { type Producer, PublishFailedError, type Topic } from "millrace"
import { type ClientRig, encode, takeTexts } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

export function backgroundFailuresChapter(rig: ClientRig): void {
  describe("what a background producer cannot deliver", () => {
    test("A-23: goes to onError with its records, one failure at a time; sends to other topics are not touched", async () => {
      const [first, last, missing] = [await rig.topic(), await rig.topic(), rig.handle()]
      const told: PublishFailedError[] = []
      let running = 0
      let most = 0
      const producer = first.producer({
        createTopic: false,
        background: {
          onError: async (error) => {
            running++
            most = Math.max(most, running)
            await new Promise((resolve) => setImmediate(resolve))
            told.push(error)
            running--
          },
        },
      })
      for (let index = 0; index < 3; index++) {
        for (const topic of [first, missing, last]) await producer.sendTo(topic, encode(`r${index}`))
        await producer.flush()
      }
      await producer.shutdown()
      assert.equal(most, 1)
      assert.deepEqual(
        told.flatMap((error) => error.unconfirmed.map(({ payload }) => text(payload))),
        numbered("r", 0, 3),
      )
      for (const error of told) {
        assert.deepEqual([error.stream, error.topic], [missing.stream, missing.name])
        assert.equal(causeOf(error).kind, "not-found")
        assert.deepEqual(error.committed, [])
      }
      for (const topic of [first, last]) assert.deepEqual(await everything(topic, 0), numbered("r", 0, 3))
      await missing.ensure(1)
      for (const error of told) await missing.batch(error.unconfirmed)
      assert.deepEqual(await everything(missing, 0), numbered("r", 0, 3))
    })

    test("without onError is kept: shutdown rejects with one failure that has all records", async () => {
      const missing = rig.handle()
      const producer = missing.producer({ createTopic: false, background: true })
      for (const payload of numbered("r", 0, 3)) {
        await producer.send(encode(payload))
        await producer.flush()
      }
      const error = await refused(() => producer.shutdown(), { kind: "publish-failed", says: [missing.name] })
      assert.ok(error instanceof PublishFailedError)
      assert.deepEqual(
        error.unconfirmed.map(({ payload }) => text(payload)),
        numbered("r", 0, 3),
      )
      await refused(() => producer.shutdown(), "publish-failed")
    })

    test("is kept too when onError throws or rejects", async () => {
      for (const onError of [
        () => {
          throw new Error("no idea what to do")
        },
        () => Promise.reject(new Error("no idea what to do")),
      ]) {
        const missing = rig.handle()
        const producer = missing.producer({ createTopic: false, background: { onError } })
        await producer.send(encode("r0"))
        await producer.flush()
        const error = await refused(() => producer.shutdown(), "publish-failed")
        assert.equal((error as PublishFailedError).unconfirmed.length, 1)
      }
    })

    test("can be sent elsewhere from inside onError, and a shutdown from there does not wait for itself", async () => {
      const [missing, other] = [rig.handle(), await rig.topic()]
      let ended: Promise<unknown> | undefined
      const producer: Producer = missing.producer({
        createTopic: false,
        background: {
          onError: async (error) => {
            for (const { payload } of error.unconfirmed) await producer.sendTo(other, payload)
            ended = producer.shutdown()
            await ended
          },
        },
      })
      await producer.send(encode("r0"))
      await until("onError to be called", () => (ended === undefined ? undefined : true))
      await settlesWithin("a shutdown inside of onError", Promise.allSettled([ended]))
      await settlesWithin("a shutdown behind it", Promise.allSettled([producer.shutdown()]))
      assert.deepEqual(await everything(other, 0), ["r0"])
    })

    test("A-29: a deleted topic fails alone, and works again once it is made anew", async () => {
      const [a, b] = [await rig.topic(), await rig.topic()]
      const told: PublishFailedError[] = []
      const producer = a.producer({ createTopic: false, background: { onError: (error) => void told.push(error) } })
      await producer.send(encode("a0"))
      await producer.flush()
      await a.delete()
      await producer.send(encode("lost"))
      await producer.sendTo(b, encode("b0"))
      await producer.flush()
      await until("the failure to be told", () => (told.length > 0 ? true : undefined))
      assert.equal(causeOf(told[0]).kind, "not-found")
      assert.deepEqual(
        told.flatMap(({ unconfirmed }) => unconfirmed.map(({ payload }) => text(payload))),
        ["lost"],
      )
      await a.ensure(1)
      await producer.send(encode("a1"))
      await producer.shutdown()
      assert.deepEqual(await everything(a, 0), ["a1"])
      assert.deepEqual(await everything(b, 0), ["b0"])
      assert.equal(told.length, 1)
    })

    test("a record above the limit is refused at its send, and its neighbours land", async () => {
      const topic = await rig.topic()
      const producer = topic.producer({ background: { maxBufferBytes: 0 } })
      const limitBytes = rig.client.manifest.limits.payloadBytes
      const payloads = [encode("r0"), new Uint8Array(limitBytes + 1), encode("r1")]
      const sends = await Promise.allSettled(payloads.map((payload) => producer.send(payload)))
      assert.deepEqual(
        sends.map(({ status }) => status),
        ["fulfilled", "rejected", "fulfilled"],
      )
      const { reason } = sends[1] as PromiseRejectedResult
      assert.ok(reason instanceof RecordTooLargeError)
      assert.deepEqual([reason.context.sizeBytes, reason.context.limitBytes], [limitBytes + 1, limitBytes])
      await producer.shutdown()
      assert.deepEqual(await everything(topic, 0), ["r0", "r1"])
    })

    test("a record that only the topic finds too large fails alone; its neighbours land in order", async (t) => {
      const { tight } = rig.under
      if (tight === undefined) return t.skip("the topics of this backend have no limit of their own")
      const topic = await rig.topic(1, tight.options)
      const told: unknown[] = []
      const producer = topic.producer({ background: { onError: (error) => void told.push(error) } })
      const payloads = [...numbered("r", 0, 20).map(encode), new Uint8Array(tight.tooLargeBytes)]
      payloads.push(...numbered("r", 20, 40).map(encode))
      const sends = await Promise.allSettled(payloads.map((payload) => producer.send(payload)))
      for (const send of sends) if (send.status === "rejected") told.push(send.reason)
      await producer.shutdown()
      assert.equal(told.length, 1)
      const cause = causeOf(told[0])
      assert.ok(cause instanceof RecordTooLargeError, String(cause))
      assert.deepEqual(await everything(topic, 0), numbered("r", 0, 40))
    })

    for (const failureMode of ["block", "blockWithTimeout", "failImmediately"] as const) {
      test(`a send above the whole budget is refused with ${failureMode} as well, for good`, async () => {
        const topic = await rig.topic()
        const waits = failureMode === "blockWithTimeout" ? { blockTimeoutMs: 60_000 } : {}
        const producer = topic.producer({ background: { maxBufferBytes: 1_000, failureMode, ...waits } })
        await refused(() => producer.send(new Uint8Array(2_000)), {
          kind: "buffer-full",
          says: ["maxBufferBytes", "1000"],
          retryable: false,
          outcome: "rejected",
        })
        await producer.send(encode("fits"))
        await producer.shutdown()
        assert.deepEqual(await everything(topic, 0), ["fits"])
      })
    }
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
