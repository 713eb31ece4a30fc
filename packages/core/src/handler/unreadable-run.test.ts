/** `consumer.run` over what cannot be read, while other things happen to its partition. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { CorruptionError, MillraceError } from "@millrace/contract"
import { FakeClient, take, textOf } from "../consumer/fake-session.test-support.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import { deadLetter } from "./dead-letter.ts"
import { open, running } from "./running-consumer.test-support.ts"

/** A dead-letter topic whose sends wait until the test lets them go. */
class SlowTopic {
  readonly stream = "s"
  readonly name = "dead"
  readonly sent: OutgoingRecord[] = []
  readonly confirmed: PromiseWithResolvers<void> = Promise.withResolvers<void>()
  ensure = async (): Promise<void> => {}
  batch = async (records: readonly OutgoingRecord[]): Promise<void> => {
    this.sent.push(...records)
    await this.confirmed.promise
  }
}

/** Offsets 0 to 2 can be read, the batch of 3 and 4 cannot, 5 and 6 can. */
function filled(): FakeClient {
  const client = new FakeClient()
  client.put(0, 3)
  client.put(3, 5)
  client.put(5, 7)
  const context = { ...client.place(), offset: 3n, nextOffset: 5n }
  const error = new CorruptionError("offset 3 is damaged", { context })
  client.log.find(client.place())?.damage.push({ offset: 3n, error })
  return client
}

/** Longer than the pause after which the reader looks at the damage again. */
const longMs = 5000

describe("a batch that cannot be read", () => {
  for (const concurrency of [1, 8]) {
    test(`is one dead letter, however long that takes to be confirmed (concurrency ${concurrency})`, async () => {
      const client = filled()
      const topic = new SlowTopic()
      const consumer = open(client, { commitPolicy: { kind: "each" } })
      const seen: string[] = []
      const state = running(consumer, (message) => void seen.push(textOf(message)), {
        concurrency,
        onFailure: deadLetter(topic),
      })
      await client.clock.advance(longMs)
      assert.deepEqual([seen, topic.sent.length], [["0", "1", "2"], 1])
      topic.confirmed.resolve()
      await client.clock.advance(longMs)
      assert.deepEqual([seen, topic.sent.length, state.done], [["0", "1", "2", "5", "6"], 1, undefined])
      await consumer.shutdown()
      assert.equal(client.storedNext("worker"), 7n)
    })
  }

  test("is not skipped any more when the partition was moved while its dead letter was on its way", async () => {
    const client = filled()
    const topic = new SlowTopic()
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    const seen: string[] = []
    const state = running(consumer, (message) => void seen.push(textOf(message)), { onFailure: deadLetter(topic) })
    await client.clock.advance(10)
    assert.equal(topic.sent.length, 1)
    await consumer.seek(0, { kind: "offset", value: 5n })
    topic.confirmed.resolve()
    await client.clock.advance(longMs)
    assert.deepEqual([seen, state.done], [["0", "1", "2", "5", "6"], undefined])
    await consumer.shutdown()
  })

  test("and whose dead letter fails after the partition was moved does not end the run", async () => {
    const client = filled()
    const topic = new SlowTopic()
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    const state = running(consumer, () => {}, { onFailure: deadLetter(topic) })
    await client.clock.advance(10)
    await consumer.seek(0, { kind: "offset", value: 5n })
    topic.confirmed.reject(new MillraceError("invalid", "never"))
    await client.clock.advance(longMs)
    assert.deepEqual(state, { ended: false })
    await consumer.shutdown()
  })

  test("is not passed any more when its run has given up waiting for the dead letter, and is met again", async () => {
    const client = filled()
    const topic = new SlowTopic()
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    const abort = new AbortController()
    const state = running(consumer, () => {}, {
      onFailure: deadLetter(topic),
      signal: abort.signal,
      drainTimeoutMs: 100,
    })
    await client.clock.advance(10)
    abort.abort()
    await client.clock.advance(100)
    assert.equal(state.ended, true)
    topic.confirmed.resolve()
    await client.clock.advance(longMs)
    await assert.rejects(consumer.next(), CorruptionError)
    await consumer.shutdown()
    assert.equal(client.storedNext("worker"), 3n)
  })

  test("whose dead letter is on its way is named by a shutdown that cannot wait for it", async () => {
    const client = filled()
    const topic = new SlowTopic()
    const consumer = open(client, { commitPolicy: { kind: "each" } })
    running(consumer, () => {}, { onFailure: deadLetter(topic) })
    await client.clock.advance(10)
    const ending = assert.rejects(consumer.shutdown({ timeoutMs: 100 }), /partition 0 of topic "s\/t"/)
    await client.clock.advance(200)
    await ending
    topic.confirmed.resolve()
    await client.clock.advance(longMs)
    assert.equal(client.storedNext("worker"), 3n)
  })

  test("can be skipped long after its error was handed out", async () => {
    const client = filled()
    const consumer = open(client)
    await take(consumer, 3)
    await assert.rejects(consumer.next(), CorruptionError)
    await client.clock.advance(longMs)
    await consumer.seek(0, "skip")
    assert.equal(textOf((await take(consumer, 1))[0] as never), "5")
    await consumer.shutdown()
  })
})
