/** Background sends with a confirmation each, into an embedded log that syncs. */
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { type Row, target } from "../row.ts"
import { bareBatches } from "./bare-batches.ts"
import { durableArm } from "./durable-arm.ts"
import { confirmInGroups, groupRecords, payloadAt, recordBytes } from "./load.ts"

const maxInFlight = 5

export const confirm100b: Benchmark = { id: "confirm-100b", run }

async function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const count = quick ? 20_000 : 1_000_000
  const arms = [confirmed(count), bareBatches(count, maxInFlight), direct(count)]
  const [ours, bare, awaited] = (await interleave(arms, quick ? 1 : 5, scratch)) as [Series, Series, Series]
  return pairRow(ours, bare, {
    id: confirm100b.id,
    unit: "records/s",
    better: "higher",
    referenceName: `bare file, ${maxInFlight} outstanding`,
    peers: {
      "CPU µs/record of the calling thread": ours.figures["CPU µs/record of the calling thread"] ?? 0,
      "records/s of a direct producer's send": awaited.median,
    },
    targets: [target("records/s", ours.median, "at least", 500_000)],
    method: `sendAndConfirm with maxInFlight ${maxInFlight}, ${count} × ${recordBytes} B on 1 partition, in groups of ${groupRecords} that are awaited as a whole`,
  })
}

function confirmed(count: number): Arm {
  return durableArm("sendAndConfirm", count, {
    options: { background: { maxInFlight } },
    send: (producer, total) => confirmInGroups(total, (index) => producer.sendAndConfirm(payloadAt(index))),
  })
}

function direct(count: number): Arm {
  return durableArm("send of a direct producer", count, {
    options: {},
    send: (producer, total) => confirmInGroups(total, (index) => producer.send(payloadAt(index))),
  })
}
