/** Background sends that are accepted only when the spool has them on the disk. */
import { join } from "node:path"
import { connect } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { type Row, target } from "../row.ts"
import { perSecond, timed } from "../stopwatch.ts"
import { bareBatches } from "./bare-batches.ts"
import { acceptInGroups, groupRecords, payloadAt, recordBytes } from "./load.ts"

export const spool100b: Benchmark = { id: "spool-100b", run }

async function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const count = quick ? 20_000 : 600_000
  const arms = [spooled(count), bareBatches(count, 5)]
  const [ours, bare] = (await interleave(arms, quick ? 1 : 5, scratch)) as [Series, Series]
  return pairRow(ours, bare, {
    id: spool100b.id,
    unit: "records/s",
    better: "higher",
    referenceName: "bare file, 5 outstanding",
    peers: ours.figures,
    targets: [target("records/s accepted", ours.median, "at least", 300_000)],
    method: `background with a spool, ${count} × ${recordBytes} B in groups of ${groupRecords}, each group accepted before the next; forwarded to a log in memory meanwhile. CPU counts the forwarding too`,
  })
}

function spooled(count: number): Arm {
  return {
    name: "spool",
    async measure(directory, share) {
      const total = Math.ceil(count * share)
      await using client = await connect("memory:")
      const topic = client.stream("bench").topic("spooled")
      await topic.ensure(1)
      const producer = topic.producer({ background: { spool: join(directory, "spool") } })
      await producer.init()
      let acceptedMs = 0
      const { ms, cpuMicros } = await timed(async () => {
        acceptedMs = (await timed(() => acceptInGroups(total, (index) => producer.send(payloadAt(index))))).ms
        await producer.flush()
      })
      await producer.shutdown()
      const [partition] = await topic.watermarks()
      if (partition?.end !== BigInt(total)) throw new Error(`${partition?.end} of ${total} spooled records arrived`)
      return {
        value: perSecond(total, acceptedMs),
        cpuMicrosPerRecord: cpuMicros / total,
        figures: { "records/s accepted, forwarded and confirmed": perSecond(total, ms) },
      }
    },
  }
}
