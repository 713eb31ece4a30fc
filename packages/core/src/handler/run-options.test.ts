import assert from "node:assert/strict"
import { test } from "node:test"
import { InvalidError } from "@millrace/contract"
import { seededRandom } from "@millrace/runtime"
import { deadLetter } from "./dead-letter.ts"
import { jittered, retryDelayMs, retryOf } from "./retry.ts"
import { checkRunOptions, type RunOptions } from "./run-options.ts"

test("defaults", () => {
  const { retry, ...settings } = checkRunOptions("c", undefined)
  assert.deepEqual(settings, {
    concurrency: 1,
    order: "partition",
    onFailure: "stop",
    onError: undefined,
    maxAhead: 1000,
    drainTimeoutMs: 30_000,
    signal: undefined,
  })
  assert.equal(retry.attempts, 1)
  assert.deepEqual(checkRunOptions("c", { retry: {} }).retry, { attempts: 3, backoffMs: 100, maxBackoffMs: 30_000 })
  assert.equal(checkRunOptions("c", { concurrency: 100 }).maxAhead, 1600)
})

const topic = { stream: "s", name: "dead", ensure: async () => {}, batch: async () => {} }

for (const [options, says] of [
  [{ concurrency: 0 }, /"concurrency" is 0; it must be a whole number from 1 to 10000/],
  [{ concurrency: 1.5 }, /"concurrency"/],
  [{ concurrency: 10_001 }, /"concurrency"/],
  [{ order: "keys" }, /"order" is "keys"; it must be one of "partition", "key", "none"/],
  [{ retry: 3 }, /run: retry: the options must be an object, not 3/],
  [{ retry: { attempts: 0 } }, /retry: option "attempts" is 0/],
  [{ retry: { backoffMs: -1 } }, /"backoffMs"/],
  [{ retry: { backOffMs: 1 } }, /unknown option "backOffMs"/],
  [{ onFailure: "ignore" }, /"onFailure" is "ignore"; it must be "stop", "skip" or what deadLetter\(topic\) gives/],
  [{ onFailure: topic }, /"onFailure"/],
  [{ onError: 1 }, /"onError" is 1; it must be a function/],
  [{ maxAhead: 0 }, /"maxAhead"/],
  [{ drainTimeoutMs: -1 }, /"drainTimeoutMs"/],
  [{ signal: {} }, /"signal" is an object \(Object\); it must be an AbortSignal/],
  [{ parallel: 2 }, /c: run: unknown option "parallel"/],
] as const) {
  test(`refuses ${JSON.stringify(options)}`, () => {
    assert.throws(
      () => checkRunOptions("c", options as RunOptions),
      (error) => error instanceof InvalidError && says.test(error.message),
    )
  })
}

test("deadLetter takes a topic handle and its options, and nothing else", () => {
  const policy = deadLetter(topic)
  assert.equal(checkRunOptions("c", { onFailure: policy }).onFailure, policy)
  assert.deepEqual([policy.createTopic, policy.partitions, policy.encryptor], [true, 1, undefined])
  for (const wrong of [undefined, null, "dead", { name: "dead", stream: "s" }]) {
    assert.throws(() => deadLetter(wrong as never), InvalidError)
  }
  assert.throws(() => deadLetter(topic, { partitions: 0 }), /"partitions"/)
  assert.throws(() => deadLetter(topic, { partition: 1 } as never), /unknown option "partition"/)
})

test("waits double up to the cap; the last attempt has none, nor has what says that it is of no use", () => {
  const retry = retryOf("c", { attempts: 5, backoffMs: 10, maxBackoffMs: 35 })
  const waits = [1, 2, 3, 4, 5].map((attempt) => retryDelayMs(retry, attempt, new Error("x")))
  assert.deepEqual(waits, [10, 20, 35, 35, undefined])
  assert.equal(retryDelayMs(retry, 1, { retryable: false }), undefined)
  assert.equal(retryDelayMs(retry, 1, { retryable: true }), 10)
  assert.equal(retryDelayMs(retry, 1, undefined), 10)
})

test("half of a wait is random", () => {
  const random = seededRandom(3)
  const waits = Array.from({ length: 200 }, () => jittered(100, random))
  assert.ok(Math.min(...waits) >= 50 && Math.max(...waits) <= 100)
  assert.ok(new Set(waits).size > 100)
})
