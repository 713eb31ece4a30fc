/** The handler runner with an async handler, 64 at once, over an embedded log. */
import { join } from "node:path"
import type { Consumer, Topic } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { fillLog } from "../embedded/filled-log.ts"
import { interleave, pairRow, type Series } from "../pairs.ts"
import { recordBytes, records } from "../producer/load.ts"
import { type Row, target } from "../row.ts"
import { readingArm, runWith } from "./reading.ts"

export const run64: Benchmark = { id: "run-64", run }

function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const count = quick ? 20_000 : 2_000_000
  return scratch.within(async (directory) => {
    await using log = await fillLog(join(directory, "store"), { count })
    const of = { count, topic: (): Topic => log.topic }
    const arms = [
      readingArm("run, no order", of, runWith(64, "none")),
      readingArm("for await", of, awaitedHandler),
      readingArm("run, order of keys", of, runWith(64, "key")),
      readingArm("run, order of partitions", of, runWith(64, "partition")),
    ]
    const [ours, loop, keys, partitions] = (await interleave(arms, quick ? 1 : 5, scratch)) as [
      Series,
      Series,
      Series,
      Series,
    ]
    return pairRow(ours, loop, {
      id: run64.id,
      unit: "messages/s",
      better: "higher",
      referenceName: "for await that awaits the same handler",
      peers: {
        'messages/s with order "key" (records without a key: by partition)': keys.median,
        'messages/s with order "partition" (one partition: one at a time)': partitions.median,
      },
      targets: [target("messages/s", ours.median, "at least", 400_000)],
      method: `${count} × ${recordBytes} B in batches of ${records.length} on 1 partition of an embedded log; run with concurrency 64, order "none", policy polling, a handler that awaits once`,
    })
  })
}

async function awaitedHandler(consumer: Consumer, count: number): Promise<number> {
  let bytes = 0
  let left = count
  const handler = async (payload: Uint8Array | null): Promise<void> => {
    bytes += payload?.length ?? 0
    await undefined
  }
  for await (const message of consumer) {
    await handler(message.payload)
    if (--left === 0) break
  }
  return bytes
}
