/** How owners of progress are named in Kafka, and how a stored offset says which history it belongs to. */
import { InvalidError, type Lineage, type OffsetOwner } from "@millrace/contract"

/** Named consumers are Kafka groups of this prefix, so that a consumer `x` never meets a group `x`. */
const consumerPrefix = "millrace.consumer."

/** The Kafka group of an owner. @throws InvalidError for a group whose name could be a named consumer's */
export function kafkaGroup({ kind, name }: OffsetOwner): string {
  return kind === "consumer" ? `${consumerPrefix}${name}` : checkGroupName(name)
}

/** @throws InvalidError for a group whose name could be a named consumer's */
export function checkGroupName(group: string): string {
  if (!group.startsWith(consumerPrefix)) return group
  throw new InvalidError(
    `group ${JSON.stringify(group)} is not allowed: names that begin with "${consumerPrefix}" belong to named consumers on Kafka`,
    { context: { group } },
  )
}

const topicPrefix = "millrace.topic-id="

/**
 * The metadata that is stored beside an offset: the id of the topic. Kafka forgets the offsets of a deleted topic, but late, and brokers
 * before 4.1 keep offsets by the topic's name alone.
 */
export function offsetMetadata(lineage: Lineage): string {
  return `${topicPrefix}${lineage}`
}

/** Whether a stored offset with this metadata belongs to the history. Offsets of other clients say nothing of it, and are believed. */
export function belongsTo(metadata: string | null, lineage: Lineage): boolean {
  return metadata === null || !metadata.startsWith(topicPrefix) || metadata === offsetMetadata(lineage)
}
