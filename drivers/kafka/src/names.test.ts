import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { kafkaTopic, longestTopicName, topicNameOf } from "./names.ts"

/** Parts with every kind of trouble: what Kafka refuses, what the escaping itself is made of, and any Unicode. */
const part: fc.Arbitrary<string> = fc
  .oneof(
    fc.string({ minLength: 1, maxLength: 12, unit: fc.constantFrom(..."aZ09-._/ %") }),
    fc.string({ minLength: 1, maxLength: 12, unit: fc.constantFrom(..."-2dedabc0") }),
    fc.string({ minLength: 1, maxLength: 8, unit: "grapheme" }),
  )
  .filter((text) => text.isWellFormed())

const name = fc.record({ stream: part, topic: part }, { noNullPrototype: true })

test("every stream and topic has a name that Kafka takes, and that leads back to it", () => {
  fc.assert(
    fc.property(name, (given) => {
      const kafka = kafkaTopic(given)
      assert.match(kafka, /^[a-zA-Z0-9-]+\.[a-zA-Z0-9-]+$/)
      assert.deepEqual(topicNameOf(kafka), given)
    }),
  )
})

test("two names that differ never meet, not even where Kafka takes '.' and '_' for one", () => {
  const folded = (kafka: string): string => kafka.replaceAll(".", "_")
  fc.assert(
    fc.property(name, name, (one, other) => {
      const same = one.stream === other.stream && one.topic === other.topic
      assert.equal(folded(kafkaTopic(one)) === folded(kafkaTopic(other)), same)
    }),
  )
})

test("what is plain stays readable", () => {
  assert.equal(kafkaTopic({ stream: "orders", topic: "eu-west" }), "orders.eu-west")
  assert.equal(kafkaTopic({ stream: "a.b", topic: "c_d" }), "a-2eb.c-5fd")
  assert.equal(kafkaTopic({ stream: "x-2e", topic: "-" }), "x-2d2e.-")
  assert.equal(kafkaTopic({ stream: "é", topic: "X" }), "-c3-a9.X")
})

test("topics without a stream have exactly their own name, both ways", () => {
  for (const topic of ["orders", "my_topic", "a.b.c", "__consumer_offsets", "x-2E.y-zz"]) {
    assert.equal(kafkaTopic({ stream: "", topic }), topic)
  }
  for (const topic of ["orders", "a.b.c", ".a", "a.", "a_b.c", "x.-61", "x.-c3", "x.-2d"]) {
    assert.deepEqual(topicNameOf(topic), { stream: "", topic })
  }
  for (const topic of ["", ".", "..", "a b", "é", "a/b"]) {
    assert.throws(() => kafkaTopic({ stream: "", topic }), { kind: "invalid" })
  }
})

test("a name that is too long is refused with its length and the limit", () => {
  const fits = "t".repeat(longestTopicName)
  assert.equal(kafkaTopic({ stream: "", topic: fits }), fits)
  assert.throws(() => kafkaTopic({ stream: "", topic: `${fits}t` }), /250 characters, 249 are allowed/)
  assert.equal(kafkaTopic({ stream: "s", topic: "t".repeat(247) }).length, 249)
  assert.throws(() => kafkaTopic({ stream: "s", topic: "é".repeat(42) }), /254 characters, 249 are allowed/)
})
