/** Typed consumers under an encryptor: what does not decrypt, and what decrypts and does not decode. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { DecodeError } from "@millrace/contract"
import { systemRandom } from "@millrace/runtime"
import type { Codec } from "../codec/codec.ts"
import type { FakeRecord } from "../consumer/fake-log.test-support.ts"
import { FakeClient, fakeManifest } from "../consumer/fake-session.test-support.ts"
import { openConsumer } from "../consumer/partition-consumer.ts"
import { type Encryptor, encryptor } from "../encryption/encryptor.ts"
import { deadLetter } from "../handler/dead-letter.ts"
import { deadLetterBlock } from "../handler/dead-letter-record.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import { decodingOf, type OnDecodeError } from "./decoding.ts"
import type { TypedConsumer } from "./typed-consumer.ts"
import { TypedDecodeError } from "./typed-decode-error.ts"
import type { TypedOrRawMessage } from "./typed-message.ts"
import { numbers } from "./typed-rig.test-support.ts"

const ours = encryptor({ current: "k", keys: { k: new Uint8Array(32).fill(1) } })
const theirs = encryptor({ current: "x", keys: { x: new Uint8Array(32).fill(2) } })

function stored(text: string, by: Encryptor): FakeRecord {
  const sealer = by.sealer({ limits: fakeManifest.limits, random: systemRandom })
  const sealed = sealer.seal({ stream: "s", topic: "t" }, new TextEncoder().encode(text))
  return sealed instanceof Uint8Array ? { payload: sealed } : { payload: sealed.payload, headers: sealed.headers }
}

/** Offsets: a number, one of another's, one that does not decode, a number. */
function open(onDecodeError: OnDecodeError): {
  client: FakeClient
  consumer: TypedConsumer<number, TypedOrRawMessage<number>>
} {
  const client = new FakeClient()
  client.log.put(client.place(), [stored("0", ours), stored("1", theirs), stored("bad", ours), stored("3", ours)])
  const decoding = decodingOf("c", numbers as Codec<unknown>, onDecodeError)
  const source = { topic: client.topic, name: "worker", partition: 0, decoding }
  const options = { commitPolicy: { kind: "each" } } as const
  const consumer = openConsumer({ ...client.context, encryptor: ours }, source, options)
  return { client, consumer: consumer as never }
}

class EncryptedDead {
  readonly stream = "s"
  readonly name = "dead"
  readonly sent: { readonly record: OutgoingRecord; readonly encryptor: Encryptor | false | undefined }[] = []
  ensure = async (): Promise<void> => {}
  batch = async (
    records: readonly OutgoingRecord[],
    options?: { readonly encryptor?: Encryptor | false },
  ): Promise<void> => {
    for (const record of records) this.sent.push({ record, encryptor: options?.encryptor })
  }
}

describe("a typed consumer under an encryptor", () => {
  test("tells both in their places: one without its bytes, one with those that it held", async () => {
    const { client, consumer } = open("stop")
    assert.equal((await consumer.nextWithin(1000)).value, 0)
    await assert.rejects(consumer.next(), (error) => {
      return error instanceof DecodeError && !(error instanceof TypedDecodeError) && error.context.offset === 1n
    })
    await assert.rejects(consumer.next(), (error) => {
      assert.ok(error instanceof TypedDecodeError && error.context.offset === 2n)
      return new TextDecoder().decode(error.payload as Uint8Array) === "bad"
    })
    assert.equal((await consumer.nextWithin(1000)).value, 3)
    assert.equal(consumer.decodeFailures.told, 2)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 4n)
  })

  test("skips both", async () => {
    const { client, consumer } = open("skip")
    const values = [(await consumer.nextWithin(1000)).value, (await consumer.nextWithin(1000)).value]
    assert.deepEqual([values, consumer.decodeFailures.skipped], [[0, 3], 2])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 4n)
  })

  test("delivers raw what decrypts, and tells what does not: nobody knows whose bytes these are", async () => {
    const { consumer } = open("deliver-raw")
    await consumer.nextWithin(1000)
    await assert.rejects(consumer.next(), /offset 1 .* does not decrypt/)
    const raw = await consumer.next()
    assert.ok(raw.value?.kind === "raw")
    assert.equal(new TextDecoder().decode(raw.value.value), "bad")
    assert.deepEqual(consumer.decodeFailures, { told: 1, skipped: 0, deliveredRaw: 1, deadLettered: 0 })
    await consumer.shutdown()
  })

  test("sends the one as it is stored, and the other encrypted as any dead letter", async () => {
    const topic = new EncryptedDead()
    const { client, consumer } = open(deadLetter(topic))
    const first = (await consumer.nextWithin(1000)).value
    const last = (await consumer.nextWithin(1000)).value
    assert.deepEqual([first, last, consumer.decodeFailures.deadLettered], [0, 3, 2])
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 4n)
    const letters = topic.sent.map(({ record, encryptor }) => {
      const block = deadLetterBlock(record.headers as never)
      return [block?.offset, block?.content, encryptor === false ? "as it is" : encryptor === ours]
    })
    assert.deepEqual(letters, [
      [1n, "stored", "as it is"],
      [2n, "message", true],
    ])
    const [foreign, undecoded] = topic.sent.map(({ record }) => record.payload as Uint8Array)
    assert.equal(foreign?.[0], 0xfa, "an envelope")
    assert.equal(new TextDecoder().decode(undecoded), "bad")
  })

  test("does the same in a run whose onFailure has dead letters", async () => {
    const topic = new EncryptedDead()
    const { client, consumer } = open("stop")
    const values: unknown[] = []
    const run = consumer.run((message) => void values.push(message.value), { onFailure: deadLetter(topic) })
    await client.clock.advance(1000)
    await consumer.shutdown()
    await run
    assert.deepEqual([values, client.storedNext("worker")], [[0, 3], 4n])
    const letters = topic.sent.map(({ record, encryptor }) => [
      deadLetterBlock(record.headers as never)?.content,
      encryptor === false,
    ])
    assert.deepEqual(letters.toSorted(), [
      ["message", false],
      ["stored", true],
    ])
  })
})
