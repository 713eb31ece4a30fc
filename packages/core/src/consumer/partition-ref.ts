import { InvalidError, NotAssignedError, type TopicPartition } from "@millrace/contract"
import { topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"

/** A partition of a consumer: its number, or its place where the consumer reads several topics that have one of that number. */
export type PartitionRef = number | TopicPartition

/** Whether the partition is the one, or one of those, that is meant. */
export function isMeant(ref: PartitionRef, place: TopicPartition): boolean {
  if (typeof ref !== "object" || ref === null) return place.partition === ref
  return place.partition === ref.partition && place.topic === ref.topic && place.stream === ref.stream
}

/**
 * A partition that is named is not one of the consumer's.
 * @param consumer.partition The only one that it reads; absent for a member, whose partitions come and go.
 */
export function notRead(
  consumer: { readonly what: string; readonly partition: TopicPartition | undefined },
  ref: PartitionRef,
): InvalidError | NotAssignedError {
  const { what, partition } = consumer
  return partition === undefined
    ? new NotAssignedError(`${what}: partition ${refText(ref)} is not assigned to this member`)
    : new InvalidError(`${what} reads partition ${partition.partition}, not ${refText(ref)}`)
}

/** A number names several partitions where only one can be meant. */
export function ambiguous(what: string, ref: PartitionRef, places: readonly TopicPartition[]): InvalidError {
  const topics = places.map((place) => `"${topicText(place)}"`).join(", ")
  return new InvalidError(
    `${what}: partition ${refText(ref)} is read of several topics (${topics}): name it by { stream, topic, partition }`,
  )
}

/** As errors name it. */
function refText(ref: PartitionRef): string {
  return typeof ref === "object" && ref !== null
    ? `${shown(ref.partition)} of topic ${shown(`${ref.stream}/${ref.topic}`)}`
    : shown(ref)
}
