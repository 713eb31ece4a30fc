/** Arms that take every message of a queue of their own. */
import type { Message, QueueConsumer, QueueConsumerOptions, QueueOptions, Topic } from "millrace"
import type { Arm } from "../pairs.ts"
import { recordBytes } from "../producer/load.ts"
import { perSecond, timed } from "../stopwatch.ts"

let queues = 0

/** What an arm does with its queue. */
export interface Taking {
  readonly queue?: QueueOptions
  readonly consumer?: QueueConsumerOptions
  /** Takes and settles `count` messages, and answers how many bytes they had. */
  readonly take: (consumer: QueueConsumer, count: number) => Promise<number>
}

/** An arm over a topic that is filled. It fails when the bytes are not all there, or the queue has not settled every message. */
export function takingArm(
  name: string,
  of: { readonly count: number; readonly topic: () => Topic },
  { queue: options, consumer: consumerOptions, take }: Taking,
): Arm {
  return {
    name,
    async measure(_directory, share) {
      const count = Math.ceil((of.count * share) / 1000) * 1000
      const queue = of.topic().queue(`bench-${queues++}`, { maxAckPending: 10_000, ...options })
      const consumer = await queue.consumer(consumerOptions)
      let bytes = 0
      const { ms, cpuMicros } = await timed(async () => {
        bytes = await take(consumer, count)
      })
      await consumer.shutdown()
      const floor = (await queue.info()).partitions[0]?.floor
      await queue.delete()
      if (bytes !== count * recordBytes) throw new Error(`${name}: ${bytes} bytes taken of ${count * recordBytes}`)
      // What was read ahead of that went back.
      if (floor !== BigInt(count)) throw new Error(`${name}: all below ${floor} of ${count} messages are settled`)
      return { value: perSecond(count, ms), cpuMicrosPerRecord: cpuMicros / count }
    },
  }
}

/** The bytes of a message's payload. */
export function sizeOf({ payload }: Message): number {
  return payload?.length ?? 0
}
