/** 100-byte records through `sendBatch` of 1,000, each awaited before the next. */
import { join } from "node:path"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { keepOutstanding } from "../outstanding.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { joined, payloads } from "../payload.ts"
import { openBareFile } from "../reference/bare-file.ts"
import { encodeInto } from "../reference/encoding.ts"
import { type Row, target } from "../row.ts"
import { perSecond, timed } from "../stopwatch.ts"
import { openLog } from "./log.ts"
import { sqliteTable } from "./reference-arms.ts"

const batchRecords = 1000
const recordBytes = 100
const records = payloads(batchRecords, recordBytes)
const chunk = joined(records)

export const append100b: Benchmark = { id: "append-100b", run }

async function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const batches = quick ? 40 : 1500
  const arms = [
    millrace(batches, 1),
    bareFile(batches, 1),
    sqliteTable(records, batches),
    millrace(batches, 5),
    bareFile(batches, 5),
    encoding(batches),
  ]
  const [ours, bare, table, five, bareFive, ceiling] = (await interleave(arms, quick ? 1 : 5, scratch)) as [
    Series,
    Series,
    Series,
    Series,
    Series,
    Series,
  ]
  return pairRow(ours, bare, {
    id: "append-100b",
    unit: "records/s",
    better: "higher",
    referenceName: "bare file",
    peers: {
      "records/s of a plain SQLite table": table.median,
      "records/s with 5 outstanding": five.median,
      "CPU µs/record with 5 outstanding": five.cpuMicrosPerRecord ?? 0,
      "records/s of the bare file with 5 outstanding": bareFive.median,
      "records/s of encoding alone": ceiling.median,
    },
    targets: [
      target("× bare file", ours.median / bare.median, "at least", 0.5),
      target("records/s", ours.median, "at least", 800_000),
      target("CPU µs/record", ours.cpuMicrosPerRecord ?? Number.POSITIVE_INFINITY, "at most", 1),
      target("× plain SQLite table", ours.median / table.median, "at least", 2),
    ],
    method: `sendBatch of ${batchRecords} × ${recordBytes} B, awaited one by one on 1 partition, ${batches} batches a round`,
  })
}

function millrace(batches: number, outstanding: number): Arm {
  return {
    name: `millrace, ${outstanding} outstanding`,
    async measure(directory, share) {
      const count = Math.ceil(batches * share)
      await using log = await openLog(directory, 1)
      const producer = log.topic.producer()
      await producer.init()
      const { ms, cpuMicros } = await timed(() =>
        keepOutstanding(count, outstanding, () => producer.sendBatch(records)),
      )
      return { value: perSecond(count * batchRecords, ms), cpuMicrosPerRecord: cpuMicros / (count * batchRecords) }
    },
  }
}

function bareFile(batches: number, outstanding: number): Arm {
  return {
    name: `bare file, ${outstanding} outstanding`,
    async measure(directory, share) {
      const count = Math.ceil(batches * share)
      const file = await openBareFile(join(directory, "bare"), chunk)
      try {
        const { ms } = await timed(() => keepOutstanding(count, outstanding, () => file.append()))
        return { value: perSecond(count * batchRecords, ms) }
      } finally {
        await file.close()
      }
    },
  }
}

function encoding(batches: number): Arm {
  return {
    name: "encoding alone",
    async measure(_directory, share) {
      const rounds = Math.ceil(batches * share)
      const { ms } = await timed(() => void encodeInto(records, rounds))
      return { value: perSecond(rounds * batchRecords, ms) }
    },
  }
}
