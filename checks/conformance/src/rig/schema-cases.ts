/** Schemas of each type in two versions, their values, and bytes of them worked out by hand from the formats' specifications. */
import assert from "node:assert/strict"
import type { Message, SchemaInit, Topic, TypedTopic } from "millrace"
import { take } from "./client-rig.ts"

export interface SchemaCase {
  readonly first: SchemaInit
  /** Gets on with `first` in both directions. */
  readonly second: SchemaInit
  /** Gets on with neither. */
  readonly worse: SchemaInit
  /** What the reasons against `worse` name. */
  readonly reasons: readonly RegExp[]
  /** A value of `first`, its encoding, and what it is as one of `second`. */
  readonly old: { readonly value: object; readonly hex: string; readonly later: object }
  /** A value of `second`, and what it is as one of `first`. */
  readonly new: { readonly value: object; readonly earlier: object }
  /** A value that `first` does not have. */
  readonly misfit: object
  /** What `millrace-ct` says (table 1.11). */
  readonly contentType: number
  /** What Confluent's serializers put between the schema's id and the payload. */
  readonly index: string
}

const avro = (fields: readonly object[]): SchemaInit => ({
  type: "avro",
  schema: { type: "record", name: "Order", fields },
})
const proto = (fields: string): SchemaInit => ({
  type: "protobuf",
  schema: `syntax = "proto3"; package shop; message Order { ${fields} }`,
})
const closed = (properties: object, required: readonly string[]): SchemaInit => ({
  type: "json-schema",
  schema: { type: "object", properties, required, additionalProperties: false },
})

/** `{"item":"tea","count":3}` */
const json = "7b226974656d223a22746561222c22636f756e74223a337d"

export const schemaCases: readonly SchemaCase[] = [
  {
    first: avro([
      { name: "item", type: "string" },
      { name: "count", type: "int" },
    ]),
    second: avro([
      { name: "item", type: "string" },
      { name: "count", type: "int" },
      { name: "currency", type: "string", default: "EUR" },
    ]),
    worse: avro([
      { name: "item", type: "int" },
      { name: "paid", type: "boolean" },
    ]),
    reasons: [/item.*cannot be read as int/, /paid/],
    old: { value: { item: "tea", count: 3 }, hex: "0674656106", later: { item: "tea", count: 3, currency: "EUR" } },
    new: { value: { item: "milk", count: -1, currency: "PLN" }, earlier: { item: "milk", count: -1 } },
    misfit: { item: 5, count: 3 },
    contentType: 5,
    index: "",
  },
  {
    first: proto("string item = 1; int32 count = 2;"),
    second: proto("string item = 1; int32 count = 2; string currency = 3;"),
    worse: proto("bool item = 1; int32 count = 2;"),
    reasons: [/item/],
    old: {
      value: { item: "tea", count: 3 },
      hex: "0a037465611003",
      later: { item: "tea", count: 3, currency: "" },
    },
    new: { value: { item: "milk", count: -1, currency: "PLN" }, earlier: { item: "milk", count: -1 } },
    misfit: { item: 5, count: 3 },
    contentType: 6,
    index: "00",
  },
  {
    first: closed({ item: { type: "string" }, count: { type: "integer" } }, ["item"]),
    second: closed({ item: { type: "string" }, count: { type: "integer" }, note: { type: "string" } }, ["item"]),
    worse: closed({ item: { type: "integer" }, count: { type: "integer" } }, ["item", "count"]),
    reasons: [/item/, /count/],
    old: { value: { item: "tea", count: 3 }, hex: json, later: { item: "tea", count: 3 } },
    new: { value: { item: "milk", count: -1 }, earlier: { item: "milk", count: -1 } },
    misfit: { item: 5 },
    contentType: 1,
    index: "",
  },
]

/** Without the class that a codec gives its objects. */
export function plain(value: unknown): object {
  return { ...(value as object) }
}

/** A record of the old version, one of the new, by `publish` and in a batch. */
export async function publishBoth(
  topic: Topic,
  each: SchemaCase,
  ids: { readonly first: number; readonly second: number },
): Promise<void> {
  const [first, second] = [await topic.schema(ids.first), await topic.schema(ids.second)]
  await first.publish(each.old.value)
  await second.publish(each.new.value)
  await first.producer().sendBatch([each.old.value])
  await second.producer().sendRecords([{ value: each.new.value }])
}

/** Every value up to the tail. */
export async function valuesOf(typed: TypedTopic<unknown>): Promise<object[]> {
  await using reader = await typed.records("values")
  const values: object[] = []
  for await (const result of reader.stream()) {
    if (result.kind === "error") throw result.error
    assert.ok(result.kind === "record")
    values.push(plain(result.value))
  }
  return values
}

/** The first records as anybody sees them who knows nothing of schemas. */
export async function bytesOf(topic: Topic, count: number): Promise<Message[]> {
  await using consumer = topic.consumer(undefined, 0)
  return (await take(consumer, count)).map((message) => message.copy())
}

/** The payload as hexadecimal digits. */
export function hex(record: Message | undefined): string {
  return Buffer.from(record?.payload ?? []).toString("hex")
}
