import type { Topic } from "../client/topic.ts"
import { contextOfTopic } from "../client/topic-context.ts"
import { type RedriveOptions, type RedriveResult, redriveLetters } from "./redrive-letters.ts"

/**
 * Sends dead letters back to where they came from, with their payload, key and headers as they were, without the block that made them dead
 * letters. Each goes out once, in the order of their partition; those that come to the topic while it runs stay for the next time. Progress
 * is stored behind each send that is confirmed: a crash in between repeats up to 100 records, under the same ids.
 *
 * They are not removed from the dead-letter topic, whose retention decides how long they are there to look at.
 * @param topic The dead-letter topic.
 * @throws InvalidError for the options, and for a filter that answers neither true nor false; NotFoundError when a topic is missing, PublishFailedError, DecodeError for one that cannot be
 *   decrypted: what was sent before counts, and the next `redrive` goes on there
 */
export async function redrive(topic: Topic, options?: RedriveOptions): Promise<RedriveResult> {
  return await redriveLetters(contextOfTopic(topic), { stream: topic.stream, topic: topic.name }, options)
}
