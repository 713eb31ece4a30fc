import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { decodeFilterEvent, encodeFilterEvent, type FilterCommand, filterGroupKey } from "./filter-event.ts"

const utf8 = new TextEncoder()
const group = { stream: "s", topic: "t", group: "g" }
const name = fc.string({ minLength: 1, unit: "binary" }).filter((text) => text.isWellFormed())

test("a mutation comes back as it was written", () => {
  const number = fc.nat()
  const command: fc.Arbitrary<FilterCommand> = fc.oneof(
    fc.record({ type: fc.constant("configure" as const), text: fc.string() }),
    fc.record({ type: fc.constant("bind" as const), revision: number }),
    fc.record({ type: fc.constant("revise" as const), expected: number, text: fc.string() }),
    fc.record({ type: fc.constant("enable" as const), revision: number, enabled: fc.boolean() }),
    fc.constant({ type: "release" as const }),
    fc.constant({ type: "delete" as const }),
  )
  const event = fc
    .tuple(fc.string({ unit: "grapheme" }), name, name, name, command)
    .map(([stream, topic, own, operation, asked]) => ({
      group: { stream, topic, group: own },
      operation,
      command: { ...asked },
    }))
  fc.assert(fc.property(event, (one) => assert.deepEqual(decodeFilterEvent(encodeFilterEvent(one)), one)))
})

test("the format is this one, for whoever reads the topic by other means", () => {
  const event = { group, operation: "op", command: { type: "revise", expected: 1, text: "{}" } } as const
  assert.equal(
    new TextDecoder().decode(encodeFilterEvent(event)),
    '{"millrace":"filter","version":1,"operation":"op","stream":"s","topic":"t","group":"g","command":{"type":"revise","expected":1,"text":"{}"}}',
  )
  assert.equal(filterGroupKey(group), "s\nt\ng")
})

test("what is no mutation is told from one of a newer format", () => {
  const whole = JSON.parse(
    new TextDecoder().decode(encodeFilterEvent({ group, operation: "op", command: { type: "delete" } })),
  ) as object
  const decode = (change: object): unknown => decodeFilterEvent(utf8.encode(JSON.stringify({ ...whole, ...change })))
  assert.deepEqual(decode({}), { group, operation: "op", command: { type: "delete" } })
  assert.deepEqual(decode({ version: 2, command: "new" }), { group, version: 2 })
  const foreign = [
    { millrace: "other" },
    { version: 0 },
    { version: "1" },
    { operation: 1 },
    { operation: "" },
    { stream: undefined },
    { topic: 1 },
    { group: null },
    { command: undefined },
    { command: { type: "rename" } },
    { command: { type: "configure" } },
    { command: { type: "bind", revision: -1 } },
    { command: { type: "bind", revision: 1.5 } },
    { command: { type: "revise", expected: 0, text: 1 } },
    { command: { type: "enable", revision: 1, enabled: "yes" } },
  ]
  for (const change of foreign) assert.equal(decode(change), undefined, JSON.stringify(change))
  for (const payload of ["", "null", "[]", '"text"', "{"])
    assert.equal(decodeFilterEvent(utf8.encode(payload)), undefined)
  assert.equal(decodeFilterEvent(Uint8Array.of(0xff, 0xfe)), undefined)
  assert.equal(decodeFilterEvent(null), undefined)
})

test("any bytes are a mutation or none, and never an exception", () => {
  fc.assert(fc.property(fc.uint8Array(), (bytes) => void decodeFilterEvent(bytes)))
})
