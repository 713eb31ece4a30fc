/** A topic of every codec, with values that it must give back. */
import { type Table, tableFromArrays } from "apache-arrow"
import { type Codec, Json, type Topic, type TypedTopic } from "millrace"
import * as v from "valibot"
import { z } from "zod"
import { text } from "./records.ts"

/** A codec under test. */
export interface TypedCase {
  readonly name: string
  topic(topic: Topic): TypedTopic<unknown>
  /** Three, each another. */
  readonly values: readonly [unknown, unknown, unknown]
  /** Bytes that do not decode; absent where all do. */
  readonly bad?: Uint8Array
  /** What `millrace-ct` says (table 1.11); absent where the header is. */
  readonly contentType?: number
  /** What is compared of a value. Default: the value. */
  comparable?(value: unknown): unknown
}

interface Reading {
  readonly sensor: string
  readonly celsius: number
}

const readings = [
  { sensor: "attic", celsius: 31.5 },
  { sensor: "größe 日本 🎈", celsius: -0.25 },
  { sensor: "", celsius: 2 ** 53 - 1 },
] as const

/** No format reads it: a CBOR break, an unused MessagePack byte, no UTF-8, a length of BSON that is not there. */
const garbage: Uint8Array = Uint8Array.of(0xff, 0xc1, 0xff)

const cborVisit = v.object({ page: v.string(), at: v.date(), raw: v.instance(Uint8Array) })
const packed = z.object({ id: z.bigint(), list: z.array(z.number()) })
const document = z.object({ id: z.bigint(), at: z.date(), nested: z.object({ ok: z.boolean() }) })

const order = {
  type: "record",
  name: "Order",
  fields: [
    { name: "id", type: "long" },
    { name: "item", type: "string" },
    { name: "note", type: ["null", "string"], default: null },
  ],
} as const

const proto = `
  syntax = "proto3";
  message Order { int64 id = 1; repeated string items = 2; optional string gift_note = 3; }
`

const readingSchema = {
  type: "object",
  properties: { sensor: { type: "string" }, celsius: { type: "number" } },
  required: ["sensor", "celsius"],
}

export const typedCases: readonly TypedCase[] = [
  {
    name: "json with a function",
    topic: (topic) => topic.json(new Json<Reading>(reading)),
    values: readings,
    bad: garbage,
    contentType: 1,
  },
  {
    name: "json with zod",
    topic: (topic) => topic.json(z.object({ sensor: z.string(), celsius: z.number() })),
    values: readings,
    bad: garbage,
    contentType: 1,
  },
  {
    name: "json with valibot",
    topic: (topic) => topic.json(v.object({ sensor: v.string(), celsius: v.number() })),
    values: readings,
    bad: garbage,
    contentType: 1,
  },
  {
    name: "cbor",
    topic: (topic) => topic.cbor(cborVisit),
    values: [
      { page: "/", at: new Date(0), raw: Uint8Array.of(0, 255) },
      { page: "/größe", at: new Date(1_700_000_000_123), raw: new Uint8Array(0) },
      { page: "", at: new Date(-1), raw: new Uint8Array(300) },
    ],
    bad: garbage,
    contentType: 3,
  },
  {
    name: "msgpack",
    topic: (topic) => topic.msgpack(packed),
    values: [
      { id: 2n ** 63n - 1n, list: [1, -1.5] },
      { id: -(2n ** 63n), list: [] },
      { id: 2n ** 60n + 1n, list: [0, 255, 65_536] },
    ],
    bad: garbage,
    contentType: 2,
  },
  {
    name: "bson",
    topic: (topic) => topic.bson(document),
    values: [
      { id: 2n ** 63n - 1n, at: new Date(0), nested: { ok: true } },
      { id: 0n, at: new Date(1_700_000_000_123), nested: { ok: false } },
      { id: -7n, at: new Date(-1), nested: { ok: true } },
    ],
    bad: garbage,
    contentType: 4,
  },
  {
    name: "text",
    topic: (topic) => topic.text(),
    values: ["plain", "", "größe 日本 🎈\u0000"],
    bad: garbage,
  },
  {
    name: "bytes",
    topic: (topic) => topic.bytes(),
    values: [Uint8Array.of(1, 2, 3), new Uint8Array(0), new Uint8Array(2_000).fill(255)],
    contentType: 0,
  },
  {
    name: "avro",
    topic: (topic) => topic.avro(order),
    values: [
      { id: 2n ** 63n - 1n, item: "tea", note: null },
      { id: -1n, item: "", note: "größe" },
      { id: 0n, item: "milk", note: "" },
    ],
    bad: garbage,
    contentType: 5,
    comparable: plain,
  },
  {
    name: "protobuf",
    topic: (topic) => topic.protobuf({ proto, message: "Order" }),
    values: [
      { id: 2n ** 63n - 1n, items: ["tea", "größe"] },
      { id: 0n, items: [] },
      { id: -1n, items: [""], giftNote: "" },
    ],
    bad: garbage,
    contentType: 6,
    comparable: plain,
  },
  {
    name: "JSON Schema",
    topic: (topic) => topic.jsonSchema(readingSchema),
    values: readings,
    bad: garbage,
    contentType: 1,
  },
  {
    name: "arrow",
    topic: (topic) => topic.arrow<Table>(),
    values: [
      tableFromArrays({ id: BigInt64Array.of(1n, 2n), price: Float64Array.of(2.5, 3) }),
      tableFromArrays({ id: BigInt64Array.of(2n ** 63n - 1n), price: Float64Array.of(-0.25) }),
      tableFromArrays({ name: ["größe", "日本"] }),
    ],
    bad: garbage,
    contentType: 7,
    comparable: (value) => (value as Table).toArray().map((row: { toJSON(): unknown }) => row.toJSON()),
  },
]

/** Values in the form in which they are compared. */
export function comparables({ comparable }: TypedCase, values: readonly unknown[]): unknown[] {
  return comparable === undefined ? [...values] : values.map(comparable)
}

/** Text, by a codec that is no part of the library. */
export const textCodec: Codec<string> = {
  name: "text of one's own",
  encode: (value) => new TextEncoder().encode(value),
  decode: (payload) => text(payload),
}

/** Accepts a reading and nothing else. */
function reading(value: unknown): Reading {
  const { sensor, celsius } = value as Partial<Reading>
  if (typeof sensor !== "string" || typeof celsius !== "number") throw new TypeError("that is no reading")
  return { sensor, celsius }
}

/** Without the class that a codec gives its objects. */
function plain(value: unknown): unknown {
  return { ...(value as object) }
}
