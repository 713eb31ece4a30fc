/** Values of registered schemas: what records say of their schema, and how they are read by it (seed 000, "Key operations"). */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, DecodeError, Headers, HeaderValue, InvalidError, NotFoundError } from "@millrace/contract"
import { VirtualClock } from "@millrace/runtime"
import type { CodecRecord } from "../codec/codec.ts"
import { avroRecord, registryOver } from "./rig.test-support.ts"
import { openSchemaCodec, schemaCodec } from "./schema-codec.ts"
import type { StateRegistry } from "./state-registry.ts"

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex")
const bytes = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text, "hex"))

function record(payload: Uint8Array | null, sid?: number | HeaderValue, ct?: number): CodecRecord {
  const entries: [string, HeaderValue][] = []
  if (ct !== undefined) entries.push(["millrace-ct", HeaderValue.uint8(ct)])
  if (sid !== undefined) entries.push(["millrace-sid", typeof sid === "number" ? HeaderValue.uint32(sid) : sid])
  return { payload, headers: Headers.from(entries) }
}

const v1 = {
  type: "avro",
  schema: avroRecord("User", [
    { name: "name", type: "string" },
    { name: "age", type: "int" },
  ]),
} as const
const v2 = {
  type: "avro",
  schema: avroRecord("User", [
    { name: "name", type: "string" },
    { name: "mail", type: "string", default: "none" },
  ]),
} as const

async function users(): Promise<{ registry: StateRegistry; first: number; second: number }> {
  const registry = registryOver()
  const first = await registry.register("users", v1)
  const second = await registry.register("users", v2)
  return { registry, first, second }
}

