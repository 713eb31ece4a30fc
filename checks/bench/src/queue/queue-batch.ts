/** A work queue whose messages are processed in batches. */
import { join } from "node:path"
import type { QueueConsumer, Topic } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { batchAndCommit, readingArm } from "../consumer/reading.ts"
import { fillLog } from "../embedded/filled-log.ts"
import { interleave, pairRow, type Series } from "../pairs.ts"
import { recordBytes, records } from "../producer/load.ts"
import { type Row, target } from "../row.ts"
import { sizeOf, takingArm } from "./taking-arm.ts"

export const queueBatch: Benchmark = { id: "queue-batch", run }

const size = 1000

function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const count = quick ? 10_000 : 1_000_000
  return scratch.within(async (directory) => {
    await using log = await fillLog(join(directory, "store"), { count })
    const of = { count, topic: (): Topic => log.topic }
    const arms = [
      takingArm("processBatch, explicit", of, { take: inBatches }),
      readingArm("batches", { ...of, options: { commitPolicy: { kind: "disabled" } } }, batchAndCommit),
      takingArm("processBatch, all", of, { queue: { ackPolicy: "all" }, take: inBatches }),
    ]
    const [ours, plain, all] = (await interleave(arms, quick ? 1 : 5, scratch)) as [Series, Series, Series]
    return pairRow(ours, plain, {
      id: queueBatch.id,
      unit: "messages/s",
      better: "higher",
      referenceName: "consumer.batches(), a commit a batch",
      peers: { 'messages/s with ack policy "all"': all.median },
      targets: [target("messages/s", ours.median, "at least", 200_000)],
      method: `${count} × ${recordBytes} B in batches of ${records.length} on 1 partition of an embedded log; processBatch(${size}) with a synchronous handler; ack policy explicit`,
    })
  })
}

async function inBatches(consumer: QueueConsumer, count: number): Promise<number> {
  let bytes = 0
  for (let left = count; left > 0; ) {
    const results = await consumer.processBatch(Math.min(size, left), sizeOf)
    for (const result of results) {
      if (result.status === "rejected") throw result.reason
      bytes += result.value
    }
    left -= results.length
  }
  return bytes
}
