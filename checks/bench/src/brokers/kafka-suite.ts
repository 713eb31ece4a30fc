/** `npm run bench -- kafka` */
import { startKafka } from "@millrace/servers"
import type { Benchmark } from "../benchmark.ts"
import type { Arm } from "../pairs.ts"
import { target } from "../row.ts"
import { batchRecords, consumeArm, freshTopic, produceArm, recordBytes, sendArm } from "./arms.ts"
import { compare } from "./compare.ts"
import { outstandingCalls } from "./contender.ts"
import { javaProduce } from "./java-produce.ts"
import { kafkajs } from "./kafkajs-contender.ts"
import { millrace } from "./millrace-contender.ts"
import { outage } from "./outage.ts"
import { platformatic } from "./platformatic-contender.ts"

const ids = ["produce-100b", "send-1", "consume-100b", "outage-60s"] as const

export const kafkaIds: readonly string[] = ids

/** The benchmarks on a Kafka server. */
export function kafkaSuite(url: string): Benchmark[] {
  return [
    {
      id: ids[0],
      run(context) {
        const batches = context.quick ? 20 : 1000
        const java = javaArm(url, batches * batchRecords)
        return compare(context, {
          id: ids[0],
          unit: "records/s",
          ours: produceArm(millrace, url, batches),
          peers: [produceArm(kafkajs, url, batches), produceArm(platformatic, url, batches)],
          beside: [java],
          rounds: 5,
          method: `${batches * batchRecords} × ${recordBytes} B in calls of ${batchRecords}, ${outstandingCalls} outstanding, 1 partition, acks=all; ours idempotent. Java by its own account: linger.ms=5, batch.size=131072, JVM start not counted`,
          targets: (ours, best, all) => [
            target("× the best JavaScript peer", ours.median / best.median, "at least", 1.6),
            target("× Java", ours.median / (all.get(java.name)?.median ?? Number.NaN), "at least", 0.8),
            target("CPU µs/record", ours.cpuMicrosPerRecord ?? Number.NaN, "at most", 1.5),
          ],
        })
      },
    },
    {
      id: ids[1],
      run(context) {
        const sends = context.quick ? 50 : 2000
        return compare(context, {
          id: ids[1],
          unit: "sends/s",
          ours: sendArm(millrace, url, sends),
          peers: [sendArm(kafkajs, url, sends), sendArm(platformatic, url, sends)],
          rounds: 5,
          method: `${sends} sends of ${recordBytes} B, each awaited, 1 partition, acks=all`,
          targets: (ours, best) => [target("× the best peer", ours.median / best.median, "at least", 0.95)],
        })
      },
    },
    {
      id: ids[2],
      run(context) {
        const batches = context.quick ? 20 : 1000
        return compare(context, {
          id: ids[2],
          unit: "records/s",
          ours: consumeArm(millrace, url, batches),
          peers: [consumeArm(kafkajs, url, batches), consumeArm(platformatic, url, batches)],
          rounds: 5,
          method: `${batches * batchRecords} × ${recordBytes} B of 1 partition from the first on, written before with the same client; ours by next() in a loop, the others in a group of one, as they only have that`,
          targets: (ours, best) => [
            target("× the better peer", ours.median / best.median, "at least", 1.5),
            target("CPU µs/record", ours.cpuMicrosPerRecord ?? Number.NaN, "at most", 1),
          ],
        })
      },
    },
    outage(() => startKafka({ proxied: true })),
  ]
}

/** The topic is made by our client; the JVM's start does not count, since the tool tells its own rate. */
function javaArm(url: string, records: number): Arm {
  return {
    name: "Java's producer performance tool",
    async measure(_, share) {
      const topic = freshTopic()
      const contestant = await kafkajs.open(url, topic)
      await contestant.close()
      return { value: await javaProduce(url, topic, { records: Math.ceil(records * share), recordBytes }) }
    },
  }
}
