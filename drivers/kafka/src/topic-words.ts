/** How messages call topics and partitions, and the failures of what needs one that is not there. */
import { NotFoundError } from "@millrace/contract"
import { topicNameOf } from "./names.ts"

/** How messages call a Kafka topic: as `stream/topic`, the way users know it. */
export function topicText(kafka: string): string {
  const { stream, topic } = topicNameOf(kafka)
  return `topic ${JSON.stringify(stream === "" ? topic : `${stream}/${topic}`)}`
}

/** The failure of everything that needs a topic which is not there. */
export function noTopic(kafka: string): NotFoundError {
  return new NotFoundError(`${topicText(kafka)} does not exist`, { context: { ...topicNameOf(kafka) } })
}

/** The failure of everything that needs a partition which is not there. */
export function noPartition(
  kafka: string,
  found: { readonly partition: number; readonly count: number },
): NotFoundError {
  const { partition, count } = found
  return new NotFoundError(
    `partition ${partition} of ${topicText(kafka)} is out of range: the topic has ${count} ${count === 1 ? "partition (0)" : `partitions (0 to ${count - 1})`}`,
    { context: { ...topicNameOf(kafka), partition } },
  )
}
