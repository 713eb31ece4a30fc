import type { QueueConsumerOptions, QueueOptions } from "@millrace/core"
import type { Chance } from "../chance.ts"
import type { QueuePlace } from "./queue-program.ts"

/** Where messages go of which the deliveries are used up. */
export const deadTopicName: string = "dead"

/** One or two queues over a topic, each with options of its own. */
export function placesOf(chance: Chance, topic: string): readonly QueuePlace[] {
  return Array.from({ length: chance.of([1, 1, 2]) }, (_, index) => placeOf(chance, topic, `q${index}`))
}

function placeOf(chance: Chance, topic: string, queue: string): QueuePlace {
  const ackPolicy = chance.weighted([
    [7, "explicit"],
    [2, "all"],
    [1, "none"],
  ] as const)
  const consumer: QueueConsumerOptions = {
    ...(chance.happens(0.3) && ackPolicy === "explicit" ? { prefetch: chance.of([0, 1, 5, 100]) } : {}),
    ...(chance.happens(0.2) ? { autoExtend: false } : {}),
    ...(chance.happens(0.2) && ackPolicy !== "all" ? { nakOnError: false } : {}),
    ...(chance.happens(0.3) ? { confirmAcks: true } : {}),
    ...(chance.happens(0.3) ? { batchTimeoutMs: chance.of([0, 500]) } : {}),
  }
  if (ackPolicy === "none") return { topic, queue, options: { ackPolicy }, consumer, deadTopic: undefined }
  const limit = chance.of([undefined, undefined, 1, 2, 4])
  const waits = chance.weighted<Pick<QueueOptions, "ackWaitMs" | "backoffMs">>([
    [1, {}],
    [4, { ackWaitMs: chance.of([1000, 2000, 10_000]) }],
    [1, { backoffMs: [1000, 5000].slice(0, limit ?? 2) }],
  ])
  const isBuried = limit !== undefined && chance.happens(0.7)
  const options: QueueOptions = {
    ackPolicy,
    ...waits,
    ...(limit === undefined ? {} : { maxDeliver: limit }),
    ...(chance.happens(0.4) ? { maxAckPending: chance.of([1, 5, 100]) } : {}),
  }
  return { topic, queue, options, consumer, deadTopic: isBuried ? deadTopicName : undefined }
}
