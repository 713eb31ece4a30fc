/** The newest record of a partition. Behind it there may be markers of transactions, and holes that compaction left. */
import { MillraceError, type TopicPartition } from "@millrace/contract"
import type { Cluster } from "../cluster/cluster.ts"
import { errorCode, kafkaError } from "../errors.ts"
import { fetchApi } from "../protocol/api.ts"
import { readBatches } from "../records/read-batches.ts"

/** How far back the first look goes, in offsets, and how much farther each next one. */
const firstStep = 1n
const growth = 16n

/** Enough for many markers, and for a look at one large batch. */
const lookBytes = 1 << 20

/** Where to look. */
export interface LastQuestion {
  readonly kafka: string
  readonly topicId: string
  readonly partition: number
  readonly first: bigint
  readonly end: bigint
}

/**
 * Its offset; `end` when there is none. Looks at the tail, farther back each time: the usual case takes one request.
 * @throws MillraceError, as a read of the partition does
 */
export async function lastRecord(cluster: Cluster, question: LastQuestion, name: TopicPartition): Promise<bigint> {
  const { first, end } = question
  let before = end
  for (let step = firstStep; before > first; step *= growth) {
    const from = later(first, end - step)
    const found = await lastBetween(cluster, question, { from, before, name })
    if (found !== undefined) return found
    before = from
  }
  return end
}

/** The last record in a range, through as many requests as its batches need. */
async function lastBetween(
  cluster: Cluster,
  { kafka, topicId, partition }: LastQuestion,
  range: { readonly from: bigint; readonly before: bigint; readonly name: TopicPartition },
): Promise<bigint | undefined> {
  let last: bigint | undefined
  for (let offset = range.from; offset < range.before; ) {
    const asked = { partition, fetchOffset: offset, partitionMaxBytes: lookBytes }
    const answer = await cluster.request(
      fetchApi,
      {
        maxWaitMs: 0,
        minBytes: 0,
        maxBytes: lookBytes,
        sessionId: 0,
        sessionEpoch: -1,
        topics: [{ topic: kafka, topicId, partitions: [asked] }],
      },
      { kind: "leader", topic: kafka, partition },
      { readOnly: true },
    )
    const told = answer.responses[0]?.partitions[0]
    const code = answer.errorCode !== errorCode.none ? answer.errorCode : (told?.errorCode ?? errorCode.none)
    if (code !== errorCode.none) {
      throw kafkaError(code, { what: "looking for the newest record", context: { ...range.name }, readOnly: true })
    }
    const { batches, error } = readBatches(told?.records ?? noBytes, range.name)
    if (error instanceof MillraceError) throw error
    for (const batch of batches) {
      if (!batch.control && batch.count > 0 && batch.lastOffset < range.before) last = batch.lastOffset
    }
    const next = batches.at(-1)?.nextOffset
    if (next === undefined || next <= offset) break
    offset = next
  }
  return last
}

function later(one: bigint, other: bigint): bigint {
  return one > other ? one : other
}

const noBytes = new Uint8Array(0)
