import assert from "node:assert/strict"
import { test } from "node:test"
import { Headers, type TopicDescription } from "@millrace/contract"
import { SlabPool } from "@millrace/runtime"
import type { Cluster } from "../cluster/cluster.ts"
import type { FetchRequest } from "../protocol/messages.generated.ts"
import { KafkaBatchWriter } from "../records/batch-writer.ts"
import { crc32c } from "../records/checksum.ts"
import { at, attributes } from "../records/layout.ts"
import { lastRecord } from "./last-record.ts"

const topicId = "AAAAAAAAAAAAAAAAAAAAAQ"
const name = { stream: "s", topic: "t", partition: 0 }
const topic: TopicDescription = {
  stream: "s",
  topic: "t",
  lineage: topicId,
  partitions: [{ partition: 0 }],
  durability: "written",
  offsetDurability: "written",
  deduplicationWindowMs: 0,
  deduplicateIds: false,
}

/** A stored batch: where it begins, how many records, and whether it is a marker of a transaction. */
interface Stored {
  readonly base: bigint
  readonly count: number
  readonly control?: boolean
}

function bytesOf({ base, count, control }: Stored): Buffer {
  const writer = new KafkaBatchWriter({ topic, partition: 0 }, new SlabPool(), { records: 100, bytes: 10_000 })
  const record = { payload: Buffer.of(1), key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined }
  for (let i = 0; i < count; i++) writer.tryAppend(record)
  const bytes = Buffer.from(writer.seal({ id: 0n, timestampMicros: 0n, resend: false }).stamp())
  bytes.writeBigInt64BE(base, at.baseOffset)
  if (control === true) bytes.writeInt16BE(bytes.readInt16BE(at.attributes) | attributes.control, at.attributes)
  bytes.writeUInt32BE(crc32c(bytes.subarray(at.attributes)), at.crc)
  return bytes
}

/** A partition that answers fetches as brokers do: whole batches from the one that holds the offset on, or the next behind a hole. */
function partition(stored: readonly Stored[]): { readonly cluster: Cluster; readonly fetches: bigint[] } {
  const fetches: bigint[] = []
  const request = async (_api: unknown, body: FetchRequest): Promise<unknown> => {
    const from = body.topics[0]?.partitions[0]?.fetchOffset ?? 0n
    fetches.push(from)
    const rest = stored.filter(({ base, count }) => base + BigInt(count) > from)
    const records = Buffer.concat(rest.map(bytesOf))
    return { errorCode: 0, responses: [{ partitions: [{ errorCode: 0, records }] }] }
  }
  return { cluster: { request } as unknown as Cluster, fetches }
}

function look(stored: readonly Stored[], first: bigint, end: bigint): { found: Promise<bigint>; fetches: bigint[] } {
  const { cluster, fetches } = partition(stored)
  return { found: lastRecord(cluster, { kafka: "s.t", topicId, partition: 0, first, end }, name), fetches }
}

test("the newest record usually stands right before the end: one request", async () => {
  const { found, fetches } = look(
    [
      { base: 0n, count: 3 },
      { base: 3n, count: 2 },
    ],
    0n,
    5n,
  )
  assert.equal(await found, 4n)
  assert.deepEqual(fetches, [4n])
})

test("markers of transactions at the end are no records", async () => {
  const markers = [5n, 6n, 7n].map((base) => ({ base, count: 1, control: true }))
  assert.equal(await look([{ base: 0n, count: 5 }, ...markers], 0n, 8n).found, 4n)
})

test("holes before the end are looked over", async () => {
  assert.equal(await look([{ base: 10n, count: 2 }], 0n, 5_000n).found, 11n)
})

test("where there are only markers, or nothing, the end is the answer", async () => {
  assert.equal(await look([{ base: 3n, count: 1, control: true }], 3n, 4n).found, 4n)
  assert.equal(await look([], 2n, 9n).found, 9n)
  const empty = look([], 7n, 7n)
  assert.equal(await empty.found, 7n)
  assert.deepEqual(empty.fetches, [])
})

test("records that came behind the end that was asked about are not it", async () => {
  assert.equal(
    await look(
      [
        { base: 0n, count: 2 },
        { base: 2n, count: 2 },
      ],
      0n,
      2n,
    ).found,
    1n,
  )
})
