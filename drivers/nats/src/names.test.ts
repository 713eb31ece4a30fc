import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import {
  checkBareName,
  escapeName,
  firstStreamName,
  isReservedName,
  longestStreamName,
  ownLineage,
  parseSubject,
  streamName,
  subjectOf,
  unescapeName,
} from "./names.ts"

const anyName = fc.string({ unit: "binary", minLength: 1, maxLength: 255 }).filter((name) => name.isWellFormed())
const anyStream = fc.oneof(fc.constant(""), anyName)
const lineage = fc.stringMatching(/^[0-9a-z]{14}$/)
const anyPlace = fc.record(
  { stream: anyStream, topic: anyName, partition: fc.integer({ min: 0, max: 300 }), lineage },
  { noNullPrototype: true },
)

/** Visible ASCII without what a NATS server refuses in a stream's name (ADR-6 of NATS), up to its limit. */
const takenByServer = /^(?!.*[.*>/\\])[!-~]{1,255}$/

test("escaping is undone, and gives one token of a subject", () => {
  fc.assert(
    fc.property(anyName, (name) => {
      const text = escapeName(name)
      assert.equal(unescapeName(text), name)
      assert.match(text, /^[A-Za-z0-9=-]+$/)
    }),
  )
})

test("different partitions have different streams and different subjects", () => {
  fc.assert(
    fc.property(anyPlace, anyPlace, (one, other) => {
      const same =
        one.stream === other.stream &&
        one.topic === other.topic &&
        one.partition === other.partition &&
        one.lineage === other.lineage
      assert.equal(subjectOf(one) === subjectOf(other), same)
      if (one.stream === "" || other.stream === "") return
      const samePartition0 = one.partition === 0 && other.partition === 0 && one.topic === other.topic
      assert.equal(streamName(one) === streamName(other), same || (samePartition0 && one.stream === other.stream))
    }),
  )
})

test("names whose parts could run together are kept apart", () => {
  const pairs: readonly (readonly [string, string])[] = [
    ["a.b", "c"],
    ["a", "b.c"],
    ["a_b", "c"],
    ["a", "b_c"],
    ["a", "b_0"],
    ["a=2e", "b"],
    ["a", "b"],
    ["a", "B"],
    ["é", "b"],
    ["e\u0301", "b"],
  ]
  const names = pairs.map(([stream, topic]) => firstStreamName({ stream, topic }))
  assert.equal(new Set(names).size, pairs.length)
})

test("a stream's name is one that servers take, however long the names are", () => {
  fc.assert(
    fc.property(anyPlace, (place) => {
      if (place.stream === "" && place.partition === 0) return
      const name = streamName(place)
      assert.match(name, takenByServer)
      assert.ok(!name.includes(".") && name.length <= longestStreamName)
      assert.ok(isReservedName(name))
    }),
  )
  const long = { stream: "s".repeat(255), topic: "t".repeat(255), partition: 0, lineage: "0".repeat(14) }
  assert.notEqual(streamName(long), streamName({ ...long, topic: `${"t".repeat(254)}u` }))
})

test("a subject tells its topic, its partition and its life again", () => {
  fc.assert(
    fc.property(anyPlace, (place) => {
      assert.deepEqual(parseSubject(subjectOf(place)), place)
      assert.ok(ownLineage.test(place.lineage))
    }),
  )
  for (const foreign of [
    "orders",
    "millrace",
    "millrace.a.b.c.d",
    "millrace.a.b.0",
    "millrace.=zz.b.0.x",
    "a.b.c.0.e",
  ]) {
    assert.equal(parseSubject(foreign), undefined, foreign)
  }
})

test("the time of a creation is never taken for a lineage of our own", () => {
  assert.ok(!ownLineage.test("2026-11-29T18:55:14.123456789Z"))
})

test("a topic without a stream has a name that JetStream takes", () => {
  for (const good of ["orders", "ORDERS_2", "流れ", "a-b=c"]) checkBareName(good)
  for (const bad of ["a.b", "a b", "a*", "a>", "a/b", "a\\b", "", "x".repeat(256), "tab\t"]) {
    assert.throws(() => checkBareName(bad), { kind: "invalid" }, JSON.stringify(bad))
  }
})
