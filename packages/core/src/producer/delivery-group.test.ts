/** Deliveries that share a promise: each record hears what became of itself, whatever becomes of its batch. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { ConnectionError, DiskFullError } from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import fc from "fast-check"
import { type Client, openClient } from "../client/client.ts"
import type { Topic } from "../client/topic.ts"
import { BatchOutcome } from "./batch-outcome.ts"
import type { Delivery } from "./delivery-call.ts"
import { DeliveryGroup } from "./delivery-group.ts"
import { FakeBackend } from "./fake-backend.test-support.ts"
import { PublishFailedError } from "./publish-failed.ts"
import { balanced } from "./routing.ts"
import { StatisticsCounter } from "./statistics.ts"

const name = { stream: "s", topic: "t" }
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)

function outcome(base: bigint | undefined, start: number): BatchOutcome {
  const result = { ...(base === undefined ? {} : { base }), contiguous: true, duplicates: 0, timestampMicros: 7n }
  const made = new BatchOutcome(name, result, { partition: 3, count: 10, resent: false })
  made.start = start
  return made
}

function group(records: number): {
  readonly group: DeliveryGroup
  readonly deliveries: Promise<Delivery>[]
  readonly settlements: boolean[]
} {
  const settlements: boolean[] = []
  const made = new DeliveryGroup(name, balanced, { nowMs: 0, settled: (_, failed) => void settlements.push(failed) })
  made.openPart()
  const deliveries = Array.from({ length: records }, (_, i) => made.joined(i, 100 + i, 132))
  return { group: made, deliveries, settlements }
}

test("each record of a batch hears its own place and its own sizes", async () => {
  const { group: made, deliveries, settlements } = group(3)
  assert.deepEqual([made.count, made.payloadBytes, made.bufferBytes], [3, 303, 396])
  made.confirmPart(0, 3, outcome(40n, 2))
  assert.deepEqual(settlements, [false])
  assert.deepEqual(
    await Promise.all(deliveries),
    [0, 1, 2].map((i) => ({
      partition: 3,
      offset: 42n + BigInt(i),
      timestampMicros: 7n,
      keyBytes: i,
      payloadBytes: 100 + i,
    })),
  )
})

test("where the backend tells no offsets, nobody is told one", async () => {
  const { group: made, deliveries } = group(1)
  made.confirmPart(0, 1, outcome(undefined, 0))
  assert.equal((await deliveries[0])?.offset, undefined)
})

test("of a split batch each record hears of its own half, in whichever order they end", async () => {
  const { group: made, deliveries, settlements } = group(4)
  // Two halves take the place of the part, and the second is split once more: its last record is refused.
  made.openPart()
  made.openPart()
  made.movePart()
  made.openPart()
  made.openPart()
  made.movePart()
  made.failPart(3, [{ payload: bytes("r3"), id: 9n }], new DiskFullError("full"))
  made.confirmPart(2, 1, outcome(20n, 0))
  assert.deepEqual(settlements, [])
  made.confirmPart(0, 2, outcome(10n, 0))
  assert.deepEqual(settlements, [true])
  const settled = await Promise.allSettled(deliveries)
  assert.deepEqual(
    settled.map((each) => (each.status === "fulfilled" ? each.value.offset : each.reason.unconfirmed)),
    [10n, 11n, 20n, [{ payload: bytes("r3"), id: 9n }]],
  )
  assert.deepEqual(made.loss, { calls: 1, records: 1, payloadBytes: 2 })
})

test("statistics count each record by its own end, not the batch as one call", async () => {
  const { group: made, deliveries } = group(3)
  const counter = new StatisticsCounter(new VirtualClock())
  counter.submitted(3, made.payloadBytes, 0)
  made.openPart()
  made.confirmPart(0, 1, outcome(0n, 0))
  made.failPart(1, [{ payload: new Uint8Array(101) }, { payload: new Uint8Array(102) }], new DiskFullError("full"))
  await Promise.allSettled(deliveries)
  counter.settled(made, true, 5)
  const { confirmedRecords, confirmedPayloadBytes, failedCalls, latency } = counter.snapshot()
  assert.deepEqual([confirmedRecords, confirmedPayloadBytes, failedCalls, latency.samples], [1, 100, 2, 1])
})

test("every record of a failed batch fails with its own record and the cause", async () => {
  const { group: made, deliveries, settlements } = group(2)
  const records = [{ payload: bytes("r0") }, { payload: bytes("r1") }]
  const cause = new ConnectionError("gone", { outcome: "unknown" })
  made.failPart(0, records, cause)
  assert.deepEqual(settlements, [true])
  for (const [i, { reason }] of ((await Promise.allSettled(deliveries)) as PromiseRejectedResult[]).entries()) {
    assert.ok(reason instanceof PublishFailedError)
    assert.equal(reason.publishCause(), cause)
    assert.equal(reason.outcome, "unknown")
    assert.deepEqual(reason.unconfirmed, [records[i]])
  }
})

interface Rig {
  readonly clock: VirtualClock
  readonly backend: FakeBackend
  readonly client: Client
  readonly topic: Topic
}

function rig(partitions: number): Rig {
  const clock = new VirtualClock()
  const backend = new FakeBackend(clock)
  backend.create("t", partitions)
  const client = openClient(backend.session, {}, { clock, random: seededRandom(1) })
  return { clock, backend, client, topic: client.stream("s").topic("t") }
}

test("groups do not reach over batches, so that a flush under constant load waits for what was called before it", async () => {
  const { clock, backend, topic, client } = rig(1)
  backend.fate = () => ({ answerMs: 10 })
  // A batch has room for so few bytes that it is full before it has as many records as it may have.
  const producer = topic.producer({ background: { batchLength: 0, batchBytes: 300, lingerMs: 1, maxInFlight: 1 } })
  await producer.init()
  let confirmed = 0
  const send = (): void => void producer.sendAndConfirm(new Uint8Array(80)).then(() => confirmed++)
  const sendSome = (): void => {
    for (let each = 0; each < 4; each++) send()
  }
  sendSome()
  let flushed = false
  const flushing = producer.flush().then(() => {
    flushed = true
    assert.ok(confirmed >= 4, "it ended before its sends were confirmed")
  })
  for (let waited = 0; !flushed; waited++) {
    assert.ok(waited < 20, "later sends keep the flush from ending")
    sendSome()
    await clock.advance(10)
  }
  await flushing
  const closing = client.close()
  await clock.advance(30_000)
  await closing
})

test("records that move to a recreated topic with other partitions hear where they are there", async () => {
  const { clock, backend, topic, client } = rig(1)
  const producer = topic.producer({ background: { batchLength: 0, lingerMs: 1000 } })
  await producer.init()
  const sent = Array.from({ length: 30 }, (_, i) => producer.sendAndConfirm(bytes(`r${i}`), { key: `key${i % 7}` }))
  backend.delete("t")
  backend.create("t", 3)
  const flushed = producer.flush()
  await clock.advance(10_000)
  await flushed
  const deliveries = await Promise.all(sent)
  assert.equal(new Set(deliveries.map(({ partition }) => partition)).size, 3)
  for (const [i, { partition, offset }] of deliveries.entries()) {
    assert.equal(backend.texts("t", partition)[Number(offset)], `r${i}`)
  }
  await client.close()
})

test("over refusals, lost answers, large batches and a recreated topic every delivery is true", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.constantFrom("store", "refuse", "lose", "vanish"), { maxLength: 12 }),
      fc.record({
        largestBatch: fc.constantFrom(1, 3, Number.POSITIVE_INFINITY),
        batchLength: fc.integer({ min: 1, max: 9 }),
        mixed: fc.boolean(),
        recreateAfter: fc.option(fc.integer({ min: 0, max: 3 }), { nil: undefined }),
        partitionsAfter: fc.constantFrom(2, 3),
      }),
      async (outcomes, shape) => {
        const { clock, backend, topic, client } = rig(2)
        backend.largestBatch = shape.largestBatch
        let appends = 0
        backend.fate = () => {
          if (appends++ === shape.recreateAfter) {
            backend.delete("t")
            backend.create("t", shape.partitionsAfter)
          }
          return { outcome: outcomes[appends - 1] ?? "store", answerMs: 1 }
        }
        const background = { batchLength: shape.batchLength, lingerMs: 1, maxInFlight: 5, onError: () => {} }
        const producer = topic.producer({ onUnknown: "resend", retries: 20, background })
        await producer.init()
        const sent = Array.from({ length: 25 }, (_, i) => {
          if (shape.mixed && i % 4 === 0) void producer.send(bytes(`plain${i}`))
          return producer.sendAndConfirm(bytes(`r${i}`), i % 3 === 0 ? {} : { key: `key${i % 5}` })
        })
        const all = Promise.allSettled(sent)
        for (let step = 0; step < 40; step++) await clock.advance(500)
        const closing = client.close({ timeoutMs: 1 })
        await clock.advance(5_000)
        await closing
        for (const [i, each] of (await all).entries()) {
          if (each.status === "fulfilled") {
            const { partition, offset, payloadBytes } = each.value
            assert.equal(payloadBytes, `r${i}`.length)
            // What was confirmed before the topic was recreated is gone with it.
            if (shape.recreateAfter === undefined) assert.equal(backend.texts("t", partition)[Number(offset)], `r${i}`)
          } else {
            assert.ok(each.reason instanceof PublishFailedError, String(each.reason))
            const [record] = each.reason.unconfirmed
            assert.equal(new TextDecoder().decode(record?.payload ?? undefined), `r${i}`)
          }
        }
      },
    ),
    { numRuns: 120 },
  )
})
