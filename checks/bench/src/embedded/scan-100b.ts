/** 100-byte records in batches of 1,000 from the first offset to the end, looking at each payload. */
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { embeddedDriver } from "@millrace/embedded"
import type { Topic } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { keepOutstanding } from "../outstanding.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { joined, payloads } from "../payload.ts"
import { scanFile } from "../reference/file-scan.ts"
import { type Row, target } from "../row.ts"
import { perSecond, timed } from "../stopwatch.ts"
import { type Log, openLog } from "./log.ts"

const batchRecords = 1000
const recordBytes = 100

export const scan100b: Benchmark = { id: "scan-100b", run }

function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const batches = quick ? 50 : 2000
  return scratch.within(async (directory) => {
    const store = join(directory, "store")
    const file = join(directory, "file")
    await using log = await fill(store, file, batches)
    const count = batches * batchRecords
    const arms = [nextLoop(log.topic, count), fileScan(file, count), forAwait(log.topic, count), decode(store, count)]
    const [next, bare, iterated, decoded] = (await interleave(arms, quick ? 1 : 5, scratch)) as [
      Series,
      Series,
      Series,
      Series,
    ]
    return pairRow(next, bare, {
      id: "scan-100b",
      unit: "records/s",
      better: "higher",
      referenceName: "the same bytes from a file",
      peers: {
        "records/s of for await": iterated.median,
        "CPU µs/record of for await": iterated.cpuMicrosPerRecord ?? 0,
        "records/s of the driver's batches, decoded": decoded.median,
        "CPU µs/record of the driver's batches, decoded": decoded.cpuMicrosPerRecord ?? 0,
      },
      targets: [
        target("records/s of next()", next.median, "at least", 4_000_000),
        target("records/s of the driver's batches, decoded", decoded.median, "at least", 4_000_000),
      ],
      method: `${count} × ${recordBytes} B in batches of ${batchRecords} on 1 partition; next() in a loop, length and first byte of each payload`,
    })
  })
}

/** Writes the store and, into `file`, the same payloads one behind the other. */
async function fill(store: string, file: string, batches: number): Promise<Log> {
  const records = payloads(batchRecords, recordBytes)
  const chunk = joined(records)
  for (let batch = 0; batch < batches; batch++) writeFileSync(file, chunk, { flag: batch === 0 ? "wx" : "a" })
  const log = await openLog(store, 1)
  const producer = log.topic.producer()
  await keepOutstanding(batches, 5, () => producer.sendBatch(records))
  return log
}

/** An arm that reads all `count` records; the warm-up does too, since a scan has no smaller form. */
function scan(name: string, count: number, read: () => Promise<number>): Arm {
  return {
    name,
    async measure() {
      let bytes = 0
      const { ms, cpuMicros } = await timed(async () => {
        bytes = await read()
      })
      if (bytes !== count * recordBytes) throw new Error(`${name}: ${bytes} bytes read of ${count * recordBytes}`)
      return { value: perSecond(count, ms), cpuMicrosPerRecord: cpuMicros / count }
    },
  }
}

function fileScan(file: string, count: number): Arm {
  return scan("file", count, () => scanFile(file))
}

function nextLoop(topic: Topic, count: number): Arm {
  return scan("next()", count, async () => {
    await using consumer = topic.consumer(undefined, 0, { startAt: { kind: "first" } })
    let bytes = 0
    let seen = 0
    for (let left = count; left > 0; left--) {
      const { value } = await consumer.next()
      const payload = value?.payload as Uint8Array
      bytes += payload.length
      seen += payload[0] as number
    }
    return checked(bytes, seen)
  })
}

function forAwait(topic: Topic, count: number): Arm {
  return scan("for await", count, async () => {
    await using consumer = topic.consumer(undefined, 0, { startAt: { kind: "first" } })
    let bytes = 0
    let seen = 0
    let left = count
    for await (const message of consumer) {
      const payload = message.payload as Uint8Array
      bytes += payload.length
      seen += payload[0] as number
      if (--left === 0) break
    }
    return checked(bytes, seen)
  })
}

function decode(store: string, count: number): Arm {
  return scan("driver", count, async () => {
    const target = { scheme: "file", hosts: [], path: store, options: {} } as const
    const session = await embeddedDriver.connect(target, { timeoutMs: 10_000 })
    try {
      const name = { stream: "bench", topic: "records" }
      const { lineage } = await session.catalog.describeTopic(name)
      const reader = session.log.openReader({ isolation: "committed" })
      reader.set([{ ...name, partition: 0, offset: 0n, lineage }])
      const limits = { maxRecords: 10 * batchRecords, maxBytes: 4 << 20, minRecords: 1, maxWaitMs: 1000 }
      let bytes = 0
      let seen = 0
      // The next poll is under way while the last one is decoded, as the consumer does it.
      let poll = reader.next(limits)
      for (let left = count; left > 0; ) {
        const parts = await poll
        poll = reader.next(limits)
        for (const part of parts) {
          if (part.error !== undefined) throw part.error
          for (const batch of part.batches) {
            for (let index = 0; index < batch.count; index++) {
              const payload = batch.payload(index) as Uint8Array
              bytes += payload.length
              seen += payload[0] as number
            }
            left -= batch.count
          }
        }
      }
      await Promise.all([reader.close(), poll])
      return checked(bytes, seen)
    } finally {
      await session.close()
    }
  })
}

/** The bytes; the sum of what was looked at only has to be used, so that no compiler leaves the look out. */
function checked(bytes: number, seen: number): number {
  if (Number.isNaN(seen)) throw new Error("a payload was empty")
  return bytes
}
