import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { InvalidError } from "@millrace/contract"
import fc from "fast-check"
import { Json } from "./json.ts"
import type { StandardSchema } from "./standard-schema.ts"

const anything = new Json((value) => value)
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)

describe("Json", () => {
  test("gives back every value that JSON has", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => assert.deepEqual(anything.decode(anything.encode(value)), normal(value))),
    )
  })

  test("the value null is not a tombstone", () => {
    assert.deepEqual(anything.encode(null), bytes("null"))
    assert.equal(anything.decode(bytes("null")), null)
  })

  test("hands what it parsed to the check, whose answer or error counts", () => {
    const double = new Json((value) => {
      if (typeof value !== "number") throw new RangeError("not a number")
      return value * 2
    })
    assert.equal(double.decode(bytes("21")), 42)
    assert.throws(() => double.decode(bytes('"x"')), RangeError)
  })

  test("refuses bytes that are not JSON, or not UTF-8", () => {
    for (const payload of [bytes(""), bytes("{"), bytes("1 2"), Uint8Array.of(0x22, 0xff, 0x22)]) {
      assert.throws(() => anything.decode(payload))
    }
  })

  test("refuses values without a JSON form, by name", () => {
    const cycle: { self?: unknown } = {}
    cycle.self = cycle
    for (const value of [undefined, () => 1, Symbol("x"), 5n, cycle]) {
      assert.throws(() => anything.encode(value), InvalidError)
    }
  })

  test("takes a Standard Schema, and lists its issues with their paths", () => {
    const schema: StandardSchema<number> = {
      "~standard": {
        version: 1,
        vendor: "test",
        validate: (value) =>
          typeof value === "number"
            ? { value: value + 1 }
            : { issues: [{ message: "no number", path: ["a", { key: 0 }] }, { message: "really" }] },
      },
    }
    const codec = new Json(schema)
    assert.equal(codec.decode(bytes("4")), 5)
    assert.throws(() => codec.decode(bytes('"x"')), /a\.0: no number; really/)
  })

  test("refuses a schema that answers later, without an unhandled rejection", async () => {
    const schema: StandardSchema<number> = {
      "~standard": { version: 1, vendor: "test", validate: () => Promise.reject(new Error("late")) },
    }
    assert.throws(() => new Json(schema).decode(bytes("4")), /asynchronously/)
    await new Promise((resolve) => setImmediate(resolve))
  })

  test("refuses what is neither", () => {
    for (const decode of [undefined, null, 5, {}, { "~standard": { version: 2 } }]) {
      assert.throws(() => new Json(decode as never), InvalidError)
    }
  })
})

/** What JSON itself makes of a value: it knows no −0. */
function normal(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value))
}
