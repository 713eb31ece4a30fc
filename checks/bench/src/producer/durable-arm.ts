/** Sends into an embedded log that syncs, from the first call to the last confirmation. */
import type { Producer, ProducerOptions } from "millrace"
import { openLog } from "../embedded/log.ts"
import type { Arm } from "../pairs.ts"
import { perSecond, timed } from "../stopwatch.ts"

/** What one arm does with its producer. */
export interface DurableLoad {
  readonly options: ProducerOptions
  /** Sends so many records; what it does not wait for is flushed behind it. */
  readonly send: (producer: Producer, count: number) => Promise<void>
}

/**
 * Measures a load on a log of one partition. The figure is accepted and confirmed records; how many were accepted a second, before the
 * flush, and the CPU of the calling thread are told besides. It fails when the log does not hold every record.
 */
export function durableArm(name: string, count: number, load: DurableLoad): Arm {
  return {
    name,
    async measure(directory, share) {
      const total = Math.ceil(count * share)
      await using log = await openLog(directory, 1)
      const producer = log.topic.producer(load.options)
      await producer.init()
      const thread = process.threadCpuUsage()
      let acceptedMs = 0
      const { ms, cpuMicros } = await timed(async () => {
        acceptedMs = (await timed(() => load.send(producer, total))).ms
        await producer.flush()
      })
      const used = process.threadCpuUsage(thread)
      await checkEnd(log.topic, total)
      return {
        value: perSecond(total, ms),
        cpuMicrosPerRecord: cpuMicros / total,
        figures: {
          "records/s accepted": perSecond(total, acceptedMs),
          "CPU µs/record of the calling thread": (used.user + used.system) / total,
        },
      }
    },
  }
}

async function checkEnd(topic: Awaited<ReturnType<typeof openLog>>["topic"], total: number): Promise<void> {
  const [partition] = await topic.watermarks()
  if (partition?.end !== BigInt(total)) throw new Error(`the log ends at ${partition?.end} behind ${total} records`)
}