describe("the id in a header", () => {
  test("is told of each payload, with the content type; the payload is the format's own", async () => {
    const { registry, first } = await users()
    const codec = await schemaCodec(registry, first)
    assert.equal(codec.contentType, "avro")
    // Avro's specification: a string is its length, zigzag, and its bytes; an int is a zigzag varint.
    const payload = codec.encode({ name: "foo", age: 27 })
    assert.equal(hex(payload), "06666f6f36")
    assert.deepEqual(codec.describe?.(payload), { schemaId: first })
    assert.match(codec.name, /schema 1 \(Avro\)/)
    assert.throws(() => codec.encode({ name: 5 }), InvalidError)
  })

  test("a record is read by the schema it names, as a value of this one", async () => {
    const { registry, first, second } = await users()
    const codec = await schemaCodec(registry, second)
    const old = record(bytes("06666f6f36"), first, 5)
    const wait = codec.prepare?.([old, record(null, 99)])
    assert.ok(wait instanceof Promise)
    await wait
    assert.deepEqual({ ...(codec.decode(bytes("06666f6f36"), old) as object) }, { name: "foo", mail: "none" })
    assert.equal(codec.prepare?.([old]), undefined, "nothing is missing any more")
    const own = codec.encode({ name: "bar", mail: "x" })
    assert.equal(codec.prepare?.([record(own, second)]), undefined)
    assert.deepEqual({ ...(codec.decode(own, record(own, second)) as object) }, { name: "bar", mail: "x" })
  })

  test("a record that names none is taken to be of this schema", async () => {
    const { registry, first } = await users()
    const codec = await schemaCodec(registry, first)
    for (const known of [undefined, record(bytes("06666f6f36"))]) {
      assert.deepEqual({ ...(codec.decode(bytes("06666f6f36"), known) as object) }, { name: "foo", age: 27 })
    }
  })

  test("an unknown id is an error of its record that names the id; it is asked for again later", async () => {
    const { registry, first } = await users()
    const clock = new VirtualClock()
    let asked = 0
    const get = registry.get.bind(registry)
    registry.get = (id) => {
      asked++
      return get(id)
    }
    const codec = await openSchemaCodec({ registry, clock }, first)
    asked = 0
    const payload = bytes("06666f6f36")
    await codec.prepare?.([record(payload, 3), record(payload, 3)])
    const refused = (): void =>
      assert.throws(
        () => codec.decode(payload, record(payload, 3)),
        (error) => error instanceof NotFoundError && /schema id 3/.test(error.message),
      )
    refused()
    assert.equal(codec.prepare?.([record(payload, 3)]), undefined, "not at once again")
    assert.equal(asked, 1)
    await clock.advance(4_999)
    assert.equal(codec.prepare?.([record(payload, 3)]), undefined)
    const late = avroRecord("User", [...JSON.parse(v1.schema).fields, { name: "x", type: "int" }])
    assert.equal(await registry.register({ type: "avro", schema: late }), 3)
    refused()
    await clock.advance(2)
    const whole = bytes("06666f6f3602")
    await codec.prepare?.([record(whole, 3)])
    assert.deepEqual({ ...(codec.decode(whole, record(whole, 3)) as object) }, { name: "foo", age: 27 })
  })

  test("a record that was not prepared says so", async () => {
    const { registry, first, second } = await users()
    const codec = await schemaCodec(registry, second)
    assert.throws(() => codec.decode(bytes("06666f6f36"), record(bytes("06666f6f36"), first)), /prepare/)
  })

  test("a schema that this one cannot read, or of another type, is an error of its records", async () => {
    const { registry, first } = await users()
    const incompatible = await registry.register("other", {
      type: "avro",
      schema: avroRecord("User", [{ name: "name", type: "int" }]),
    })
    const json = await registry.register("json", { type: "json-schema", schema: { type: "object" } })
    const codec = await schemaCodec(registry, first)
    const payload = bytes("06666f6f36")
    await codec.prepare?.([record(payload, incompatible), record(payload, json)])
    assert.throws(
      () => codec.decode(payload, record(payload, incompatible)),
      new RegExp(`schema id ${incompatible}.*schema ${first}`),
    )
    assert.throws(() => codec.decode(payload, record(payload, json)), /"json-schema", not "avro"/)
  })

  test("headers that are not as they should be are an error of their record", async () => {
    const { registry, first } = await users()
    const codec = await schemaCodec(registry, first)
    const payload = bytes("06666f6f36")
    const odd = record(payload, HeaderValue.string("1"))
    assert.equal(codec.prepare?.([odd]), undefined)
    assert.throws(
      () => codec.decode(payload, odd),
      (error) => error instanceof DecodeError && /string/.test(error.message),
    )
    assert.throws(() => codec.decode(payload, record(payload, first, 1)), /content type is 1/)
    assert.doesNotThrow(() => codec.decode(payload, record(payload, first, 255)))
    const unreadable = { ...record(payload), headersError: new DecodeError("the header block is damaged") }
    assert.equal(codec.prepare?.([unreadable]), undefined)
    assert.throws(() => codec.decode(payload, unreadable), /damaged/)
  })

  test("a registry that cannot be reached fails the read, not a record, and is asked again", async () => {
    const { registry, first, second } = await users()
    const codec = await schemaCodec(registry, second)
    const get = registry.get.bind(registry)
    registry.get = () => Promise.reject(new ConnectionError("down"))
    const old = record(bytes("06666f6f36"), first)
    await assert.rejects(codec.prepare?.([old]) as Promise<void>, ConnectionError)
    registry.get = get
    await codec.prepare?.([old])
    assert.ok(codec.decode(bytes("06666f6f36"), old))
  })

  test("waiting for the registry can be given up; others go on waiting", async () => {
    const { registry, first, second } = await users()
    const codec = await schemaCodec(registry, second)
    const get = registry.get.bind(registry)
    let answer: () => void = () => {}
    registry.get = async (id) => {
      await new Promise<void>((resolve) => (answer = resolve))
      return await get(id)
    }
    const old = record(bytes("06666f6f36"), first)
    const abort = new AbortController()
    const given = codec.prepare?.([old], { signal: abort.signal }) as Promise<void>
    const other = codec.prepare?.([old]) as Promise<void>
    abort.abort()
    await assert.rejects(given, /given up/)
    answer()
    await other
    assert.ok(codec.decode(bytes("06666f6f36"), old))
  })

  test("more schemas in one batch than are kept are all there for it, and no more afterwards", async () => {
    const registry = registryOver()
    const ids: number[] = []
    await registry.setCompatibility("a", "none")
    for (let index = 0; index < 1100; index++) {
      ids.push(
        await registry.register({ type: "avro", schema: { type: "record", name: "A", doc: `${index}`, fields: [] } }),
      )
    }
    const codec = await schemaCodec(registry, ids[0] as number)
    const records = ids.map((id) => record(new Uint8Array(0), id))
    await codec.prepare?.(records)
    for (const each of records) assert.ok(codec.decode(each.payload as Uint8Array, each))
    await codec.prepare?.([record(new Uint8Array(0), 5000)])
    assert.throws(() => codec.decode(new Uint8Array(0), records[1]), /prepare/)
    assert.ok(codec.decode(new Uint8Array(0), records.at(-1)))
  })
})

