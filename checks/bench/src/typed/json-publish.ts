/** A typed producer of JSON, beside a program that calls JSON.stringify itself and sends bytes. */
import { Json } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { openLog } from "../embedded/log.ts"
import { keepOutstanding } from "../outstanding.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import type { Row } from "../row.ts"
import { perSecond, timed } from "../stopwatch.ts"
import { meanBytes } from "./json-reader.ts"
import { decodeFlight, encoded, flights } from "./values.ts"

export const jsonPublish: Benchmark = { id: "json-publish", run }

const codec = new Json(decodeFlight)

async function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const batches = quick ? 10 : 500
  const utf8 = new TextEncoder()
  const arms = [
    arm("typed", batches, (topic) => {
      const producer = topic.json(codec).producer()
      return { send: () => producer.sendBatch(flights), shutdown: () => producer.shutdown() }
    }),
    arm("bytes", batches, (topic) => {
      const producer = topic.producer()
      const send = (): Promise<unknown> =>
        producer.sendBatch(flights.map((flight) => utf8.encode(JSON.stringify(flight))))
      return { send, shutdown: () => producer.shutdown() }
    }),
  ]
  const [ours, bare] = (await interleave(arms, quick ? 1 : 5, scratch)) as [Series, Series]
  return pairRow(ours, bare, {
    id: jsonPublish.id,
    unit: "records/s",
    better: "higher",
    referenceName: "JSON.stringify and sendBatch of bytes",
    peers: {},
    targets: [],
    method: `${batches} batches of ${flights.length} values, ${meanBytes(encoded((flight) => codec.encode(flight)))} B each as JSON, 5 batches under way, 1 partition of an embedded log that syncs`,
  })
}

type Topic = Awaited<ReturnType<typeof openLog>>["topic"]

function arm(
  name: string,
  batches: number,
  open: (topic: Topic) => { readonly send: () => Promise<unknown>; readonly shutdown: () => Promise<void> },
): Arm {
  return {
    name,
    async measure(directory, share) {
      const total = Math.ceil(batches * share)
      await using log = await openLog(directory, 1)
      const { send, shutdown } = open(log.topic)
      const { ms, cpuMicros } = await timed(async () => {
        await keepOutstanding(total, 5, send)
      })
      await shutdown()
      const count = total * flights.length
      const [partition] = await log.topic.watermarks()
      if (partition?.end !== BigInt(count)) throw new Error(`the log ends at ${partition?.end} behind ${count} records`)
      return { value: perSecond(count, ms), cpuMicrosPerRecord: cpuMicros / count }
    },
  }
}
