/** Checks of decoded values by validators that people have, and the types that come of them. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { InvalidError } from "@millrace/contract"
import * as v from "valibot"
import { z } from "zod"
import { avro } from "./avro.ts"
import { type Bson, bson } from "./bson.ts"
import { type Cbor, cbor } from "./cbor.ts"
import type { Check } from "./check.ts"
import type { Codec } from "./codec.ts"
import { Json, json } from "./json.ts"
import { jsonSchema } from "./json-schema.ts"
import { type Msgpack, msgpack } from "./msgpack.ts"
import { protobuf } from "./protobuf.ts"

interface Order {
  id: number
  at?: Date
}
const zodOrder = z.object({ id: z.number().int(), note: z.string().optional() })
const valibotOrder = v.object({ id: v.pipe(v.number(), v.integer()), note: v.optional(v.string()) })
const order = (value: unknown): Order => {
  if (typeof value !== "object" || value === null || !("id" in value)) throw new TypeError("no order")
  return { id: Number(value.id) }
}

describe("a check", () => {
  const makes: Readonly<Record<string, <T>(decode: Check<T>) => Codec<T>>> = { json, cbor, msgpack, bson }
  for (const [name, make] of Object.entries(makes)) {
    test(`of ${name} is a function, or a schema of zod or valibot`, () => {
      const write = make((value) => value)
      const good = write.encode({ id: 5 })
      const bad = write.encode({ id: "x", note: 5 })
      assert.deepEqual(make(order).decode(good), { id: 5 })
      assert.deepEqual(make(zodOrder).decode(good), { id: 5 })
      assert.deepEqual(make(valibotOrder).decode(good), { id: 5 })
      assert.throws(() => make(order).decode(write.encode({ other: 1 })), TypeError)
      for (const codec of [make(zodOrder), make(valibotOrder)]) {
        assert.throws(
          () => codec.decode(bad),
          (error) => error instanceof InvalidError && /id: .+; note: /.test(error.message),
        )
      }
    })

    test(`of ${name} is neither`, () => {
      for (const wrong of [null, 5, "x", {}]) assert.throws(() => make(wrong as never), InvalidError)
    })
  }

  test("may turn what it checks into something else", () => {
    const codec = json(z.object({ at: z.string().transform((text) => new Date(text)) }))
    const { at }: { at: Date } = codec.decode(new TextEncoder().encode('{"at":"2020-01-01T00:00:00Z"}'))
    assert.equal(at.getTime(), 1577836800000)
  })

  test("that answers later is refused", () => {
    const codec = json(z.string().refine(async () => true))
    assert.throws(() => codec.decode(new TextEncoder().encode('"x"')), Error)
  })
})

/** Compiles only where `T` is inferred, or said. */
test("types are those of the check", () => {
  const fromZod: Json<{ id: number; note?: string | undefined }> = json(zodOrder)
  const fromValibot: Cbor<{ id: number; note?: string | undefined }> = cbor(valibotOrder)
  const fromFunction: Msgpack<Order> = msgpack(order)
  const fromNothing: Bson<unknown> = bson()
  const made: Json<Order> = new Json<Order>(order)
  const said: Codec<Order>[] = [
    avro<Order>("int"),
    jsonSchema<Order>({}),
    protobuf<Order>({ proto: 'syntax = "proto3"; message M { int32 id = 1; }', message: "M" }),
  ]
  // @ts-expect-error An order has no text.
  const wrong: Json<string> = json(order)
  assert.equal([fromZod, fromValibot, fromFunction, fromNothing, made, wrong, ...said].length, 9)
})
