import assert from "node:assert/strict"
import { test } from "node:test"
import { MillraceError } from "@millrace/contract"
import { decodeAssignment, decodeSubscription, encodeAssignment, encodeSubscription } from "./member-metadata.ts"

const isProtocol = (error: unknown): boolean => error instanceof MillraceError && error.kind === "protocol"

test("a subscription is a version and the message of that version", () => {
  // As Kafka's ConsumerProtocol writes it: int16 version, array of topics, user data (null), owned partitions from version 1 on.
  const subscription = { topics: ["a", "bc"], userData: null, ownedPartitions: [{ topic: "a", partitions: [1, 2] }] }
  const bytes = encodeSubscription(subscription, 1)
  assert.equal(
    Buffer.from(bytes).toString("hex"),
    "0001" +
      "00000002" +
      "000161" +
      "00026263" +
      "ffffffff" +
      "00000001" +
      "000161" +
      "00000002" +
      "00000001" +
      "00000002",
  )
  assert.deepEqual(decodeSubscription(bytes).ownedPartitions, subscription.ownedPartitions)
})

test("a newer version is read as the newest known, and what it has more is left", () => {
  const bytes = Buffer.from(encodeSubscription({ topics: ["a"], userData: null, generationId: 4, rackId: "r" }, 3))
  bytes.writeInt16BE(9)
  const read = decodeSubscription(Buffer.concat([bytes, Uint8Array.of(1, 2, 3)]))
  assert.deepEqual([read.topics, read.generationId, read.rackId], [["a"], 4, "r"])
})

test("an assignment comes back, and a truncated one is an error", () => {
  const assignment = { assignedPartitions: [{ topic: "t", partitions: [0, 5] }], userData: Uint8Array.of(1) }
  const bytes = encodeAssignment(assignment, 0)
  assert.deepEqual(decodeAssignment(bytes).assignedPartitions, assignment.assignedPartitions)
  for (let length = 0; length < bytes.length; length++) {
    assert.throws(() => decodeAssignment(bytes.subarray(0, length)), isProtocol, `${length}`)
  }
})
