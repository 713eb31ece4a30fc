import assert from "node:assert/strict"
import { test } from "node:test"
import { Headers, type WireRecord } from "@millrace/contract"
import { IdleSession } from "./idle-session.ts"

const record: WireRecord = {
  payload: new Uint8Array(100),
  key: new Uint8Array(10),
  headers: Headers.empty,
  id: undefined,
  timestampMicros: undefined,
}
const stamp = { id: 0n, timestampMicros: 0n, resend: false }

test("appends are answered with the offsets that a log of these batches would have", async () => {
  const session = new IdleSession(2)
  const { log } = session
  const topic = await session.catalog.describeTopic({ stream: "s", topic: "t" })
  assert.equal(topic.partitions.length, 2)
  const append = async (partition: number, records: number): Promise<bigint | undefined> => {
    const writer = log.writer(topic, partition, { records: 10, bytes: 10_000 })
    for (let each = 0; each < records; each++) assert.ok(writer.tryAppend(record))
    assert.deepEqual([writer.count, writer.bytes], [records, records * 110])
    return (await log.append(writer.seal(stamp), {})).base
  }
  assert.deepEqual([await append(0, 3), await append(1, 2), await append(0, 1)], [0n, 0n, 3n])
  assert.equal(session.appended, 6)
})

test("a writer keeps its limits, and takes a first record whatever its size", () => {
  const { log } = new IdleSession(1)
  const topic = { stream: "s", topic: "t" } as Parameters<typeof log.writer>[0]
  const byCount = log.writer(topic, 0, { records: 2, bytes: 10_000 })
  assert.deepEqual(
    [1, 2, 3].map(() => byCount.tryAppend(record)),
    [true, true, false],
  )
  const byBytes = log.writer(topic, 0, { records: 100, bytes: 50 })
  assert.deepEqual(
    [1, 2].map(() => byBytes.tryAppend(record)),
    [true, false],
  )
})
