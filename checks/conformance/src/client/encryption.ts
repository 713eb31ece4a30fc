/** Chapter: encryption by the client: what the backend holds, what comes back, and what cannot be decrypted. */
import assert from "node:assert/strict"
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, test } from "node:test"
import {
  type Consumer,
  DecodeError,
  type Encryptor,
  encryptor,
  HeaderValue,
  iggyEncryptor,
  Json,
  type Message,
  type Producer,
  type Topic,
} from "millrace"
import { type ClientRig, encode, take } from "../rig/client-rig.ts"
import { patienceMs } from "../rig/deadline.ts"
import { text, texts } from "../rig/records.ts"

const keys = { "2026-01": new Uint8Array(32).fill(1), "2026-02": new Uint8Array(32).fill(2) }
const ours = encryptor({ current: "2026-02", keys })
const before = encryptor({ current: "2026-01", keys })
const foreign = encryptor({ current: "other", keys: { other: new Uint8Array(32).fill(3) } })

export function encryptionChapter(rig: ClientRig): void {
  describe("encryption", () => {
    test("payload and headers come back as they were, and the log holds neither", async () => {
      const topic = await rig.topic()
      await using producer = topic.producer({ encryptor: ours })
      const headers = [
        ["n", HeaderValue.int32(7)],
        ["n", "eight"],
        ["empty", HeaderValue.raw(new Uint8Array(0))],
      ] as const
      await producer.sendBatch([
        { payload: encode("secret one"), key: "ann", headers },
        encode("secret two"),
        { payload: new Uint8Array(0) },
        { payload: encode("secret four"), headers: [["long", "v".repeat(200)]], id: 77n },
      ])
      const [first, second, third, fourth] = await everything(topic, ours)
      assert.equal(text(first?.payload), "secret one")
      assert.equal(text(first?.key), "ann")
      assert.deepEqual(
        Array.from(first?.headers ?? [], ([name, value]) => [name, value.kind, value.value]),
        [
          ["n", "int32", 7],
          ["n", "string", "eight"],
          ["empty", "raw", new Uint8Array(0)],
        ],
      )
      assert.equal(text(second?.payload), "secret two")
      assert.deepEqual(third?.payload, new Uint8Array(0))
      assert.equal(fourth?.id, 77n)
      assert.equal(fourth?.headers.get("long")?.value, "v".repeat(200))
      for (const message of await everything(topic, false)) {
        const held = JSON.stringify(message) + Buffer.from(message.payload ?? []).toString("latin1")
        assert.doesNotMatch(held, /secret|eight|vvv/)
      }
    })

    test("a tombstone stays one in the log, and its headers come back", async () => {
      const topic = await rig.topic()
      await using producer = topic.producer({ encryptor: ours })
      await producer.sendBatch([
        { payload: null, key: "ann", headers: { why: "w".repeat(300).slice(0, 250), by: "ben" } },
        { payload: null, key: "ben" },
      ])
      const [first, second] = await everything(topic, ours)
      assert.equal(first?.payload, null)
      assert.equal(text(first?.key), "ann")
      assert.deepEqual(
        Array.from(first?.headers ?? [], ([name, value]) => [name, value.value]),
        [
          ["why", "w".repeat(250)],
          ["by", "ben"],
        ],
      )
      assert.equal(second?.payload, null)
      assert.equal(second?.headers.size, 0)
      for (const message of await everything(topic, false)) {
        assert.equal(message.payload, null)
        assert.deepEqual(new Set(Array.from(message.headers, ([name]) => name)), new Set(["millrace-sealed"]))
      }
    })

    test("the client's encryptor serves every way of sending and of reading", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const client = await rig.connect("same", { encryptor: ours })
      const topic = await rig.topic(1, {}, client)
      await using direct = topic.producer()
      await direct.send(encode('"direct"'))
      await topic.publish().payload(encode('"publish"')).send()
      await topic.publishBatch().add(encode('"batch"')).send()
      await topic.json(new Json((value) => value as string)).publish("typed")
      const reader = await topic.json(new Json((value) => value as string)).records("reader")
      const values = (await reader.poll()).map((result) => (result.kind === "record" ? result.value : result.kind))
      assert.deepEqual(values, ["direct", "publish", "batch", "typed"])
      await reader[Symbol.asyncDispose]()
      const raw = await everything(rig.through(rig.client, topic), undefined)
      for (const message of raw) assert.equal(message.payload?.[0], 0xfa)
      await client.close()
    })

    test("a background producer encrypts what it queues", async () => {
      const topic = await rig.topic()
      const producer = topic.producer({ encryptor: ours, background: true })
      for (let n = 0; n < 300; n++) await producer.send(encode(`r${n}`))
      await producer.shutdown()
      assert.deepEqual(
        texts(await everything(topic, ours)),
        Array.from({ length: 300 }, (_, n) => `r${n}`),
      )
    })

    test("a spool holds what is encrypted, and delivers it", async () => {
      const topic = await rig.topic()
      const directory = await mkdtemp(join(tmpdir(), "millrace-encrypted-spool-"))
      try {
        const producer = topic.producer({ encryptor: ours, background: { spool: directory } })
        await producer.sendBatch([{ payload: encode("secret payload"), headers: { h: "secret header" } }])
        const files = await readdir(directory, { recursive: true, withFileTypes: true })
        let held = 0
        for (const file of files.filter((entry) => entry.isFile())) {
          const bytes = await readFile(join(file.parentPath, file.name))
          held += bytes.length
          assert.equal(bytes.includes("secret"), false, file.name)
        }
        assert.ok(held > 0)
        await producer.shutdown()
        const [message] = await everything(topic, ours)
        assert.equal(text(message?.payload), "secret payload")
        assert.equal(message?.headers.get("h")?.value, "secret header")
      } finally {
        await rm(directory, { recursive: true, force: true })
      }
    })

    test("keys rotate: records under the old and the new one are read side by side", async () => {
      const topic = await rig.topic()
      for (const [n, by] of [before, ours, before].entries()) await sendOnce(topic.producer({ encryptor: by }), `r${n}`)
      assert.deepEqual(texts(await everything(topic, ours)), ["r0", "r1", "r2"])
    })

    test("what does not decrypt is an error in its place; the next read goes past it, a shutdown does not", async () => {
      const [topic, elsewhere] = [await rig.topic(), await rig.topic()]
      await sendOnce(topic.producer({ encryptor: ours }), "first")
      await sendOnce(topic.producer({ encryptor: foreign }), "under a key that is not ours")
      await sendOnce(topic.producer({ encryptor: false }), "not encrypted")
      await sendOnce(elsewhere.producer({ encryptor: ours }), "for another topic")
      const [copied] = await everything(elsewhere, false)
      const plain = topic.producer({ encryptor: false })
      await plain.send(copied?.payload ?? null)
      const altered = Uint8Array.from(copied?.payload ?? [])
      altered[altered.length - 1] = (altered.at(-1) as number) ^ 1
      await plain.send(altered)
      await plain.shutdown()
      await sendOnce(topic.producer({ encryptor: ours }), "last")

      const name = rig.name("reader")
      const open = (): Consumer => topic.consumer(name, 0, { encryptor: ours })
      const consumer = open()
      assert.deepEqual(await outcomes(consumer, 2), ["first", "error at 1"])
      await consumer.shutdown()
      const again = open()
      assert.deepEqual(await outcomes(again, 5), ["error at 1", "error at 2", "error at 3", "error at 4", "last"])
      await again.shutdown()
    })

    test("a group reads what is encrypted, and leaving it does not pass what is not", async () => {
      const topic = await rig.topic()
      const group = topic.consumerGroup(rig.name("group"))
      const first = await group.consumer({ encryptor: ours, startAt: { kind: "first" } })
      await sendOnce(topic.producer({ encryptor: ours }), "first")
      await sendOnce(topic.producer({ encryptor: foreign }), "under a key that is not ours")
      await sendOnce(topic.producer({ encryptor: ours }), "last")
      assert.deepEqual(await outcomes(first, 2), ["first", "error at 1"])
      await first.shutdown()
      const second = await group.consumer({ encryptor: ours, startAt: { kind: "first" } })
      assert.deepEqual(await outcomes(second, 2), ["error at 1", "last"])
      await second.shutdown()
    })

    test("a replay gives it as an error and goes on", async () => {
      const topic = await rig.topic()
      await sendOnce(topic.producer({ encryptor: ours }), "a")
      await sendOnce(topic.producer({ encryptor: foreign }), "b")
      await sendOnce(topic.producer({ encryptor: ours }), "c")
      await using cursor = await topic.replay({ encryptor: ours })
      const results = await cursor.poll()
      assert.deepEqual(
        results.map((result) => (result.kind === "record" ? text(result.value.payload) : result.kind)),
        ["a", "error", "c"],
      )
      const [, error] = results
      assert.ok(error?.kind === "error" && error.error instanceof DecodeError)
    })

    test("records of a failed publish are not encrypted twice", async () => {
      const topic = await rig.topic()
      await sendOnce(topic.producer({ encryptor: ours }), "sealed")
      const [stored] = await everything(topic, false)
      const sealed = {
        payload: stored?.payload ?? null,
        partition: 0,
        ...(stored?.id === undefined ? {} : { id: stored.id }),
      }
      await topic.batch([sealed, { payload: encode("plain"), partition: 0 }], { encryptor: ours })
      const read = texts(await everything(topic, ours))
      assert.deepEqual([...new Set(read)], ["sealed", "plain"])
    })

    test("the format of Apache Iggy's clients holds nonce, ciphertext and tag, and reads itself", async () => {
      const topic = await rig.topic()
      const iggy = iggyEncryptor({ key: keys["2026-01"] })
      await sendOnce(topic.producer({ encryptor: iggy }), "tea")
      assert.deepEqual(texts(await everything(topic, iggy)), ["tea"])
      const [raw] = await everything(topic, false)
      assert.equal(raw?.payload?.length, 12 + 3 + 16)
    })
  })
}

async function sendOnce(producer: Producer, payload: string): Promise<void> {
  await producer.send(encode(payload), { partition: 0 })
  await producer.shutdown()
}

/** What the next reads bring: payloads as text, and where errors stand. */
async function outcomes(consumer: Consumer, count: number): Promise<string[]> {
  const seen: string[] = []
  while (seen.length < count) {
    try {
      seen.push(text((await consumer.nextWithin(patienceMs)).payload))
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error
      seen.push(`error at ${error.context.offset}`)
    }
  }
  return seen
}

/** Every message of partition 0 up to its present end. */
async function everything(topic: Topic, by: Encryptor | false | undefined): Promise<Message[]> {
  const [marks] = await topic.watermarks()
  const reader = topic.consumer(undefined, 0, {
    startAt: { kind: "first" },
    ...(by === undefined ? {} : { encryptor: by }),
  })
  try {
    return await take(reader, Number((marks?.end ?? 0n) - (marks?.first ?? 0n)))
  } finally {
    await reader.shutdown()
  }
}
