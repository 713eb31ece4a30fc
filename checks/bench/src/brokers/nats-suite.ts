/** `npm run bench -- nats` */
import { startNats } from "@millrace/servers"
import type { Benchmark } from "../benchmark.ts"
import { target } from "../row.ts"
import { batchRecords, consumeArm, produceArm, recordBytes, sendArm } from "./arms.ts"
import { compare } from "./compare.ts"
import { outstandingCalls } from "./contender.ts"
import { millraceBackground } from "./millrace-background.ts"
import { millrace } from "./millrace-contender.ts"
import { natsClient } from "./nats-contender.ts"
import { outage } from "./outage.ts"

const ids = ["produce-100b", "produce-100b-no-ids", "send-1", "consume-100b", "outage-60s"] as const

export const natsIds: readonly string[] = ids

const window = "nats.js publishes with 2,000 outstanding"

/** The benchmarks on a NATS server with JetStream. */
export function natsSuite(url: string): Benchmark[] {
  return [
    {
      id: ids[0],
      run(context) {
        const batches = context.quick ? 20 : 200
        return compare(context, {
          id: ids[0],
          unit: "records/s",
          ours: produceArm(millraceBackground("Millrace, in the background"), url, batches),
          peers: [produceArm(natsClient(true), url, batches)],
          beside: [produceArm(millrace, url, batches)],
          rounds: 5,
          method: `${batches * batchRecords} × ${recordBytes} B in batches of ${batchRecords}, message ids, 1 partition; in the background: confirmed as stored. Millrace: sendBatch with offsets, ${outstandingCalls} outstanding; ${window}`,
          targets: (ours, best) => [
            target("× the official windowed publish", ours.median / best.median, "at least", 3.5),
          ],
        })
      },
    },
    {
      id: ids[1],
      run(context) {
        const batches = context.quick ? 20 : 200
        return compare(context, {
          id: ids[1],
          unit: "records/s",
          ours: produceArm(
            millraceBackground("Millrace, in the background, no ids", { deduplicationWindowMs: 0 }),
            url,
            batches,
          ),
          peers: [produceArm(natsClient(false), url, batches)],
          rounds: 5,
          method: `as produce-100b without message ids; ${window}`,
          targets: (ours, best) => [
            target("× the official windowed publish", ours.median / best.median, "at least", 6),
          ],
        })
      },
    },
    {
      id: ids[2],
      run(context) {
        const sends = context.quick ? 50 : 2000
        return compare(context, {
          id: ids[2],
          unit: "sends/s",
          ours: sendArm(millrace, url, sends),
          peers: [sendArm(natsClient(true), url, sends)],
          rounds: 5,
          method: `${sends} sends of ${recordBytes} B, each awaited, message ids, 1 partition`,
          targets: (ours, best) => [target("× the best peer", ours.median / best.median, "at least", 0.95)],
        })
      },
    },
    {
      id: ids[3],
      run(context) {
        const batches = context.quick ? 20 : 200
        return compare(context, {
          id: ids[3],
          unit: "records/s",
          ours: consumeArm(millrace, url, batches),
          peers: [consumeArm(natsClient(true), url, batches)],
          rounds: 5,
          method: `${batches * batchRecords} × ${recordBytes} B of 1 partition from the first on; ours by next() in a loop, nats.js by consume with 10,000 messages ahead`,
          targets: (ours, best) => [target("× nats.js", ours.median / best.median, "at least", 1)],
        })
      },
    },
    outage(() => startNats({ proxied: true })),
  ]
}
