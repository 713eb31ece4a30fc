/** Chapter: schemas of a Confluent registry, on every backend: its frame byte by byte, and what happens while it is away. */
import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { type Client, confluentRegistry, IncompatibleSchemaError, schemaCodec } from "millrace"
import type { ClientRig } from "../rig/client-rig.ts"
import { isPending, patienceMs, settlesWithin, until } from "../rig/deadline.ts"
import { storedBy } from "../rig/progress.ts"
import { checkedRefusal, refused } from "../rig/refusal.ts"
import { RegistryServer } from "../rig/registry-server.ts"
import { bytesOf, hex, plain, publishBoth, type SchemaCase, schemaCases, valuesOf } from "../rig/schema-cases.ts"

export function confluentChapter(rig: ClientRig): void {
  describe("schemas of a Confluent registry", () => {
    let server: RegistryServer
    /** Of the backend, and with the registry. */
    let client: Client
    before(async () => {
      server = await RegistryServer.start()
      const schemas = confluentRegistry(server.url, { retries: 0 })
      client = await rig.connect(rig.under.isolated === undefined ? "same" : "fresh", { schemas })
    })
    after(async () => {
      await client.close()
      await server[Symbol.asyncDispose]()
    })

    for (const each of schemaCases) {
      const { type } = each.first
      test(`${type}: values go out in the registry's frame, and another program's are read, in two versions`, async () => {
        const subject = rig.name("subject")
        const first = await client.schemas.register(subject, each.first)
        const second = await client.schemas.register(subject, each.second)
        const topic = await rig.topic(1, {}, client)
        await publishBoth(topic, each, { first, second })
        const framed = `00${first.toString(16).padStart(8, "0")}${each.index}${each.old.hex}`
        const [record] = await bytesOf(topic, 4)
        assert.equal(hex(record), framed)
        assert.equal(record?.headers.size, 0, "others know nothing of our headers")
        await topic.producer().send(Buffer.from(framed, "hex"))
        const later = [each.old.later, each.new.value]
        assert.deepEqual(await valuesOf(await topic.schema(second)), [...later, ...later, each.old.later])
        assert.equal((await client.schemas.version(subject, "latest")).id, second)
      })
    }

    test("payloads without a frame, of an unknown id, or cut off are told in their place", async () => {
      const subject = rig.name("subject")
      const [each] = schemaCases as [SchemaCase]
      const id = await client.schemas.register(subject, each.first)
      const topic = await rig.topic(1, {}, client)
      const typed = await topic.schema(id)
      await typed.publish(each.old.value)
      for (const bad of ["", "00", "0001020300", "01010203000674656106", "00ffffffff0674656106"]) {
        await topic.producer().send(Buffer.from(bad, "hex"))
      }
      await typed.publish(null)
      await typed.publish(each.old.value)
      await using reader = await typed.records("reader")
      const results = await reader.poll()
      const error = "error"
      assert.deepEqual(
        results.map(({ kind }) => kind),
        ["record", error, error, error, error, error, "tombstone", "record"],
      )
      const unknown = results[5]
      assert.ok(unknown?.kind === "error")
      checkedRefusal(unknown.error, { kind: "decode", says: ["4294967295"] })
    })

    test("while the registry is away a consumer waits for it: nothing is skipped, nothing is stored, and then it goes on", async () => {
      const subject = rig.name("subject")
      const [each] = schemaCases as [SchemaCase]
      const first = await client.schemas.register(subject, each.first)
      const second = await client.schemas.register(subject, each.second)
      const topic = await rig.topic(1, {}, client)
      await publishBoth(topic, each, { first, second })
      const reading = await schemaCodec(confluentRegistry(server.url, { retries: 0 }), second)
      server.away = true
      const before = server.requests
      const consumer = topic.typed(reading).consumer("worker", 0, {
        onDecodeError: "skip",
        commitPolicy: { kind: "each" },
        pollingRetryIntervalMs: 10,
      })
      const next = consumer.nextWithin(patienceMs)
      await until("the registry to be asked again and again", () => (server.requests > before + 3 ? true : undefined))
      assert.equal(await isPending(next), true)
      assert.equal(await storedBy(topic, "worker"), undefined)
      server.away = false
      const values = [(await settlesWithin("the first value", next)).value]
      while (values.length < 4) values.push((await consumer.nextWithin(patienceMs)).value)
      const later = [each.old.later, each.new.value]
      assert.deepEqual(values.map(plain), [...later, ...later])
      assert.equal(consumer.decodeFailures.skipped, 0)
      await consumer.shutdown()
      assert.equal(await storedBy(topic, "worker"), 3n)
    })

    test("what the registry refuses is refused with its reasons, and an id that it lacks with the id", async () => {
      const subject = rig.name("subject")
      const [each] = schemaCases as [SchemaCase]
      await client.schemas.register(subject, each.first)
      server.incompatible = "Schema being registered is incompatible with an earlier schema: TYPE_MISMATCH at /fields/0"
      const error = await refused(() => client.schemas.register(subject, each.worse), {
        kind: "invalid",
        says: [subject, "TYPE_MISMATCH at /fields/0"],
        outcome: "rejected",
      })
      server.incompatible = undefined
      assert.ok(error instanceof IncompatibleSchemaError)
      const topic = await rig.topic(1, {}, client)
      await refused(() => topic.schema(77), { kind: "not-found", says: ["77"] })
    })

    test("the frame can be left out: the header has the id then, of whatever registry", async () => {
      const subject = rig.name("subject")
      const [each] = schemaCases as [SchemaCase]
      const id = await client.schemas.register(subject, each.first)
      const topic = await rig.topic(1, {}, client)
      const typed = await topic.schema(id, { framing: "header" })
      await typed.publish(each.old.value)
      const [record] = await bytesOf(topic, 1)
      assert.equal(hex(record), each.old.hex)
      assert.equal(record?.headers.get("millrace-sid")?.value, id)
      assert.deepEqual(await valuesOf(typed), [each.old.value])
    })
  })
}
