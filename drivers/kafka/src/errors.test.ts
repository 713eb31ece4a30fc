import assert from "node:assert/strict"
import { test } from "node:test"
import { FencedError, NotFoundError, RecordTooLargeError, SequenceError, TimeoutError } from "@millrace/contract"
import { meanings } from "./error-meanings.ts"
import { errorCode, kafkaError, meansNoTopic, meansOtherCoordinator, meansOtherLeader } from "./errors.ts"

/** From the protocol guide, "Error Codes": a sample over the whole range. */
const published: Readonly<Record<number, string>> = {
  [-1]: "UNKNOWN_SERVER_ERROR",
  1: "OFFSET_OUT_OF_RANGE",
  3: "UNKNOWN_TOPIC_OR_PARTITION",
  6: "NOT_LEADER_OR_FOLLOWER",
  10: "MESSAGE_TOO_LARGE",
  16: "NOT_COORDINATOR",
  20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
  25: "UNKNOWN_MEMBER_ID",
  36: "TOPIC_ALREADY_EXISTS",
  45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
  59: "UNKNOWN_PRODUCER_ID",
  68: "NON_EMPTY_GROUP",
  74: "FENCED_LEADER_EPOCH",
  82: "FENCED_INSTANCE_ID",
  90: "PRODUCER_FENCED",
  100: "UNKNOWN_TOPIC_ID",
  110: "FENCED_MEMBER_EPOCH",
  113: "STALE_MEMBER_EPOCH",
  129: "REBOOTSTRAP_REQUIRED",
}

test("codes have the names of the protocol", () => {
  for (const [code, name] of Object.entries(published)) assert.equal(meanings[Number(code)]?.name, name)
})

test("failures say what was done, what Kafka said, and what it means", () => {
  const error = kafkaError(19, { what: 'appending to topic "s/t"', context: { topic: "t" }, detail: "ISR 1" })
  assert.equal(
    error.message,
    'appending to topic "s/t" failed: Kafka answered NOT_ENOUGH_REPLICAS (19): fewer replicas are in sync than min.insync.replicas asks for (ISR 1)',
  )
  assert.deepEqual(error.context, { topic: "t", kafkaError: "NOT_ENOUGH_REPLICAS" })
})

test("what may have happened is unknown, what certainly did not is rejected", () => {
  const outcome = (code: number): readonly [boolean, string] => {
    const { retryable, outcome } = kafkaError(code, { what: "it" })
    return [retryable, outcome]
  }
  for (const code of [-1, 7, 13, 20]) assert.deepEqual(outcome(code), [true, "unknown"], `code ${code}`)
  for (const code of [5, 6, 19, 56, 74]) assert.deepEqual(outcome(code), [true, "rejected"], `code ${code}`)
  for (const code of [10, 17, 29, 36, 40]) assert.deepEqual(outcome(code), [false, "rejected"], `code ${code}`)
  assert.equal(kafkaError(7, { what: "it", readOnly: true }).outcome, "rejected")
})

test("an error of a later Kafka is no certainty", () => {
  const error = kafkaError(4711, { what: "it" })
  assert.equal(error.kind, "protocol")
  assert.equal(error.outcome, "unknown")
  assert.match(error.message, /4711/)
})

test("failures are of the contract's classes", () => {
  assert.ok(kafkaError(10, { what: "it" }) instanceof RecordTooLargeError)
  assert.ok(kafkaError(45, { what: "it" }) instanceof SequenceError)
  assert.ok(kafkaError(59, { what: "it" }) instanceof SequenceError)
  assert.ok(kafkaError(47, { what: "it" }) instanceof FencedError)
  assert.ok(kafkaError(20, { what: "it" }) instanceof TimeoutError)
  assert.ok(kafkaError(100, { what: "it" }) instanceof NotFoundError)
  assert.equal(kafkaError(47, { what: "it" }).name, "FencedError")
})

test("who else to ask", () => {
  assert.ok(meansOtherLeader(errorCode.notLeaderOrFollower) && meansOtherLeader(errorCode.fencedLeaderEpoch))
  assert.ok(!meansOtherLeader(errorCode.messageTooLarge))
  assert.ok(
    meansOtherCoordinator(errorCode.notCoordinator) && meansOtherCoordinator(errorCode.coordinatorLoadInProgress),
  )
  assert.ok(!meansOtherCoordinator(errorCode.unknownMemberId))
  assert.ok(meansNoTopic(errorCode.unknownTopicId) && !meansNoTopic(errorCode.none))
})