describe("the id in front of the payload", () => {
  test("Avro and JSON Schema: a zero, the id, the format's payload; no headers", async () => {
    const { registry, first, second } = await users()
    const codec = await schemaCodec(registry, second, { framing: "confluent" })
    assert.equal(codec.contentType, undefined)
    assert.deepEqual(codec.describe?.(new Uint8Array()), {})
    assert.equal(hex(codec.encode({ name: "foo", mail: "" })), "000000000206666f6f00")
    const old = bytes(`0000000001` + "06666f6f36")
    await codec.prepare?.([record(old)])
    assert.deepEqual({ ...(codec.decode(old) as object) }, { name: "foo", mail: "none" })
    assert.notEqual(first, second)
  })

  test("what has no frame, or an unknown id, is an error of its record", async () => {
    const { registry, first } = await users()
    const codec = await schemaCodec(registry, first, { framing: "confluent" })
    for (const payload of [new Uint8Array(0), bytes("06666f6f36"), bytes("000000")]) {
      assert.equal(codec.prepare?.([record(payload)]), undefined)
      assert.throws(() => codec.decode(payload, record(payload)), DecodeError)
    }
    const unknown = bytes("00000003e706666f6f36")
    await codec.prepare?.([record(unknown)])
    assert.throws(
      () => codec.decode(unknown),
      (error) => error instanceof NotFoundError && /999/.test(error.message),
    )
  })

  test("Protobuf: the place of the message comes between, and has to be that of the message that is read", async () => {
    const registry = registryOver()
    const first =
      'syntax = "proto3"; package a; message One { string s = 1; } message Two { string s = 1; message In { int32 n = 1; } }'
    const id = await registry.register("m", { type: "protobuf", schema: first })
    // A message comes in front, so that all places move.
    const moved = await registry.register("m", {
      type: "protobuf",
      schema: first.replace("message One", "message Zero { } message One"),
    })
    const one = await schemaCodec(registry, id, { framing: "confluent" })
    const inner = await schemaCodec(registry, id, { framing: "confluent", message: "a.Two.In" })
    assert.equal(hex(one.encode({ s: "x" })), "0000000001" + "00" + "0a0178")
    assert.equal(hex(inner.encode({ n: 5 })), "0000000001" + "040200" + "0805")
    assert.throws(
      () => one.decode(inner.encode({ n: 5 })),
      (error) => error instanceof DecodeError && /1\.0.*at 0/.test(error.message),
    )
    const newOne = await schemaCodec(registry, moved, { framing: "confluent", message: "a.One" })
    assert.equal(hex(newOne.encode({ s: "x" })), "0000000002" + "0202" + "0a0178")
    const written = newOne.encode({ s: "x" })
    await one.prepare?.([record(written)])
    assert.deepEqual({ ...(one.decode(written) as object) }, { s: "x" })
    const lacking = await schemaCodec(registry, moved, { framing: "confluent" })
    const back = one.encode({ s: "x" })
    await lacking.prepare?.([record(back)])
    assert.throws(() => lacking.decode(back), /does not have the message/)
  })
})

