/** `consumer.run` under a filter that stops at a record. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { DecodeError } from "@millrace/contract"
import { deadLetter } from "../handler/dead-letter.ts"
import { deadLetterBlock } from "../handler/dead-letter-record.ts"
import { running } from "../handler/running-consumer.test-support.ts"
import type { Message } from "../record/message.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import { atLeast, Bench } from "./filtered-group.test-support.ts"

const utf8 = new TextEncoder()

/** `{"n":0}`, a record that is no JSON, `{"n":2}`. */
function filled(): Bench {
  const bench = new Bench()
  bench.configure(atLeast(0))
  bench.put(0, 1)
  bench.client.log.put(bench.client.place(), [{ payload: utf8.encode("{"), key: utf8.encode("k") }])
  bench.put(2, 3)
  return bench
}

function collector(): { readonly offsets: bigint[]; readonly handler: (message: Message) => void } {
  const offsets: bigint[] = []
  return { offsets, handler: (message) => void offsets.push(message.position.offset) }
}

describe("a record that a group's filter stops at, in a run", () => {
  test("stop: the run rejects with its DecodeError, seek goes past it, and the next run reads on", async () => {
    const bench = filled()
    const consumer = await bench.open({ commitPolicy: { kind: "each" } })
    const { offsets, handler } = collector()
    const state = running(consumer, handler)
    await bench.client.clock.advance(100)
    assert.ok(state.done instanceof DecodeError, String(state.done))
    assert.equal(bench.client.groupNext("g"), 1n)
    await consumer.seek(0, "skip")
    running(consumer, handler)
    await bench.client.clock.advance(100)
    await consumer.shutdown()
    assert.deepEqual(offsets, [0n, 2n])
    assert.equal(bench.client.groupNext("g"), 3n)
  })

  test("skip: goes past it", async () => {
    const bench = filled()
    const consumer = await bench.open({ commitPolicy: { kind: "each" } })
    const { offsets, handler } = collector()
    const told: unknown[] = []
    running(consumer, handler, { onFailure: "skip", onError: (error, next) => told.push([error.kind, next]) })
    await bench.client.clock.advance(100)
    await consumer.shutdown()
    assert.deepEqual([offsets, told], [[0n, 2n], [["decode", "skip"]]])
    assert.equal(bench.client.groupNext("g"), 3n)
  })

  test("deadLetter: keeps its bytes as they are stored, and goes past it", async () => {
    const bench = filled()
    const sent: OutgoingRecord[] = []
    const topic = {
      stream: "s",
      name: "dead",
      ensure: async () => {},
      batch: async (records: readonly OutgoingRecord[]) => void sent.push(...records),
    }
    const consumer = await bench.open({ commitPolicy: { kind: "each" } })
    const { offsets, handler } = collector()
    running(consumer, handler, { onFailure: deadLetter(topic) })
    await bench.client.clock.advance(100)
    await consumer.shutdown()
    assert.deepEqual(offsets, [0n, 2n])
    assert.equal(sent.length, 1)
    assert.deepEqual([sent[0]?.payload, sent[0]?.key], [utf8.encode("{"), utf8.encode("k")])
    const block = deadLetterBlock(sent[0]?.headers as never)
    assert.deepEqual([block?.offset, block?.content, block?.attempts, block?.group], [1n, "stored", 0, "g"])
    assert.equal(bench.client.groupNext("g"), 3n)
  })
})
