/** Chapter: values that do not go out: without an encoding, too large, or by a codec that does not answer with bytes. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type Codec, Json, type TypedTopic } from "millrace"
import type { ClientRig } from "../rig/client-rig.ts"
import { refused } from "../rig/refusal.ts"
import { textCodec } from "../rig/typed-cases.ts"

export function typedRefusalsChapter(rig: ClientRig): void {
  describe("values that do not go out", () => {
    const circular: Record<string, unknown> = {}
    circular.self = circular
    for (const [what, value] of [
      ["a cycle", circular],
      ["NaN", { n: Number.NaN }],
      ["a bigint without a form", { n: 1n }],
      ["a function that throws", { toJSON: () => assert.fail("no") }],
    ] as const) {
      test(`${what} is refused by every send, with its place in a batch; nothing of the call is stored`, async () => {
        const topic = await rig.topic()
        const typed = topic.json<unknown>(new Json((each) => each))
        const producer = typed.producer()
        for (const send of [
          () => typed.publish(value),
          () => producer.send(value),
          () => producer.sendAndConfirm(value),
          () => producer.enqueue({ value }),
        ])
          await refused(send, { kind: "invalid", outcome: "rejected", retryable: false })
        for (const send of [
          () => producer.sendBatch([1, value, 2]),
          () => producer.sendRecords([{ value: 1 }, { value }]),
          () => typed.publishBatch().extendValues([1, value]).send(),
        ])
          await refused(send, { kind: "invalid", outcome: "rejected", says: ["record #1"] })
        assert.equal((await topic.watermarks())[0]?.end, 0n)
        await producer.send("after")
        await producer.shutdown()
        assert.deepEqual(await valuesOf(typed), ["after"])
      })
    }

    test("a codec whose encode answers with a promise or with no bytes is refused, and the promise is observed", async () => {
      const topic = await rig.topic()
      for (const encode of [
        () => Promise.reject(new Error("late")),
        () => "text",
        () => undefined,
        () => {
          throw undefined
        },
      ]) {
        const typed = topic.typed({ ...textCodec, encode } as unknown as Codec<string>)
        await refused(() => typed.publish("x"), { kind: "invalid", says: ["text of one's own"], outcome: "rejected" })
      }
      assert.equal((await topic.watermarks())[0]?.end, 0n)
    })

    test("100 MiB and more are refused where the backend's limit is below, with the limit, and nothing is sent", async () => {
      const topic = await rig.topic()
      const { payloadBytes } = rig.client.manifest.limits
      const huge = new Uint8Array(Math.max(payloadBytes + 1, 100 * 1024 * 1024))
      const typed = topic.bytes()
      const producer = typed.producer()
      const small = Uint8Array.of(1)
      for (const send of [
        () => typed.publish(huge),
        () => producer.send(huge),
        () => producer.sendBatch([small, huge]),
        () => producer.sendRecords([{ value: small }, { value: huge }]),
        () => typed.publishBatch().extendValues([small, huge]).send(),
      ]) {
        const error = await refused(send, {
          kind: "record-too-large",
          says: [String(huge.length), String(payloadBytes)],
          outcome: "rejected",
          retryable: false,
        })
        assert.equal(error.context.limitBytes, payloadBytes)
      }
      await refused(() => topic.text().publish("x".repeat(huge.length)), "record-too-large")
      await refused(() => topic.json(new Json(String)).publish("x".repeat(huge.length)), "record-too-large")
      assert.equal((await topic.watermarks())[0]?.end, 0n)
      await producer.send(small)
      await producer.shutdown()
    })
  })
}

/** Every value up to the tail. */
async function valuesOf(typed: TypedTopic<unknown>): Promise<unknown[]> {
  await using reader = await typed.records("values")
  return (await reader.poll()).map((result) => (result.kind === "record" ? result.value : result.kind))
}