describe("what is refused", () => {
  test("an id that is not there, a message that is not there, options that are none", async () => {
    const { registry, first } = await users()
    await assert.rejects(
      schemaCodec(registry, 99),
      (error) => error instanceof NotFoundError && /99/.test(error.message),
    )
    await assert.rejects(schemaCodec(registry, 0.5), InvalidError)
    await assert.rejects(schemaCodec(registry, first, { framing: "prefix" as never }), /"header", "confluent"/)
    await assert.rejects(schemaCodec(registry, first, { msg: "A" } as never), /"msg"/)
    const id = await registry.register({ type: "protobuf", schema: 'syntax = "proto3"; message A { }' })
    await assert.rejects(schemaCodec(registry, id, { message: "B" }), /"B".*"A"/)
  })
})

test("JSON Schema: values are checked when they are written and when they are read", async () => {
  const registry = registryOver()
  const id = await registry.register("j", {
    type: "json-schema",
    schema: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
  })
  const codec = await schemaCodec(registry, id)
  assert.equal(new TextDecoder().decode(codec.encode({ n: 1 })), '{"n":1}')
  assert.throws(() => codec.encode({ n: "1" }), InvalidError)
  assert.throws(() => codec.decode(new TextEncoder().encode('{"n":1.5}')))
  assert.deepEqual(codec.decode(new TextEncoder().encode('{"n":1}')), { n: 1 })
})

test("references: Avro's named types, JSON Schema's $ref, Protobuf's imports", async () => {
  const registry = registryOver()
  await registry.register("zip", { type: "avro", schema: avroRecord("geo.Zip", [{ name: "code", type: "string" }]) })
  await registry.register("home", {
    type: "avro",
    schema: avroRecord("geo.Home", [{ name: "zip", type: "geo.Zip" }]),
    references: [{ name: "geo.Zip", subject: "zip", version: 1 }],
  })
  const person = await registry.register("person", {
    type: "avro",
    schema: avroRecord("Person", [
      { name: "home", type: "geo.Home" },
      { name: "zip", type: "geo.Zip" },
    ]),
    references: [
      { name: "geo.Home", subject: "home", version: 1 },
      { name: "geo.Zip", subject: "zip", version: 1 },
    ],
  })
  const avro = await schemaCodec(registry, person)
  assert.equal(hex(avro.encode({ home: { zip: { code: "a" } }, zip: { code: "b" } })), "02610262")

  await registry.register("name", { type: "json-schema", schema: { type: "string", minLength: 2 } })
  const named = await registry.register("named", {
    type: "json-schema",
    schema: { type: "object", properties: { name: { $ref: "name.json" } } },
    references: [{ name: "name.json", subject: "name", version: 1 }],
  })
  const json = await schemaCodec(registry, named)
  assert.throws(() => json.encode({ name: "x" }), InvalidError)
  assert.deepEqual(json.decode(json.encode({ name: "xy" })), { name: "xy" })

  await registry.register("money", {
    type: "protobuf",
    schema: 'syntax = "proto3"; package shop; message Money { int32 cents = 1; }',
  })
  const order = await registry.register("order", {
    type: "protobuf",
    schema: 'syntax = "proto3"; package shop; import "money.proto"; message Order { Money price = 1; }',
    references: [{ name: "money.proto", subject: "money", version: 1 }],
  })
  const protobuf = await schemaCodec(registry, order)
  assert.equal(hex(protobuf.encode({ price: { cents: 7 } })), "0a020807")
})
