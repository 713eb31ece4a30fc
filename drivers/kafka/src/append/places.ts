/** Anchors and watermarks as offsets. */
import {
  type Anchor,
  type Lineage,
  MillraceError,
  type Position,
  type TopicPartition,
  type Watermarks,
} from "@millrace/contract"
import type { Cluster } from "../cluster/cluster.ts"
import { kafkaTopic } from "../names.ts"
import type { Pauses } from "../pauses.ts"
import { lastRecord } from "./last-record.ts"
import { earliest, latest, listOffsets, type OffsetAnswer, type OffsetQuestion } from "./list-offsets.ts"

export interface PlacesParts {
  readonly cluster: Cluster
  readonly pauses: Pauses
}

/** First and end of each partition, in order. The end is the high watermark: what all replicas in sync have. */
export async function watermarks(
  parts: PlacesParts,
  partitions: readonly TopicPartition[],
): Promise<(Watermarks | MillraceError)[]> {
  const asked = partitions.flatMap((place) => [questionOf(place, earliest), questionOf(place, latest)])
  const answers = await listOffsets(parts, asked)
  return partitions.map(({ stream, topic, partition }, index) => {
    const first = answers[2 * index] as OffsetAnswer | MillraceError
    const end = answers[2 * index + 1] as OffsetAnswer | MillraceError
    if (first instanceof MillraceError) return first
    if (end instanceof MillraceError) return end
    return { stream, topic, partition, first: first.offset, end: end.offset, lineage: end.topicId }
  })
}

/**
 * One answer a query. Times have milliseconds: one in between is rounded up, since the record looked for is at or behind it. A time
 * behind all records is the end, and so is `last` where there is no record.
 */
export async function locate(
  parts: PlacesParts,
  queries: readonly (TopicPartition & { readonly at: Anchor })[],
): Promise<(Position | MillraceError)[]> {
  const direct = await listOffsets(
    parts,
    queries.map((query) => questionOf(query, timeOf(query.at))),
  )
  return Promise.all(
    queries.map(async (query, index) => {
      const answer = direct[index] as OffsetAnswer | MillraceError
      if (answer instanceof MillraceError) return answer
      const found = await settled(parts, query, answer).catch(asMillrace)
      if (found instanceof MillraceError) return found
      const { stream, topic, partition } = query
      return { stream, topic, partition, offset: found.offset, lineage: found.lineage }
    }),
  )
}

/** What the first question did not settle: a time behind all records, and the last record, need the end. */
async function settled(
  parts: PlacesParts,
  query: TopicPartition & { readonly at: Anchor },
  answer: OffsetAnswer,
): Promise<{ readonly offset: bigint; readonly lineage: Lineage }> {
  if (query.at.kind === "last") return lastOf(parts, query)
  if (answer.offset >= 0n) return { offset: answer.offset, lineage: answer.topicId }
  const [end] = await listOffsets(parts, [questionOf(query, latest)])
  if (end === undefined || end instanceof MillraceError) throw end
  return { offset: end.offset, lineage: end.topicId }
}

async function lastOf(
  parts: PlacesParts,
  query: TopicPartition,
): Promise<{ readonly offset: bigint; readonly lineage: Lineage }> {
  const [marks] = await watermarks(parts, [query])
  if (marks === undefined || marks instanceof MillraceError) throw marks
  const { first, end, lineage } = marks
  const { stream, topic, partition } = query
  const question = { kafka: kafkaTopic(query), topicId: lineage, partition, first, end }
  return { offset: await lastRecord(parts.cluster, question, { stream, topic, partition }), lineage }
}

function questionOf(place: TopicPartition, time: bigint): OffsetQuestion {
  return { kafka: kafkaTopic(place), partition: place.partition, time }
}

/** Negative times are Kafka's own words; records before 1970 are behind each of them. */
function timeOf(at: Anchor): bigint {
  switch (at.kind) {
    case "first":
      return earliest
    case "last":
    case "end":
      return latest
    case "timestampMicros":
      return at.value <= 0n ? 0n : (at.value + 999n) / 1000n
  }
}

function asMillrace(error: unknown): MillraceError {
  return error instanceof MillraceError ? error : new MillraceError("protocol", String(error), { cause: error })
}
