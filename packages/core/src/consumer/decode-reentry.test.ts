/** Codecs that call back into the consumer that has asked them: what they were asked about is not handed out by then. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Codec } from "../codec/codec.ts"
import { openTyped, putTexts } from "../typed/typed-rig.test-support.ts"
import { FakeClient } from "./fake-session.test-support.ts"

type Any = ReturnType<typeof openTyped<number>>

/** Numbers as text. At the number 1 it calls back in, and then it answers or fails. */
function calling(back: () => void, end: () => number): Codec<number> {
  return {
    name: "numbers",
    encode: (value) => new TextEncoder().encode(String(value)),
    decode(payload) {
      const value = Number(new TextDecoder().decode(payload))
      if (value !== 1) return value
      back()
      return end()
    },
  }
}

const ends: Readonly<Record<string, () => number>> = {
  answers: () => 1,
  throws: () => {
    throw new Error("no")
  },
}

/** Every value until the consumer is over, by each way of taking. */
const doors: Readonly<Record<string, (consumer: Any) => Promise<unknown[]>>> = {
  async next(consumer) {
    const seen: unknown[] = []
    for await (const message of consumer) seen.push(message.value)
    return seen
  },
  async batches(consumer) {
    const seen: unknown[] = []
    for await (const batch of consumer.batches()) for (const message of batch) seen.push(message.value)
    return seen
  },
}

describe("a decode that ends its consumer", () => {
  for (const [door, taking] of Object.entries(doors)) {
    for (const [how, end] of Object.entries(ends)) {
      for (const onDecodeError of ["stop", "skip"] as const) {
        test(`and then ${how}: its record is not handled (${door}, ${onDecodeError})`, async () => {
          const client = new FakeClient()
          for (const text of ["0", "1", "2"]) putTexts(client, [text])
          let ending: Promise<void> | undefined
          const codec = calling(() => {
            ending ??= consumer.shutdown()
          }, end)
          const consumer: Any = openTyped(client, { codec, onDecodeError }, { commitPolicy: { kind: "each" } })
          const all = taking(consumer)
          await client.clock.advance(1_000)
          assert.deepEqual(await all, [0])
          await ending
          assert.equal(client.storedNext("worker"), 1n)
          assert.equal(client.clock.timers, 0)
        })
      }
    }
  }
})

test("a decode that ends the consumer of a run and throws leaves its record unhandled", async () => {
  const client = new FakeClient()
  putTexts(client, ["0", "1", "2"])
  const codec = calling(() => void consumer.shutdown(), ends.throws as () => number)
  const consumer: Any = openTyped(client, { codec }, { commitPolicy: { kind: "each" } })
  const run = consumer.run(() => {})
  await client.clock.advance(1_000)
  await run
  assert.equal(client.storedNext("worker"), 1n)
})

describe("a decode that moves its consumer", () => {
  for (const [how, end] of Object.entries(ends)) {
    test(`and then ${how}: its record is passed by, and reading goes on where it says`, async () => {
      const client = new FakeClient()
      putTexts(client, ["0", "1", "2", "3"])
      const codec = calling(() => void consumer.seek(0, { kind: "offset", value: 3n }), end)
      const consumer: Any = openTyped(client, { codec })
      const seen: unknown[] = []
      for (let count = 0; count < 2; count++) {
        const next = consumer.next()
        await client.clock.advance(100)
        seen.push((await next).value?.value)
      }
      assert.deepEqual(seen, [0, 3])
      await consumer.shutdown()
      assert.equal(client.storedNext("worker"), 4n)
    })
  }
})
