/** Asks the cluster about partitions: who leads them, whether they are still those of the reader's history, where their log begins and ends. */
import {
  HistoryChangedError,
  MillraceError,
  NotFoundError,
  OffsetOutOfRangeError,
  StorageError,
  type TopicPartition,
} from "@millrace/contract"
import { askNow, type Cluster, type TopicMetadata } from "../cluster/cluster.ts"
import { errorCode, kafkaError } from "../errors.ts"
import { listOffsetsApi } from "../protocol/api.ts"
import type { Slot } from "./slot.ts"

/** What a look at a slot's topic came to: a leader was found, there is none now, or the error that ends or troubles the slot. */
export type Lookup =
  | { readonly kind: "leader"; readonly leader: number; readonly leaderEpoch: number }
  | { readonly kind: "leaderless" }
  | { readonly kind: "missing"; readonly error: NotFoundError }
  | { readonly kind: "error"; readonly error: MillraceError }

/** Looks up the leaders of slots that are partitions of one topic. Never rejects. One outcome a slot, in order. */
export async function lookUp(cluster: Cluster, topic: string, slots: readonly Slot[]): Promise<Lookup[]> {
  try {
    let metadata = await cluster.topic(topic)
    if (slots.some((slot) => slot.position.partition >= metadata.partitions.length)) {
      metadata = await cluster.topic(topic, { maxAgeMs: askNow })
    }
    return slots.map((slot) => lookUpIn(metadata, slot.position))
  } catch (cause) {
    const error = asMillraceError(cause)
    return slots.map((slot) =>
      error instanceof NotFoundError
        ? { kind: "missing", error: topicMissing(slot.position, error) }
        : { kind: "error", error },
    )
  }
}

function lookUpIn(metadata: TopicMetadata, position: Slot["position"]): Lookup {
  const { partition, lineage } = position
  if (metadata.topicId !== lineage) return { kind: "error", error: historyChanged(position, metadata.topicId) }
  const found = metadata.partitions[partition]
  if (found === undefined) return { kind: "error", error: partitionMissing(position, metadata.partitions.length) }
  if (found.leader < 0) return { kind: "leaderless" }
  return { kind: "leader", leader: found.leader, leaderEpoch: found.leaderEpoch }
}

/**
 * Where the log of a partition begins and ends now. Never rejects.
 * @returns `undefined` when the offset lies within after all
 */
export async function checkRange(cluster: Cluster, slot: Slot): Promise<MillraceError | undefined> {
  try {
    const [first, end] = await Promise.all([edge(cluster, slot, earliest), edge(cluster, slot, latest)])
    const offset = slot.fetchFrom
    return offset >= first && offset <= end ? undefined : outOfRange(slot.position, offset, { first, end })
  } catch (error) {
    return asMillraceError(error)
  }
}

/** The timestamps by which ListOffsets asks for the first retained record and for the end. */
const earliest = -2n
const latest = -1n

async function edge(cluster: Cluster, slot: Slot, timestamp: bigint): Promise<bigint> {
  const { partition } = slot.position
  const response = await cluster.request(
    listOffsetsApi,
    {
      replicaId: -1,
      isolationLevel: 0,
      topics: [
        {
          name: slot.kafkaName,
          partitions: [{ partitionIndex: partition, currentLeaderEpoch: slot.leaderEpoch, timestamp }],
        },
      ],
    },
    { kind: "node", id: slot.leader },
    { readOnly: true },
  )
  const answer = response.topics[0]?.partitions[0]
  if (answer === undefined)
    throw new MillraceError("protocol", `no offsets were answered for ${placeText(slot.position)}`)
  if (answer.errorCode !== errorCode.none) {
    throw kafkaError(answer.errorCode, { what: `finding the ends of ${placeText(slot.position)}`, readOnly: true })
  }
  return answer.offset
}

/** `partition 3 of topic "s/t"`. */
export function placeText({ stream, topic, partition }: TopicPartition): string {
  return `partition ${partition} of topic "${stream === "" ? topic : `${stream}/${topic}`}"`
}

function placeOf({ stream, topic, partition }: TopicPartition): TopicPartition {
  return { stream, topic, partition }
}

function historyChanged(position: Slot["position"], present: string): HistoryChangedError {
  return new HistoryChangedError(
    `${placeText(position)}: the topic was recreated: the position belongs to the topic with id ${position.lineage}, the present one has ${present}`,
    { context: { ...placeOf(position), offset: position.offset, lineage: position.lineage, present } },
  )
}

function topicMissing(position: TopicPartition, cause: MillraceError): NotFoundError {
  return new NotFoundError(`${placeText(position)} does not exist: there is no such topic`, {
    context: { ...placeOf(position) },
    cause,
  })
}

function partitionMissing(position: TopicPartition, count: number): NotFoundError {
  return new NotFoundError(
    `${placeText(position)} does not exist: the topic has ${count === 1 ? "1 partition (0)" : `${count} partitions (0 to ${count - 1})`}`,
    { context: { ...placeOf(position) } },
  )
}

function outOfRange(
  position: TopicPartition,
  offset: bigint,
  { first, end }: { readonly first: bigint; readonly end: bigint },
): OffsetOutOfRangeError {
  const range = `the first that is left is ${first}, and the end is ${end}`
  return new OffsetOutOfRangeError(`${placeText(position)}: the position ${offset} is out of range: ${range}`, {
    context: { ...placeOf(position), offset, first, end },
  })
}

export function asMillraceError(error: unknown): MillraceError {
  if (error instanceof MillraceError) return error
  return new StorageError(`the Kafka driver failed: ${error instanceof Error ? error.message : String(error)}`, {
    cause: error,
  })
}
