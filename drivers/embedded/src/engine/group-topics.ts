/** How groups and offsets name topics, and how they look one up that may be gone. */
import { NotFoundError, type TopicName } from "@millrace/contract"
import type { Access, TopicRow } from "./command.ts"

/** How messages name a topic: `topic "stream/topic"`. */
export function topicText({ stream, topic }: TopicName): string {
  return `topic ${JSON.stringify(stream === "" ? topic : `${stream}/${topic}`)}`
}

/** The topic, or `undefined` when it does not exist. */
export function findTopic(access: Access, name: TopicName): TopicRow | undefined {
  try {
    return access.topic(name)
  } catch (error) {
    if (error instanceof NotFoundError) return undefined
    throw error
  }
}

/** The error for a group that is not there. */
export function noSuchGroup(group: string, { stream, topic }: TopicName): NotFoundError {
  return new NotFoundError(`group ${JSON.stringify(group)} of ${topicText({ stream, topic })} does not exist`, {
    context: { stream, topic, group },
  })
}

/** The error for a topic that is not there. */
export function noSuchTopic({ stream, topic }: TopicName): NotFoundError {
  return new NotFoundError(`${topicText({ stream, topic })} does not exist`, { context: { stream, topic } })
}
