/** A work queue whose messages are acknowledged one by one. */
import { join } from "node:path"
import type { QueueConsumer, Topic } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { readingArm, runWith } from "../consumer/reading.ts"
import { fillLog } from "../embedded/filled-log.ts"
import { interleave, pairRow, type Series } from "../pairs.ts"
import { recordBytes, records } from "../producer/load.ts"
import { type Row, target } from "../row.ts"
import { sizeOf, takingArm } from "./taking-arm.ts"

export const queueExplicit: Benchmark = { id: "queue-explicit", run }

const pulled = 500

function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const count = quick ? 10_000 : 500_000
  return scratch.within(async (directory) => {
    await using log = await fillLog(join(directory, "store"), { count })
    const of = { count, topic: (): Topic => log.topic }
    const arms = [
      takingArm("pull and ack", of, { take: pullAndAck }),
      readingArm("consumer.run", of, runWith(64, "none")),
      takingArm("queue.run", of, { take: runAndAck }),
      takingArm("process", { ...of, count: Math.ceil(count / 20) }, { take: processOne }),
    ]
    const [ours, plain, running, single] = (await interleave(arms, quick ? 1 : 5, scratch)) as [
      Series,
      Series,
      Series,
      Series,
    ]
    return pairRow(ours, plain, {
      id: queueExplicit.id,
      unit: "messages/s",
      better: "higher",
      referenceName: "consumer.run, 64 at once, which stores an offset a poll",
      peers: {
        "messages/s of queue.run, 64 at once": running.median,
        "messages/s of process, one after the other": single.median,
      },
      targets: [target("messages/s", ours.median, "at least", 50_000)],
      method: `${count} × ${recordBytes} B in batches of ${records.length} on 1 partition of an embedded log; pull of ${pulled}, ack() of each, all awaited before the next pull; ack policy explicit`,
    })
  })
}

async function pullAndAck(consumer: QueueConsumer, count: number): Promise<number> {
  let bytes = 0
  for (let left = count; left > 0; ) {
    const messages = await consumer.pull({ max: Math.min(pulled, left) })
    const acks = messages.map((message) => {
      bytes += sizeOf(message)
      return message.ack()
    })
    if ((await Promise.all(acks)).includes(false)) throw new Error("an ack does not count")
    left -= messages.length
  }
  return bytes
}

async function runAndAck(consumer: QueueConsumer, count: number): Promise<number> {
  let bytes = 0
  let begun = 0
  let left = count
  await consumer.run(
    async (message) => {
      // What is started beside the last ones goes back.
      if (++begun > count) {
        await message.nak()
        return
      }
      bytes += sizeOf(message)
      await undefined
      if (--left === 0) void consumer.shutdown()
    },
    { concurrency: 64 },
  )
  return bytes
}

async function processOne(consumer: QueueConsumer, count: number): Promise<number> {
  let bytes = 0
  for (let left = count; left > 0; left--) bytes += await consumer.process(sizeOf)
  return bytes
}
