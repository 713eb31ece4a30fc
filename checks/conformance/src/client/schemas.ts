/** Chapter: schemas that the backend keeps, by several clients and processes at once; and what is said where it keeps none. */
import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { describe, type TestContext, test } from "node:test"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { cbor, IncompatibleSchemaError } from "millrace"
import type { ClientRig } from "../rig/client-rig.ts"
import { patienceMs } from "../rig/deadline.ts"
import { checkedRefusal, refused } from "../rig/refusal.ts"
import { bytesOf, hex, publishBoth, type SchemaCase, schemaCases, valuesOf } from "../rig/schema-cases.ts"

const run = promisify(execFile)

/** A child that has not ended by itself after so long hangs, also on a busy machine; in ms. */
const childTimeoutMs = 90_000

export function schemasChapter(rig: ClientRig): void {
  describe("schemas that the backend keeps", () => {
    const lacking = (): string | undefined => {
      const { state } = rig.client.manifest
      return state.supported ? undefined : state.reason
    }

    for (const each of schemaCases) {
      const { type } = each.first
      test(`${type}: records of two versions stand in one topic, and are read as values of either`, async (t) => {
        if (skipped(t, lacking())) return
        const subject = rig.name("subject")
        const first = await rig.client.schemas.register(subject, each.first)
        const second = await rig.client.schemas.register(subject, each.second)
        const topic = await rig.topic()
        await publishBoth(topic, each, { first, second })
        for (const record of await bytesOf(topic, 4)) {
          const header = record.headers.get("millrace-sid")
          assert.deepEqual(
            [header?.kind, header?.value],
            ["uint32", Number(record.position.offset) % 2 ? second : first],
          )
          assert.equal(record.headers.get("millrace-ct")?.value, each.contentType)
        }
        assert.equal(hex((await bytesOf(topic, 1))[0]), each.old.hex)
        const later = [each.old.later, each.new.value]
        assert.deepEqual(await valuesOf(await topic.schema(second)), [...later, ...later])
        const earlier = [each.old.value, each.new.earlier]
        assert.deepEqual(await valuesOf(await topic.schema(first)), [...earlier, ...earlier])
      })

      test(`${type}: a version that gets on with none is refused with each reason, and nothing is stored`, async (t) => {
        if (skipped(t, lacking())) return
        const { schemas } = rig.client
        const subject = rig.name("subject")
        const first = await schemas.register(subject, each.first)
        await schemas.setCompatibility(subject, "full")
        const error = await refused(() => schemas.register(subject, each.worse), {
          kind: "invalid",
          says: [subject, ...each.reasons],
          outcome: "rejected",
          retryable: false,
        })
        assert.ok(error instanceof IncompatibleSchemaError)
        for (const reason of each.reasons) {
          assert.ok(error.incompatibilities.some(({ path, message }) => reason.test(`${path} ${message}`)))
        }
        for (const { version } of error.incompatibilities) assert.equal(version, 1)
        const report = await schemas.check(subject, each.worse)
        assert.deepEqual([report.compatible, report.incompatibilities], [false, error.incompatibilities])
        assert.deepEqual(
          (await schemas.versions(subject)).map(({ id }) => id),
          [first],
        )
        const forced = await schemas.register(subject, each.worse, { force: true })
        assert.equal((await schemas.version(subject, "latest")).id, forced)
      })

      test(`${type}: what is no value of the schema is refused with nothing sent; what are no bytes of it is told in its place`, async (t) => {
        if (skipped(t, lacking())) return
        const id = await rig.client.schemas.register(rig.name("subject"), each.first)
        const topic = await rig.topic()
        const typed = await topic.schema(id)
        await refused(() => typed.publish(each.misfit), { kind: "invalid", outcome: "rejected" })
        await refused(() => typed.producer().sendBatch([each.old.value, each.misfit]), {
          kind: "invalid",
          says: ["record #1"],
        })
        assert.equal((await topic.watermarks())[0]?.end, 0n)
        await typed.publish(each.old.value)
        await topic.publishBatch().schemaId(id).add(Uint8Array.of(0xff)).send()
        await typed.publish(null)
        await using reader = await typed.records("reader")
        assert.deepEqual(
          (await reader.poll()).map(({ kind }) => kind),
          ["record", "error", "tombstone"],
        )
      })
    }

    test("another client, which knows nothing but the ids, reads what was written, and writes what is read", async (t) => {
      if (skipped(t, lacking() ?? rig.under.isolated)) return
      const other = await rig.connect()
      for (const each of schemaCases) {
        const subject = rig.name("subject")
        const first = await rig.client.schemas.register(subject, each.first)
        const second = await other.schemas.register(subject, each.second)
        const topic = await rig.topic()
        await (await topic.schema(first)).publish(each.old.value)
        await (await rig.through(other, topic).schema(second)).publish(each.new.value)
        assert.deepEqual(await valuesOf(await topic.schema(first)), [each.old.value, each.new.earlier])
        const theirs = await rig.through(other, topic).schema(second)
        assert.deepEqual(await valuesOf(theirs), [each.old.later, each.new.value])
      }
      await other.close()
    })

    test("an id that no schema has is an error of its record that names it, by a reader and by a consumer, and of `topic.schema`", async (t) => {
      if (skipped(t, lacking())) return
      const [each] = schemaCases as [SchemaCase]
      const id = await rig.client.schemas.register(rig.name("subject"), each.first)
      const topic = await rig.topic()
      const typed = await topic.schema(id)
      const unknown = 4_294_967_295
      await typed.publish(each.old.value)
      await topic.publishBatch().schemaId(unknown).add(Buffer.from(each.old.hex, "hex")).send()
      await typed.publish(each.old.value)
      await using reader = await typed.records("reader")
      const results = await reader.poll()
      assert.deepEqual(
        results.map(({ kind }) => kind),
        ["record", "error", "record"],
      )
      const [, failed] = results
      assert.ok(failed?.kind === "error")
      checkedRefusal(failed.error, { kind: "decode", says: [String(unknown)] })
      const consumer = typed.consumer("worker", 0, { onDecodeError: "skip" })
      const seen = [await consumer.nextWithin(patienceMs), await consumer.nextWithin(patienceMs)]
      assert.deepEqual(
        seen.map(({ position }) => position.offset),
        [0n, 2n],
      )
      assert.equal(consumer.decodeFailures.skipped, 1)
      await consumer.shutdown()
      await refused(() => topic.schema(unknown), { kind: "not-found", says: [String(unknown)] })
      for (const bad of [-1, 1.5, 2 ** 32]) await refused(() => topic.schema(bad), "invalid")
    })

    test("a record of another type of schema, or whose headers contradict it, is told in its place", async (t) => {
      if (skipped(t, lacking())) return
      const [avro, proto] = schemaCases as [SchemaCase, SchemaCase]
      const { schemas } = rig.client
      const topic = await rig.topic()
      const typed = await topic.schema(await schemas.register(rig.name("subject"), avro.first))
      await (await topic.schema(await schemas.register(rig.name("subject"), proto.first))).publish(proto.old.value)
      await topic.cbor(cbor((value) => value)).publish(1)
      await topic.producer().send(Buffer.from(avro.old.hex, "hex"))
      await using reader = await typed.records("reader")
      const results = await reader.poll()
      assert.deepEqual(
        results.map(({ kind }) => kind),
        ["error", "error", "record"],
        "without an id it is of this schema",
      )
    })

    test("clients that register the same schemas at the same time get the same ids, and versions have no gap", async (t) => {
      if (skipped(t, lacking() ?? rig.under.isolated)) return
      const clients = await Promise.all([rig.connect(), rig.connect(), rig.connect()])
      const subject = rig.name("subject")
      const shapes = Array.from({ length: 6 }, (_, count) => shape(rig.name("f"), count))
      const rounds = await Promise.all(
        clients.map((client) =>
          Promise.all(shapes.map((one) => client.schemas.register(subject, one, { force: true }))),
        ),
      )
      for (const ids of rounds) assert.deepEqual(ids, rounds[0])
      assert.equal(new Set(rounds[0]).size, shapes.length)
      const versions = await rig.client.schemas.versions(subject)
      assert.deepEqual(
        versions.map(({ version }) => version),
        [1, 2, 3, 4, 5, 6],
      )
      assert.deepEqual(new Set(versions.map(({ id }) => id)), new Set(rounds[0]))
      for (const client of clients) await client.close()
    })

    test("so do processes", async (t) => {
      if (skipped(t, lacking() ?? rig.under.isolated)) return
      const child = fileURLToPath(new URL("./schemas-child.ts", import.meta.url))
      const subject = rig.name("subject")
      const printed = await Promise.all(
        [1, 2].map(() => run(process.execPath, [child, rig.url, subject, "6"], { timeout: childTimeoutMs })),
      )
      const ids = printed.map(({ stdout }) => JSON.parse(stdout) as number[])
      for (const each of ids) assert.deepEqual(each, ids[0])
      assert.equal(new Set(ids[0]).size, 6)
      const versions = await rig.client.schemas.versions(subject)
      assert.deepEqual(
        versions.map(({ id }) => id),
        ids[0],
      )
    })

    test("where the backend keeps none, each call says so and what to use instead", async (t) => {
      if (lacking() === undefined) return t.skip("it keeps some")
      const { schemas } = rig.client
      const [{ first }] = schemaCases as [SchemaCase]
      const topic = await rig.topic()
      for (const call of [
        () => schemas.register("s", first),
        () => schemas.get(1),
        () => schemas.list(),
        () => schemas.subjects(),
        () => schemas.versions("s"),
        () => schemas.version("s", "latest"),
        () => schemas.find("s", first),
        () => schemas.check("s", first),
        () => schemas.compatibility("s"),
        () => schemas.setCompatibility("s", "full"),
        () => topic.schema(1),
      ]) {
        await refused(call, {
          kind: "unsupported",
          says: [rig.client.manifest.backend, "confluentRegistry"],
          outcome: "rejected",
          retryable: false,
        })
      }
    })
  })
}

function skipped(t: TestContext, reason: string | undefined): boolean {
  if (reason !== undefined) t.skip(reason)
  return reason !== undefined
}

/** An Avro record of so many fields. */
function shape(field: string, count: number): { readonly type: "avro"; readonly schema: object } {
  const fields = Array.from({ length: count }, (_, index) => ({
    name: `${field.replaceAll("-", "_")}_${index}`,
    type: "int",
  }))
  return { type: "avro", schema: { type: "record", name: "Shape", fields } }
}
