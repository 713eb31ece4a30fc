import type { TopicPartition } from "@millrace/contract"
import { shown } from "../client/options.ts"

/** A partition of a consumer: its number, or its place where the consumer reads several topics that have one of that number. */
export type PartitionRef = number | TopicPartition

/** Whether the partition is the one, or one of those, that is meant. */
export function isMeant(ref: PartitionRef, place: TopicPartition): boolean {
  if (typeof ref !== "object" || ref === null) return place.partition === ref
  return place.partition === ref.partition && place.topic === ref.topic && place.stream === ref.stream
}

/** As errors name it. */
export function refText(ref: PartitionRef): string {
  return typeof ref === "object" && ref !== null
    ? `${shown(ref.partition)} of topic ${shown(`${ref.stream}/${ref.topic}`)}`
    : shown(ref)
}
