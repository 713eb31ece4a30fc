/** Reading through the consumer layer alone, over a backend that serves from memory. */
import { type Client, openClient } from "@millrace/core"
import { systemClock, systemRandom } from "@millrace/runtime"
import type { Topic } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { recordBytes, records } from "../producer/load.ts"
import { type Row, target } from "../row.ts"
import { perSecond, timed } from "../stopwatch.ts"
import { batchAndCommit, commitEvery, forAwait, nextAndCommit, readingArm, runWith } from "./reading.ts"
import { servingSession } from "./serving-session.ts"

const disabled = { commitPolicy: { kind: "disabled" } } as const

export const layer: Benchmark = { id: "layer", run }

async function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const count = quick ? 20_000 : 3_000_000
  const session = servingSession(records, { partitions: 1, end: 1n << 40n })
  const client: Client = openClient(session, {}, { clock: systemClock, random: systemRandom })
  try {
    const topic = (): Topic => client.stream("bench").topic("layer")
    const arms = [
      readingArm("next", { count, topic, options: disabled }, nextAndCommit),
      plainLoop(count),
      readingArm("for await", { count, topic }, forAwait),
      readingArm("batches", { count, topic, options: disabled }, batchAndCommit),
      readingArm("run", { count, topic }, runWith(64, "none")),
      readingArm("run in order", { count, topic }, runWith(1, "partition")),
    ]
    const [ours, loop, iterated, batches, parallel, inOrder] = (await interleave(arms, quick ? 1 : 5, scratch)) as [
      Series,
      Series,
      Series,
      Series,
      Series,
      Series,
    ]
    return pairRow(ours, loop, {
      id: layer.id,
      unit: "messages/s",
      better: "higher",
      referenceName: "a promise a record, awaited",
      peers: {
        "messages/s of for await, policy polling": iterated.median,
        "messages/s of batches()": batches.median,
        "messages/s of run, concurrency 64, no order": parallel.median,
        "messages/s of run, concurrency 1": inOrder.median,
      },
      targets: [target("messages/s", ours.median, "at least", 3_000_000)],
      method: `${count} × ${recordBytes} B in batches of ${records.length} on 1 partition, from memory; next() and a commit every ${commitEvery}, the length of each payload looked at`,
    })
  } finally {
    await client.close()
  }
}

/** What no `next()` can do without: a promise of a result for each record, and its payload looked at. */
function plainLoop(count: number): Arm {
  return {
    name: "plain loop",
    async measure(_directory, share) {
      const total = Math.ceil(count * share)
      let bytes = 0
      const { ms } = await timed(async () => {
        for (let index = 0; index < total; index++) {
          const { value } = await Promise.resolve({ done: false, value: records[index % records.length] as Uint8Array })
          bytes += value.length
        }
      })
      if (bytes !== total * recordBytes) throw new Error("plain loop: bytes are missing")
      return { value: perSecond(total, ms) }
    },
  }
}
