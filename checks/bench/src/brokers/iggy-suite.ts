/** `npm run bench -- iggy`: no other client is measured, since none of the registries' speaks this server's protocol. */
import { startIggy } from "@millrace/servers"
import type { Benchmark } from "../benchmark.ts"
import { target } from "../row.ts"
import { batchRecords, consumeArm, produceArm, recordBytes, sendArm } from "./arms.ts"
import { compare } from "./compare.ts"
import { outstandingCalls } from "./contender.ts"
import { millraceBackground } from "./millrace-background.ts"
import { millrace } from "./millrace-contender.ts"
import { outage } from "./outage.ts"

const ids = ["produce-100b", "send-1", "consume-100b", "outage-60s"] as const

export const iggyIds: readonly string[] = ids

/** The benchmarks on an Iggy server. */
export function iggySuite(url: string): Benchmark[] {
  const batchesOf = (quick: boolean): number => (quick ? 20 : 1000)
  return [
    {
      id: ids[0],
      run: (context) =>
        compare(context, {
          id: ids[0],
          unit: "records/s",
          ours: produceArm(millraceBackground("Millrace, in the background"), url, batchesOf(context.quick)),
          peers: [],
          beside: [produceArm(millrace, url, batchesOf(context.quick))],
          rounds: 5,
          method: `${batchesOf(context.quick) * batchRecords} × ${recordBytes} B in calls of ${batchRecords}, ${outstandingCalls} outstanding, 1 partition; in the background, and beside it by direct sends`,
          targets: (ours) => [
            target("records/s", ours.median, "at least", 400_000),
            target("CPU µs/record", ours.cpuMicrosPerRecord ?? Number.NaN, "at most", 1.5),
          ],
        }),
    },
    {
      id: ids[1],
      run: (context) =>
        compare(context, {
          id: ids[1],
          unit: "sends/s",
          ours: sendArm(millrace, url, context.quick ? 50 : 2000),
          peers: [],
          rounds: 5,
          method: `sends of ${recordBytes} B, each awaited, 1 partition`,
          targets: () => [],
        }),
    },
    {
      id: ids[2],
      run: (context) =>
        compare(context, {
          id: ids[2],
          unit: "records/s",
          ours: consumeArm(millrace, url, batchesOf(context.quick)),
          peers: [],
          rounds: 5,
          method: `${batchesOf(context.quick) * batchRecords} × ${recordBytes} B of 1 partition from the first on, by next() in a loop`,
          targets: (ours) => [
            target("records/s", ours.median, "at least", 800_000),
            target("CPU µs/record", ours.cpuMicrosPerRecord ?? Number.NaN, "at most", 1),
          ],
        }),
    },
    outage(() => startIggy({ proxied: true })),
  ]
}
