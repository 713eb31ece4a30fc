/** Schemas in the backend's small state: one id for each, versions, compatibility. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  ClosedError,
  CorruptionError,
  InvalidError,
  MillraceError,
  NotFoundError,
  RecordTooLargeError,
  type StateEntry,
  UnsupportedError,
} from "@millrace/contract"
import { systemClock } from "@millrace/runtime"
import { IncompatibleSchemaError } from "./incompatible.ts"
import { MemoryState } from "./memory-state.test-support.ts"
import { avroRecord, registryOver } from "./rig.test-support.ts"
import type { SchemaInit } from "./schema.ts"
import { schemaCodec } from "./schema-codec.ts"
import { StateRegistry } from "./state-registry.ts"

const avro = (schema: string | object): SchemaInit => ({ type: "avro", schema })
const order1 = avro(avroRecord("Order", [{ name: "id", type: "string" }]))
const order2 = avro(
  avroRecord("Order", [
    { name: "id", type: "string" },
    { name: "note", type: "string", default: "" },
  ]),
)
const order3 = avro(
  avroRecord("Order", [
    { name: "id", type: "string" },
    { name: "paid", type: "boolean" },
  ]),
)

describe("ids", () => {
  test("begin at 1 and are given once for what is the same schema, with or without a subject", async () => {
    const registry = registryOver()
    assert.equal(await registry.register(order1), 1)
    assert.equal(await registry.register("orders", order1), 1)
    assert.equal(await registry.register("others", order2), 2)
    assert.equal(await registry.register("orders", JSON.parse(JSON.stringify(order1))), 1)
    assert.equal(await registry.register(avro(JSON.parse(order1.schema as string))), 1)
    assert.deepEqual(
      (await registry.list()).map(({ id }) => id),
      [1, 2],
    )
  })

  test("the schema comes back as it was first given", async () => {
    const registry = registryOver()
    const text = `{ "type": "record", "name": "A",\n  "fields": [] }`
    const id = await registry.register("a", avro(text))
    assert.equal(await registry.register("b", avro(`{"name":"A","fields":[],"type":"record"}`)), id)
    assert.deepEqual(await registry.get(id), { id, type: "avro", schema: text, references: [] })
  })

  test("another type, another text and other references are another schema", async () => {
    const registry = registryOver()
    const used = await registry.register("used", avro(avroRecord("Used", [])))
    const using = { type: "avro", schema: avroRecord("Using", [{ name: "used", type: "Used" }]) } as const
    const one = await registry.register({ ...using, references: [{ name: "Used", subject: "used", version: 1 }] })
    await registry.register("copy", avro(avroRecord("Used", [])))
    const other = await registry.register({ ...using, references: [{ name: "Used", subject: "copy", version: 1 }] })
    const json = await registry.register({ type: "json-schema", schema: { type: "string" } })
    assert.equal(new Set([used, one, other, json]).size, 4)
    await assert.rejects(registry.register(using), /Used/)
  })

  test("an unknown id is not found, and the error names it", async () => {
    const registry = registryOver()
    await assert.rejects(registry.get(77), (error) => error instanceof NotFoundError && /77/.test(error.message))
    for (const id of [-1, 1.5, 2 ** 32, "1", undefined]) {
      await assert.rejects(registry.get(id as never), InvalidError)
    }
  })
})

describe("subjects and versions", () => {
  test("a version is added for each schema that is new to the subject", async () => {
    const registry = registryOver()
    await registry.register("orders", order1)
    await registry.register("orders", order2)
    assert.equal(await registry.register("orders", order1), 1, "one of the versions already")
    assert.deepEqual(
      (await registry.versions("orders")).map(({ id, version, subject }) => [id, version, subject]),
      [
        [1, 1, "orders"],
        [2, 2, "orders"],
      ],
    )
    assert.equal((await registry.version("orders", "latest")).version, 2)
    assert.equal((await registry.version("orders", 1)).id, 1)
    assert.equal((await registry.find("orders", order2))?.version, 2)
    assert.equal(await registry.find("orders", order3), undefined)
    assert.equal(await registry.find("nothing", order1), undefined)
  })

  test("what is not there is not found, by name", async () => {
    const registry = registryOver()
    await registry.register("orders", order1)
    await registry.setCompatibility("set but empty", "full")
    const missing = (work: Promise<unknown>, says: RegExp): Promise<void> =>
      assert.rejects(work, (error) => error instanceof NotFoundError && says.test(error.message))
    await missing(registry.versions("payments"), /payments/)
    await missing(registry.version("payments", "latest"), /payments/)
    await missing(registry.version("set but empty", "latest"), /set but empty/)
    await missing(registry.version("orders", 2), /orders.*version 2/)
    await missing(registry.check("orders", order1, { version: 9 }), /version 9/)
    await assert.rejects(registry.version("orders", 0), InvalidError)
    assert.deepEqual(await registry.subjects(), ["orders"])
  })

  test("subjects may have any name of 1 to 255 bytes, and none is taken for another", async () => {
    const registry = registryOver()
    const names = [
      "a.b",
      "a=2eb",
      "a/b",
      "A.B",
      "ä",
      "%",
      " ",
      "a*",
      ">",
      "x".repeat(255),
      `${"x".repeat(254)}y`,
      "ü".repeat(127),
    ]
    for (const [index, name] of names.entries()) await registry.register(name, avro(avroRecord(`R${index}`, [])))
    assert.deepEqual(await registry.subjects(), [...names].sort())
    for (const [index, name] of names.entries()) {
      assert.match((await registry.version(name, "latest")).schema, new RegExp(`"R${index}"`))
    }
    for (const name of ["", "x".repeat(256), "\ud800", 5, undefined]) {
      await assert.rejects(registry.versions(name as never), InvalidError)
    }
  })

  test("keys are of letters, digits, dashes, underlines, slashes and equals signs, and short", async () => {
    const state = new MemoryState()
    await registryOver(state).register("größe.* >/\n".repeat(11), order1)
    for (const key of state.entries.keys()) assert.match(key, /^[A-Za-z0-9_/=-]{1,300}$/)
  })
})

describe("what is refused", () => {
  test("a schema that is none, with the reason, and nothing is stored", async () => {
    const state = new MemoryState()
    const registry = registryOver(state)
    const refused = (schema: unknown, says: RegExp): Promise<void> =>
      assert.rejects(
        registry.register("s", schema as SchemaInit),
        (error) => error instanceof InvalidError && says.test(error.message),
      )
    await refused(avro("{"), /not JSON/)
    await refused(avro(`{"type":"record"}`), /does not parse/)
    await refused(avro({ type: "record", name: "A", fields: [{ name: "b", type: "B" }] }), /B/)
    await refused({ type: "protobuf", schema: "message A {" }, /does not parse/)
    await refused({ type: "protobuf", schema: 'syntax = "proto3"; import "a.proto";' }, /a\.proto.*references/)
    await refused({ type: "protobuf", schema: {} }, /text/)
    await refused({ type: "json-schema", schema: `{"type":"strin"}` }, /type/)
    await refused({ type: "json-schema", schema: `{"$ref":"#/nothing"}` }, /nothing/)
    await refused({ type: "xml", schema: "" }, /"xml".*"avro", "json-schema", "protobuf"/)
    await refused({ type: "avro", schema: '"int"', id2: 1 }, /"id2"/)
    await refused(
      { type: "avro", schema: '"int"', references: [{ name: "A", subject: "b", version: 0 }] },
      /version.*0/,
    )
    await refused({ type: "avro", schema: `${"[".repeat(2000)}${"]".repeat(2000)}` }, /deep/)
    await refused(undefined, /object/)
    await refused(avro({ toJSON: () => undefined }), /no JSON form/)
    const circle: Record<string, unknown> = { type: "record" }
    circle.fields = circle
    await refused(avro(circle), /no JSON form/)
    await refused(avro({ type: "record", name: "A", fields: [], default: 1n }), /no JSON form/)
    await assert.rejects(
      registry.register("s", { ...order1, references: [{ name: "A", subject: "nowhere", version: 1 }] }),
      NotFoundError,
    )
    await assert.rejects(registry.register("s", order1, { forced: true } as never), InvalidError)
    assert.equal(state.entries.size, 0)
  })

  test("a schema that is too large, with its size and the limit", async () => {
    const state = new MemoryState()
    const registry = registryOver(state)
    const schema = avro({ type: "record", name: "A", doc: "x".repeat(900_000), fields: [] })
    await assert.rejects(registry.register("s", schema), (error) => {
      return error instanceof RecordTooLargeError && error.context.limitBytes === 900_000
    })
    assert.equal(state.entries.size, 0)
  })

  test("a reference to a schema of another type, and one name for two schemas", async () => {
    const registry = registryOver()
    await registry.register("json", { type: "json-schema", schema: true })
    await registry.register("a", avro(avroRecord("A", [])))
    await registry.register("b", {
      ...avro(avroRecord("B", [{ name: "a", type: "A" }])),
      references: [{ name: "A", subject: "a", version: 1 }],
    })
    await registry.register("other", avro(avroRecord("A", [{ name: "x", type: "int", default: 1 }])))
    await assert.rejects(
      registry.register({ ...order1, references: [{ name: "J", subject: "json", version: 1 }] }),
      /"json-schema", not "avro"/,
    )
    await assert.rejects(
      registry.register({
        ...order1,
        references: [
          { name: "B", subject: "b", version: 1 },
          { name: "A", subject: "other", version: 1 },
        ],
      }),
      /name "A"/,
    )
  })

  test("a backend without small state, with its reason and the way out; a client that is closed", async () => {
    const manifest = {
      backend: "Apache Foo",
      state: { supported: false, reason: "it keeps none", instead: "Use a topic" },
    }
    const context = { session: { state: new MemoryState(), manifest } as never, clock: systemClock }
    const publish = { timeoutMs: 1000, retries: 0, retryBackoffMs: 1 }
    const registry = new StateRegistry({ ...context, publish })
    for (const call of [
      () => registry.register("a", order1),
      () => registry.get(1),
      () => registry.list(),
      () => registry.compatibility(),
    ]) {
      await assert.rejects(
        call(),
        (error) =>
          error instanceof UnsupportedError && /Apache Foo.*it keeps none.*confluentRegistry/.test(error.message),
      )
    }
    const assertOpen = (): never => {
      throw new ClosedError("closed")
    }
    await assert.rejects(new StateRegistry({ ...context, publish, assertOpen }).list(), ClosedError)
  })

  test("stored bytes that are damaged", async () => {
    const state = new MemoryState()
    await registryOver(state).register(order1)
    const key = [...state.entries.keys()].find((found) => found.startsWith("schema/id/")) as string
    state.entries.set(key, { key, value: new Uint8Array([255]), revision: 9n })
    await assert.rejects(
      registryOver(state).get(1),
      (error) => error instanceof CorruptionError && error.message.includes(key),
    )
  })
})

describe("compatibility", () => {
  test("is backward unless it is set, for all subjects or for one", async () => {
    const registry = registryOver()
    assert.equal(await registry.compatibility(), "backward")
    assert.equal(await registry.compatibility("orders"), "backward")
    await registry.setCompatibility(undefined, "full")
    assert.equal(await registry.compatibility("orders"), "full")
    await registry.setCompatibility("orders", "none")
    assert.equal(await registry.compatibility("orders"), "none")
    assert.equal(await registry.compatibility(), "full")
    await assert.rejects(registry.setCompatibility("orders", "BACKWARD" as never), /"BACKWARD".*"backward"/)
  })

  test("a version that does not get on with the latest is refused, each reason with its path, and nothing is stored", async () => {
    const state = new MemoryState()
    const registry = registryOver(state)
    await registry.register("orders", order1)
    const before = state.puts
    const added = avro(
      avroRecord("Order", [
        { name: "id", type: "int" },
        { name: "paid", type: "boolean" },
      ]),
    )
    await assert.rejects(registry.register("orders", added), (error) => {
      assert.ok(error instanceof IncompatibleSchemaError)
      assert.ok(error instanceof InvalidError)
      assert.equal(error.subject, "orders")
      assert.deepEqual(
        error.incompatibilities.map(({ version, direction, path }) => [version, direction, path]),
        [
          [1, "backward", "Order.id"],
          [1, "backward", "Order.paid"],
        ],
      )
      assert.match(error.message, /orders.*Order\.id: string cannot be read as int.*Order\.paid/)
      return true
    })
    assert.equal(state.puts, before)
    assert.equal(new MillraceError("invalid", "other") instanceof IncompatibleSchemaError, false)
  })

  const cases: readonly (readonly [compatibility: string, added: SchemaInit, taken: boolean])[] = [
    // From order1: order2 adds a field with a default, order3 one without.
    ["none", order3, true],
    ["backward", order2, true],
    ["backward", order3, false],
    ["forward", order3, true],
    ["full", order2, true],
    ["full", order3, false],
  ]
  for (const [compatibility, added, taken] of cases) {
    test(`${compatibility}: ${taken ? "takes" : "refuses"} ${added === order2 ? "a field with a default" : "a field without"}`, async () => {
      const registry = registryOver()
      await registry.register("orders", order1)
      await registry.setCompatibility("orders", compatibility as never)
      assert.equal((await registry.check("orders", added)).compatible, taken)
      if (taken) assert.equal(await registry.register("orders", added), 2)
      else await assert.rejects(registry.register("orders", added), IncompatibleSchemaError)
    })
  }

  test("transitive settings ask all versions, the others the latest", async () => {
    // Version 2 drops the field that version 3 adds again with another type.
    const first = avro(avroRecord("A", [{ name: "x", type: "string", default: "" }]))
    const second = avro(avroRecord("A", []))
    const third = avro(avroRecord("A", [{ name: "x", type: "int", default: 0 }]))
    for (const [compatibility, taken] of [
      ["backward", true],
      ["backwardTransitive", false],
      ["full", true],
      ["fullTransitive", false],
      ["forwardTransitive", false],
    ] as const) {
      const registry = registryOver()
      await registry.setCompatibility("a", "none")
      await registry.register("a", first)
      await registry.register("a", second)
      await registry.setCompatibility("a", compatibility)
      const report = await registry.check("a", third)
      assert.equal(report.compatible, taken, compatibility)
      if (!taken) assert.ok(report.incompatibilities.every(({ version }) => version === 1))
    }
  })

  test("a check says what register would do, also against one version and for a subject that is not there", async () => {
    const registry = registryOver()
    assert.deepEqual(await registry.check("orders", order3), {
      compatible: true,
      compatibility: "backward",
      incompatibilities: [],
    })
    await registry.register("orders", order1)
    await registry.register("orders", order2)
    assert.equal((await registry.check("orders", order3, { version: 1 })).compatible, false)
    await assert.rejects(registry.check("orders", avro("{")), InvalidError)
    await assert.rejects(registry.check("nothing", order1, { version: 1 }), NotFoundError)
  })

  test("force makes a version of what is refused otherwise; another type is never compatible", async () => {
    const registry = registryOver()
    await registry.register("orders", order1)
    const json = { type: "json-schema", schema: { type: "object" } } as const
    await assert.rejects(registry.register("orders", json), /"json-schema".*"avro"/)
    await registry.register("orders", order3, { force: true })
    assert.equal((await registry.versions("orders")).length, 2)
  })
})

test("schemas whose types are within each other too deep are not judged, and end", async () => {
  const registry = registryOver()
  const chain = (leaf: string): SchemaInit => {
    const links = Array.from({ length: 4000 }, (_, index) => `message M${index} { M${index + 1} n = 1; }`)
    return { type: "protobuf", schema: `syntax = "proto3"; ${links.join(" ")} message M4000 { ${leaf} n = 1; }` }
  }
  await registry.register("deep", chain("string"))
  assert.match(
    (await registry.check("deep", chain("int32"))).incompatibilities[0]?.message ?? "",
    /cannot be judged|string/,
  )
})

test("a type that a later version stored is named", async () => {
  const state = new MemoryState()
  const registry = registryOver(state)
  await registry.register("a", order1)
  const entry = state.entries.get("schema/id/00000001") as StateEntry
  const later = JSON.stringify({ type: "thrift", schema: "", references: [] })
  state.entries.set(entry.key, { ...entry, value: new TextEncoder().encode(later) })
  await assert.rejects(
    schemaCodec(registry, 1),
    (error) => error instanceof InvalidError && /"thrift"/.test(error.message),
  )
})
