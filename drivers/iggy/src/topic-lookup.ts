/**
 * Topics as they are now, and which history of theirs it is.
 *
 * The server reuses the numeric ids of deleted topics, so everything is addressed by name and told apart by its time of creation.
 * A purge restarts the offsets and leaves no trace that a client could see. So a purge by Millrace leaves one: a consumer group named
 * `millrace.history` that nobody joins. Group ids are never reused within a topic, so each purge gives it another one. A purge by another
 * client is seen only where an end lies before a position.
 */
import { type Lineage, NotFoundError, type TopicName } from "@millrace/contract"
import { getStream, getTopic } from "./codec/catalog-commands.ts"
import type { Partition, StreamDetails, TopicDetails } from "./codec/catalog-structures.ts"
import { getConsumerGroup } from "./codec/group-commands.ts"
import { code, type Requests, refusedWith } from "./requests.ts"

/** The group whose id tells purges apart. */
export const historyGroup = "millrace.history"

/** A topic at the time of a look. */
export interface TopicView {
  readonly stream: string
  readonly topic: TopicDetails
  readonly lineage: Lineage
}

/** The lineage of a topic: its creation in µs, and the id of its history group where it was purged. @internal */
export function lineageOf(createdMicros: bigint, historyId: number | undefined): Lineage {
  return historyId === undefined ? String(createdMicros) : `${createdMicros}-${historyId}`
}

/** The part of a lineage that a purge does not change. */
export function incarnationOf(lineage: Lineage): string {
  const end = lineage.indexOf("-")
  return end < 0 ? lineage : lineage.slice(0, end)
}

/** One partition of a view, or `undefined` where the topic has no such partition. */
export function partitionOf({ topic }: Pick<TopicView, "topic">, partition: number): Partition | undefined {
  const there = topic.partitions[partition]
  return there?.id === partition ? there : topic.partitions.find(({ id }) => id === partition)
}

/** The offset that the next record of a partition gets. */
export function endOf(partition: Partition): bigint {
  return partition.messagesCount === 0n && partition.currentOffset === 0n ? 0n : partition.currentOffset + 1n
}

/**
 * A topic and its lineage. Two requests, sent together: neither creation times nor group ids ever come back, so an answer that is equal to
 * an earlier one proves that nothing changed until the later one was asked for.
 * @throws NotFoundError for the topic or its stream
 */
export async function lookUpTopic(requests: Requests, { stream, topic }: TopicName): Promise<TopicView> {
  const [details, historyId] = await Promise.all([
    requests.request(getTopic, { stream, topic }),
    historyIdOf(requests, { stream, topic }),
  ])
  if (details === undefined) throw await missingTopic(requests, { stream, topic })
  return { stream, topic: details, lineage: lineageOf(details.createdMicros, historyId) }
}

/** The id of a topic's history group, or `undefined` where it has none. */
async function historyIdOf(requests: Requests, { stream, topic }: TopicName): Promise<number | undefined> {
  try {
    return (await requests.request(getConsumerGroup, { stream, topic, group: historyGroup }))?.id
  } catch (error) {
    if (refusedWith(error, code.streamNotFound, code.topicNotFound, code.groupNotFound)) return undefined
    throw error
  }
}

/** @throws NotFoundError */
export async function lookUpStream(requests: Requests, stream: string): Promise<StreamDetails> {
  const details = await requests.request(getStream, { stream })
  if (details === undefined) throw missingStream(stream)
  return details
}

export function missingStream(stream: string): NotFoundError {
  return new NotFoundError(`stream ${JSON.stringify(stream)} does not exist`, { context: { stream } })
}

/** Says whether the topic or its whole stream is missing. */
export async function missingTopic(requests: Requests, { stream, topic }: TopicName): Promise<NotFoundError> {
  const found = await requests.request(getStream, { stream })
  return found === undefined
    ? new NotFoundError(`topic ${nameOf({ stream, topic })} does not exist, and neither does its stream`, {
        context: { stream, topic },
      })
    : goneTopic({ stream, topic })
}

export function goneTopic({ stream, topic }: TopicName): NotFoundError {
  return new NotFoundError(`topic ${nameOf({ stream, topic })} does not exist`, { context: { stream, topic } })
}

export function missingPartition(name: TopicName, partition: number, partitions: number): NotFoundError {
  const { stream, topic } = name
  const range = partitions === 0 ? "no partitions" : `${partitions} partitions (0 to ${partitions - 1})`
  return new NotFoundError(`partition ${partition} does not exist: topic ${nameOf(name)} has ${range}`, {
    context: { stream, topic, partition },
  })
}

/** A topic in messages: `"stream/topic"`. */
export function nameOf({ stream, topic }: TopicName): string {
  return JSON.stringify(`${stream}/${topic}`)
}

/** A text that is equal for equal names only. */
export function keyOf({ stream, topic }: TopicName): string {
  return `${stream.length}/${stream}/${topic}`
}
