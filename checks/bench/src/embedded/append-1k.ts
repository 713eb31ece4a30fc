/** Batches of 100 records of 1 KiB, confirmed after the sync. The shared part of `append-1k-32` and `append-1k-1`. */
import { join } from "node:path"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { keepOutstanding } from "../outstanding.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { joined, payloads } from "../payload.ts"
import { openBareFile } from "../reference/bare-file.ts"
import { type Row, target } from "../row.ts"
import { directoryBytes } from "../scratch.ts"
import { perSecond, timed } from "../stopwatch.ts"
import { openLog } from "./log.ts"
import { sqliteTable } from "./reference-arms.ts"

const batchRecords = 100
const recordBytes = 1024
const records = payloads(batchRecords, recordBytes)
const chunk = joined(records)

export interface Append1k {
  readonly id: string
  /** `sendBatch` calls under way at any time. */
  readonly outstanding: number
  /** Over which balanced routing spreads the batches. */
  readonly partitions: number
  /** Batches of one measurement. */
  readonly batches: number
}

/** The benchmark of these settings. */
export function append1k(settings: Append1k): Benchmark {
  return { id: settings.id, run: (context) => run(settings, context) }
}

async function run(settings: Append1k, { scratch, quick }: BenchmarkContext): Promise<Row> {
  const { id, outstanding, partitions } = settings
  const batches = quick ? 40 : settings.batches
  const arms = [
    millrace({ ...settings, batches }),
    bareFile(batches, outstanding),
    sqliteTable(records, batches),
    millrace({ ...settings, batches, partitions: 1 }),
  ]
  const [ours, bare, table, single] = (await interleave(arms, quick ? 1 : 5, scratch)) as [
    Series,
    Series,
    Series,
    Series,
  ]
  const storeShare = ours.figures["store bytes / payload bytes"] as number
  return pairRow(ours, bare, {
    id,
    unit: "records/s",
    better: "higher",
    referenceName: "bare file",
    peers: {
      ...ours.figures,
      ...bare.figures,
      ...(partitions === 1 ? {} : { "records/s on 1 partition": single.median }),
      "records/s of a plain SQLite table": table.median,
    },
    targets: [
      target("× bare file", ours.median / bare.median, "at least", 0.5),
      target("store bytes / payload bytes", storeShare, "at most", 1.1),
    ],
    method: `sendBatch of ${batchRecords} × ${recordBytes} B, ${outstanding} outstanding over ${partitions} partition(s), ${batches} batches a round`,
  })
}

function millrace({ outstanding, partitions, batches }: Append1k): Arm {
  return {
    name: `millrace, ${partitions} partitions`,
    async measure(directory, share) {
      const count = Math.ceil(batches * share)
      const log = await openLog(directory, partitions)
      const producer = log.topic.producer({ batchLength: batchRecords })
      await producer.init()
      const appended = await timed(() => keepOutstanding(count, outstanding, () => producer.sendBatch(records)))
      const closed = await timed(() => log.close())
      return {
        value: perSecond(count * batchRecords, appended.ms),
        cpuMicrosPerRecord: appended.cpuMicros / (count * batchRecords),
        figures: {
          "records/s with the close counted in": perSecond(count * batchRecords, appended.ms + closed.ms),
          "store bytes / payload bytes": directoryBytes(directory) / (count * chunk.length),
        },
      }
    },
  }
}

function bareFile(batches: number, outstanding: number): Arm {
  return {
    name: "bare file",
    async measure(directory, share) {
      const count = Math.ceil(batches * share)
      const file = await openBareFile(join(directory, "bare"), chunk)
      try {
        const { ms, cpuMicros } = await timed(() => keepOutstanding(count, outstanding, () => file.append()))
        return {
          value: perSecond(count * batchRecords, ms),
          figures: { "CPU µs/record of the bare file": cpuMicros / (count * batchRecords) },
        }
      } finally {
        await file.close()
      }
    },
  }
}
