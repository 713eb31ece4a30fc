import assert from "node:assert/strict"
import { test } from "node:test"
import { DecodeError } from "@millrace/contract"
import { bson } from "./bson.ts"
import { cbor } from "./cbor.ts"
import type { Codec } from "./codec.ts"
import { decodePayload } from "./decoding.ts"
import { json } from "./json.ts"
import { msgpack } from "./msgpack.ts"
import type { StandardSchema } from "./standard-schema.ts"

const payload = new Uint8Array()
const codecOf = (decode: () => unknown): Codec<unknown> => ({ name: "own", encode: () => payload, decode })

test("a decode that answers with a promise is refused, and its rejection is nobody's", async () => {
  const rejections: unknown[] = []
  const listener = (reason: unknown): void => void rejections.push(reason)
  process.on("unhandledRejection", listener)
  // biome-ignore lint/suspicious/noThenProperty: what is tested is an object that only has this of a promise
  const thenable = { then: (_: unknown, reject: (reason: unknown) => void) => reject(new Error("late")) }
  const promises = [() => Promise.reject(new Error("late")), () => Promise.resolve(5), () => thenable, async () => 5]
  for (const promise of promises) {
    assert.throws(
      () => decodePayload(codecOf(promise), payload),
      (error) => error instanceof DecodeError && /must answer at once/.test(error.message),
    )
    for (const make of [json, cbor, msgpack, bson] as readonly ((
      decode?: (value: unknown) => unknown,
    ) => Codec<unknown>)[]) {
      const codec = make(promise)
      const bytes = make((value) => value).encode({})
      assert.throws(() => codec.decode(bytes), DecodeError)
    }
  }
  const late: StandardSchema<unknown> = {
    "~standard": { version: 1, vendor: "test", validate: () => thenable as never },
  }
  assert.throws(() => json(late).decode(json().encode(5)), /asynchronously|at once/)
  await new Promise((resolve) => setImmediate(resolve))
  process.off("unhandledRejection", listener)
  assert.deepEqual(rejections, [])
})

test("what a decode throws is passed on, whatever it is", () => {
  for (const thrown of [undefined, null, 5, "text", new Error("x")]) {
    const codec = codecOf(() => {
      throw thrown
    })
    assert.throws(
      () => decodePayload(codec, payload),
      (error) => error === thrown,
    )
  }
})

test("values that only look a little like promises are values", () => {
  for (const value of [{ catch: () => {} }, null, undefined, () => Promise.resolve()]) {
    assert.equal(
      decodePayload(
        codecOf(() => value),
        payload,
      ),
      value,
    )
  }
})
