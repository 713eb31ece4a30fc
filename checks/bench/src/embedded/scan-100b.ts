/** 100-byte records in batches of 1,000 from the first offset to the end, looking at each payload. */
import { join } from "node:path"
import { embeddedDriver } from "@millrace/embedded"
import type { Topic } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { recordBytes, records } from "../producer/load.ts"
import { fileScanArm, scanArm } from "../reference/file-scan.ts"
import { type Row, target } from "../row.ts"
import { fillLog } from "./filled-log.ts"

const batchRecords = records.length

export const scan100b: Benchmark = { id: "scan-100b", run }

function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const batches = quick ? 50 : 2000
  return scratch.within(async (directory) => {
    const store = join(directory, "store")
    const file = join(directory, "file")
    const count = batches * batchRecords
    await using log = await fillLog(store, { count, file })
    const arms = [
      nextLoop(log.topic, count),
      fileScanArm(file, { count, recordBytes }),
      forAwait(log.topic, count),
      decode(store, count),
    ]
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

function nextLoop(topic: Topic, count: number): Arm {
  return scanArm("next()", { count, recordBytes }, async () => {
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
  return scanArm("for await", { count, recordBytes }, async () => {
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
  return scanArm("driver", { count, recordBytes }, async () => {
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
