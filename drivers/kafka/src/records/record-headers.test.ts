import assert from "node:assert/strict"
import { test } from "node:test"
import { DecodeError, type HeaderKind, Headers, HeaderValue, headerKindCodes, type MessageId } from "@millrace/contract"
import fc from "fast-check"
import { planHeaders, putHeaders, readHeaders } from "./record-headers.ts"
import { putVarint } from "./varint.ts"

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text)

/** Headers as they stand on the wire, by name. */
function names(headers: Headers, id?: MessageId): string[] {
  return foreign(encoded(headers, id)).map(([name]) => name)
}

function encoded(headers: Headers, id?: MessageId): Buffer {
  const plan = planHeaders(headers, id)
  const bytes = Buffer.alloc(plan.bytes)
  assert.equal(putHeaders(plan, bytes, 0), plan.bytes)
  return bytes
}

/** A block as another client writes it; null is a header without a value. */
function block(pairs: readonly (readonly [string, Uint8Array | null])[]): Buffer {
  const bytes = Buffer.alloc(
    1 + pairs.reduce((sum, [name, value]) => sum + 20 + name.length * 3 + (value?.length ?? 0), 5),
  )
  let position = putVarint(pairs.length, bytes, 0)
  for (const [name, value] of pairs) {
    position = putVarint(bytesOf(name).length, bytes, position)
    bytes.set(bytesOf(name), position)
    position = putVarint(value?.length ?? -1, bytes, position + bytesOf(name).length)
    bytes.set(value ?? [], position)
    position += value?.length ?? 0
  }
  return bytes.subarray(0, position)
}

/** As another client sees them: no kinds, nothing stripped. Read by hand, with lengths below 64 only. */
function foreign(bytes: Buffer): [string, Buffer][] {
  const found: [string, Buffer][] = []
  let position = 1
  for (let rest = (bytes[0] as number) / 2; rest > 0; rest--) {
    const name = (bytes[position] as number) / 2
    const value = (bytes[position + 1 + name] as number) / 2
    const start = position + 2 + name
    found.push([bytes.toString("utf8", position + 1, position + 1 + name), bytes.subarray(start, start + value)])
    position = start + value
  }
  assert.equal(position, bytes.length)
  return found
}

test("what other clients can tell by themselves is written plainly", () => {
  assert.deepEqual(names(Headers.from({ a: "text", b: "", c: HeaderValue.raw(Uint8Array.of(0xff)) })), ["a", "b", "c"])
  assert.deepEqual(names(Headers.empty, 5n), ["millrace-id"])
})

test("kinds are told only where the rule would give another", () => {
  const told = foreign(
    encoded(
      Headers.from([
        ["a", "x"],
        ["b", HeaderValue.uint16(7)],
      ]),
    ),
  )
  assert.deepEqual(
    told.map(([name, value]) => [name, value.toString("latin1")]),
    [
      ["a", "x"],
      ["b", "\x07\0"],
      ["millrace-types", "2a"],
    ],
  )
  assert.deepEqual(names(Headers.from({ a: HeaderValue.raw(bytesOf("text")) })), ["a", "millrace-types"])
  assert.deepEqual(names(Headers.from({ a: HeaderValue.raw(new Uint8Array(0)) }), 9n), [
    "a",
    "millrace-id",
    "millrace-types",
  ])
})

test("every header comes back: names, order, repetition, kinds, bytes, whatever they are called", () => {
  const name = fc.oneof(
    fc.constantFrom("a", "b", "millrace-id", "millrace-types"),
    fc.string({ minLength: 1, unit: "grapheme" }),
  )
  const value = fc
    .tuple(fc.constantFrom(...(Object.keys(headerKindCodes) as HeaderKind[])), fc.uint8Array({ maxLength: 20 }))
    .map(([kind, bytes]) => HeaderValue.fromBytes(headerKindCodes[kind], bytes))
  const id = fc.option(fc.bigInt({ min: 1n, max: (1n << 128n) - 1n }), { nil: undefined })
  fc.assert(
    fc.property(fc.array(fc.tuple(name, value), { maxLength: 6 }), id, (entries, givenId) => {
      const read = readHeaders(encoded(Headers.from(entries), givenId))
      assert.equal(read.id, givenId)
      const again = [...read.headers]
      assert.deepEqual(
        again.map(([found]) => found),
        entries.map(([given]) => given),
      )
      for (const [i, [, found]] of again.entries()) assert.ok(found.equals((entries[i] as [string, HeaderValue])[1]))
    }),
    { numRuns: 500 },
  )
})

test("headers of other clients are strings where they are UTF-8, and raw otherwise", () => {
  const { headers, id } = readHeaders(
    block([
      ["s", bytesOf("é")],
      ["r", Uint8Array.of(0xc3)],
      ["none", null],
      ["empty", bytesOf("")],
    ]),
  )
  assert.deepEqual(
    Array.from(headers, ([, value]) => value.kind),
    ["string", "raw", "raw", "string"],
  )
  assert.equal(headers.get("none")?.bytes.length, 0)
  assert.equal(id, undefined)
})

test("what another client appends behind our headers changes nothing before it", () => {
  const ours = foreign(encoded(Headers.from({ n: HeaderValue.int8(-3) }), 77n))
  const { headers, id } = readHeaders(block([...ours, ["trace", bytesOf("00-ab")]]))
  assert.equal(id, 77n)
  assert.deepEqual(
    Array.from(headers, ([name, value]) => [name, value.value]),
    [
      ["n", -3],
      ["trace", "00-ab"],
    ],
  )
})

test("a header that only looks like ours hides nothing", () => {
  for (const odd of [null, bytesOf("zz"), bytesOf("2222"), Uint8Array.of(0xff)]) {
    const { headers } = readHeaders(
      block([
        ["a", bytesOf("x")],
        ["millrace-types", odd],
      ]),
    )
    assert.deepEqual(
      Array.from(headers, ([name]) => name),
      ["a", "millrace-types"],
    )
  }
  const { headers, id } = readHeaders(
    block([
      ["millrace-id", bytesOf("short")],
      ["a", bytesOf("x")],
    ]),
  )
  assert.equal(id, undefined)
  assert.equal(headers.size, 2)
})

test("a malformed block is a DecodeError, at every byte", () => {
  const whole = encoded(
    Headers.from([
      ["name", "value"],
      ["n", HeaderValue.int32(5)],
    ]),
    1n << 100n,
  )
  for (let length = 0; length < whole.length; length++) {
    assert.throws(() => readHeaders(whole.subarray(0, length)), DecodeError, `${length}`)
  }
  assert.throws(() => readHeaders(Buffer.concat([whole, Uint8Array.of(0)])), DecodeError)
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
      try {
        readHeaders(Buffer.from(bytes))
      } catch (error) {
        if (!(error instanceof DecodeError)) throw error
      }
    }),
    { numRuns: 500 },
  )
})
