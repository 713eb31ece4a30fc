import assert from "node:assert/strict"
import { test } from "node:test"
import { InvalidError } from "@millrace/contract"
import { OptionReader, shown } from "./options.ts"

interface Sample {
  readonly count?: number
  readonly waitMs?: number
  readonly size?: bigint
  readonly on?: boolean
  readonly never?: true
  readonly mode?: "a" | "b"
  readonly call?: () => void
}

const known = ["waitMs", "count", "size", "on", "never", "mode", "call"] as const

function read(options?: unknown): OptionReader<Sample> {
  return new OptionReader<Sample>("thing", options as Sample, known)
}

test("absent and undefined options take their fallback", () => {
  for (const options of [undefined, {}, { count: undefined, waitMs: undefined, on: undefined, mode: undefined }]) {
    const reader = read(options)
    assert.equal(reader.whole("count", { min: 1, fallback: 7 }), 7)
    assert.equal(reader.duration("waitMs", { fallback: 9 }), 9)
    assert.equal(reader.duration("waitMs", { fallback: undefined }), undefined)
    assert.equal(reader.size("size"), undefined)
    assert.equal(reader.flag("on", true), true)
    assert.equal(reader.mark("never"), false)
    assert.equal(reader.choice("mode", ["a", "b"], "b"), "b")
    assert.equal(reader.callback("call"), undefined)
  }
})

test("an unknown key is refused with the known ones", () => {
  assert.throws(() => read({ cuont: 1 }), {
    message: 'thing: unknown option "cuont". Known options: call, count, mode, never, on, size, waitMs',
  })
})

const wrong: readonly [string, (reader: OptionReader<Sample>) => unknown, unknown, RegExp][] = [
  [
    "count",
    (r) => r.whole("count", { min: 1, fallback: 1 }),
    0,
    /"count" is 0; it must be a whole number from 1 to 2147483647/,
  ],
  ["count", (r) => r.whole("count", { min: 0, fallback: 1 }), 2 ** 31, /is 2147483648/],
  ["count", (r) => r.whole("count", { min: 0, fallback: 1 }), Number.NaN, /is NaN/],
  ["count", (r) => r.whole("count", { min: 0, fallback: 1 }), 1n, /is 1n/],
  ["waitMs", (r) => r.duration("waitMs", { fallback: 1 }), 0, /milliseconds above 0, at most 2147483647/],
  ["waitMs", (r) => r.duration("waitMs", { zero: true, fallback: 1 }), -1, /is -1; .* from 0/],
  ["waitMs", (r) => r.duration("waitMs", { fallback: 1 }), Number.POSITIVE_INFINITY, /is Infinity/],
  ["waitMs", (r) => r.duration("waitMs", { fallback: 1 }), "5s", /is "5s"/],
  ["size", (r) => r.size("size"), 5, /is 5; it must be a bigint/],
  ["size", (r) => r.size("size"), 2n ** 63n, /is 9223372036854775808n/],
  ["on", (r) => r.flag("on", true), "true", /is "true"; it must be true or false/],
  ["never", (r) => r.mark("never"), false, /is false; it must be true, or absent/],
  ["mode", (r) => r.choice("mode", ["a", "b"], "a"), "c", /is "c"; it must be one of "a", "b"/],
  ["call", (r) => r.callback("call"), null, /is null; it must be a function/],
]

for (const [key, take, value, message] of wrong) {
  test(`refused: ${key} = ${shown(value)}`, () => {
    assert.throws(
      () => take(read({ [key]: value })),
      (error) => error instanceof InvalidError && message.test(error.message),
    )
  })
}

test("what is no object is refused", () => {
  for (const options of [null, 7, "text", []]) assert.throws(() => read(options), InvalidError)
})

test("contradictions are refused by name", () => {
  assert.throws(() => read({ on: true, never: true }).exclusive("on", "never"), /"on" and "never" exclude each other/)
  read({ on: true }).exclusive("on", "never")
})

test("any value can be shown, on one line, briefly", () => {
  const samples = [
    "x".repeat(500),
    1n,
    null,
    undefined,
    Symbol("s"),
    () => 1,
    [1, 2],
    {},
    new Uint8Array(4),
    Object.create(null),
  ]
  for (const value of samples) {
    const text = shown(value)
    assert.ok(text.length <= 90 && !text.includes("\n"), text)
  }
})
