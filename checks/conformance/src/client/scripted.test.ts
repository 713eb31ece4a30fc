/** What only a log with chosen offsets can show: numbers beyond 2^53, and holes. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { openClient } from "@millrace/core"
import { embeddedDriver } from "@millrace/embedded"
import { systemClock, systemRandom } from "@millrace/runtime"
import type { Client } from "millrace"
import { encode, take } from "../rig/client-rig.ts"
import { type ScriptedRecord, scriptedSession } from "./scripted-session.ts"

const publish = { publishTimeoutMs: 1_000, publishRetries: 0, publishRetryBackoffMs: 1 }

function open(records: readonly ScriptedRecord[], end: bigint): { client: Client; stored: Map<string, bigint> } {
  const topic = {
    stream: "s",
    topic: "t",
    lineage: "scripted",
    partitions: [{ partition: 0 }],
    createdMicros: 1n,
    durability: "synced",
    offsetDurability: "synced",
    deduplicationWindowMs: 0,
    deduplicateIds: false,
  } as const
  const session = scriptedSession(embeddedDriver.manifest, topic, records, end)
  const client = openClient(session, publish, { clock: systemClock, random: systemRandom })
  return { client, stored: session.stored }
}

function record(offset: bigint, timestampMicros = 1_700_000_000_123_456n): ScriptedRecord {
  return { offset, payload: encode(`at ${offset}`), timestampMicros }
}

describe("field reports: numbers and holes", () => {
  test("A-18: an offset and a time beyond 2^53 come back exact, in one type, everywhere", async () => {
    const large = 2n ** 53n + 1n
    const time = 2n ** 53n + 3n
    const { client, stored } = open([record(large, time)], large + 1n)
    const topic = client.stream("s").topic("t")
    const consumer = topic.consumer("reader", 0, { commitPolicy: { kind: "disabled" } })
    const [message] = await take(consumer, 1)
    assert.ok(message !== undefined)
    assert.equal(message.position.offset, large)
    assert.equal(message.timestampMicros, time)
    assert.equal(message.partitionHead, large)
    assert.equal(consumer.lastConsumedOffset(), large)
    await consumer.commit(message)
    assert.equal(stored.get("reader"), large + 1n)
    assert.equal(consumer.lastStoredOffset(), large)
    assert.equal((await consumer.storedOffset())?.stored, large)
    assert.deepEqual(
      (await consumer.lag()).map((entry) => entry.lag),
      [0n],
    )
    await consumer.storeOffset(large)
    const json = JSON.stringify(message)
    assert.ok(json.includes(String(large)) && json.includes(String(time)), json)
    assert.equal((await topic.watermarks())[0]?.end, large + 1n)
    await client.close()
  })

  test("A-16: a consumer goes over a hole, never back, and its lag ends at 0 behind a marker", async () => {
    const records = [...Array(10).keys(), 50, 51, 52].map((offset) => record(BigInt(offset)))
    const { client, stored } = open(records, 60n)
    const consumer = client
      .stream("s")
      .topic("t")
      .consumer("reader", 0, { startAt: { kind: "offset", value: 10n }, commitPolicy: { kind: "each" } })
    const messages = await take(consumer, 3)
    assert.deepEqual(
      messages.map((message) => message.position.offset),
      [50n, 51n, 52n],
    )
    await assert.rejects(consumer.nextWithin(50))
    assert.equal(stored.get("reader"), 60n, "all is handled: what is stored is where reading goes on, behind the hole")
    assert.deepEqual(
      (await consumer.lag()).map((entry) => entry.lag),
      [0n],
    )
    await client.close()
  })
})
