/** Background sends of 100-byte records into an embedded log that syncs: accepted and confirmed. */
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { type Row, target } from "../row.ts"
import { bareBatches } from "./bare-batches.ts"
import { durableArm } from "./durable-arm.ts"
import { acceptInGroups, payloadAt, recordBytes, records, sendOneByOne } from "./load.ts"

const maxInFlight = 5
const options = { background: { maxInFlight } }

export const background100b: Benchmark = { id: "background-100b", run }

async function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const count = quick ? 20_000 : 2_000_000
  const arms = [oneByOne(count), bareBatches(count, maxInFlight), inGroups(count), inBatches(count)]
  const [ours, bare, grouped, batched] = (await interleave(arms, quick ? 1 : 5, scratch)) as [
    Series,
    Series,
    Series,
    Series,
  ]
  return pairRow(ours, bare, {
    id: background100b.id,
    unit: "records/s",
    better: "higher",
    referenceName: `bare file, ${maxInFlight} outstanding`,
    peers: {
      ...ours.figures,
      "records/s, every 10,000th awaited": grouped.median,
      "CPU µs/record, every 10,000th awaited": grouped.cpuMicrosPerRecord ?? 0,
      "records/s in sendBatch of 1,000": batched.median,
      "CPU µs/record in sendBatch of 1,000": batched.cpuMicrosPerRecord ?? 0,
    },
    targets: [
      target("records/s accepted and confirmed", ours.median, "at least", 1_000_000),
      target("CPU µs/record", ours.cpuMicrosPerRecord ?? Number.POSITIVE_INFINITY, "at most", 1),
    ],
    method: `background with maxInFlight ${maxInFlight}, ${count} × ${recordBytes} B on 1 partition, single sends, the acceptance of each awaited, then flush; CPU of the whole process, the log's thread and its syncs included`,
  })
}

function oneByOne(count: number): Arm {
  return durableArm("send, awaited", count, {
    options,
    send: (producer, total) => sendOneByOne(total, (index) => producer.send(payloadAt(index))),
  })
}

function inGroups(count: number): Arm {
  return durableArm("send in groups", count, {
    options,
    send: (producer, total) => acceptInGroups(total, (index) => producer.send(payloadAt(index))),
  })
}

function inBatches(count: number): Arm {
  return durableArm("sendBatch", count, {
    options,
    send: async (producer, total) => {
      for (let left = total; left > 0; left -= records.length) await producer.sendBatch(records.slice(0, left))
    },
  })
}
