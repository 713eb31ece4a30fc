/** Waiting until the cluster shows what a controller has promised: a controller answers before every broker knows. */
import { MillraceError, NotFoundError, TimeoutError } from "@millrace/contract"
import { backoffMs, type Clock } from "@millrace/runtime"
import { latest, listOffsets } from "../append/list-offsets.ts"
import { askNow, type Cluster, type TopicMetadata } from "../cluster/cluster.ts"
import { topicNameOf } from "../names.ts"
import type { Pauses } from "../pauses.ts"
import { topicText } from "../topic-words.ts"

/** The pauses between two looks: the first, and the longest. ms */
const firstPauseMs = 10
const longestPauseMs = 500

export interface VisibilityParts {
  readonly cluster: Cluster
  readonly clock: Clock
  readonly pauses: Pauses
}

/**
 * Waits until the topic has that many partitions and the leader of each answers.
 * @throws TimeoutError, with the outcome unknown: the controller has agreed, so that the topic will be there
 */
export async function untilLed(
  parts: VisibilityParts,
  kafka: string,
  wanted: { readonly partitions: number; readonly topicId: string | undefined },
): Promise<TopicMetadata> {
  return until(parts, `every partition of ${topicText(kafka)} has a leader`, kafka, async () => {
    const topic = await present(parts.cluster, kafka)
    if (topic === undefined || topic.partitions.length < wanted.partitions) return undefined
    if (wanted.topicId !== undefined && topic.topicId !== wanted.topicId) return undefined
    if (topic.partitions.some(({ leader }) => leader < 0)) return undefined
    const questions = topic.partitions.map(({ partition }) => ({ kafka, partition, time: latest }))
    const answers = await listOffsets(parts, questions)
    return answers.some((answer) => answer instanceof MillraceError) ? undefined : topic
  })
}

/** Waits until the topic, with this id, is not to be seen any more. */
export async function untilGone(parts: VisibilityParts, kafka: string, topicId: string): Promise<void> {
  await until(parts, `${topicText(kafka)} is gone`, kafka, async () => {
    const topic = await present(parts.cluster, kafka)
    return topic === undefined || topic.topicId !== topicId ? true : undefined
  })
}

async function present(cluster: Cluster, kafka: string): Promise<TopicMetadata | undefined> {
  try {
    return await cluster.topic(kafka, { maxAgeMs: askNow })
  } catch (error) {
    if (error instanceof NotFoundError) return undefined
    throw error
  }
}

async function until<T>(
  { cluster, clock, pauses }: VisibilityParts,
  what: string,
  kafka: string,
  look: () => Promise<T | undefined>,
): Promise<T> {
  const deadlineMs = clock.monotonicMs() + cluster.requestTimeoutMs
  for (let attempt = 0; ; attempt++) {
    let cause: unknown
    try {
      const found = await look()
      if (found !== undefined) return found
    } catch (error) {
      // The change is made: a broker that cannot be asked now does not undo it.
      if (!(error instanceof MillraceError) || !error.retryable) throw error
      cause = error
    }
    if (clock.monotonicMs() >= deadlineMs) {
      const message = `Kafka did not show within ${cluster.requestTimeoutMs} ms that ${what}`
      throw new TimeoutError(message, { cause, context: { ...topicNameOf(kafka) } })
    }
    const pauseMs = backoffMs(attempt, firstPauseMs, longestPauseMs)
    await pauses.wait(pauseMs)
  }
}
