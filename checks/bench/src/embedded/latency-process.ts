/** From the call of `send` to the handler of the message, in one process, one message under way at a time. */
import { systemClock } from "@millrace/runtime"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { payloads } from "../payload.ts"
import { quantile } from "../quantile.ts"
import { type Row, target } from "../row.ts"
import { openLog } from "./log.ts"
import { bareWrite } from "./reference-arms.ts"

const record = payloads(1, 100)[0] as Uint8Array

export const latencyProcess: Benchmark = { id: "latency-process", run }

async function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const sends = quick ? 50 : 500
  const arms = [sendToHandler(sends), bareWrite(record, sends)]
  const [ours, bare] = (await interleave(arms, quick ? 1 : 5, scratch)) as [Series, Series]
  const beyond = ours.median - bare.median
  return pairRow(ours, bare, {
    id: "latency-process",
    unit: "ms, p50",
    better: "lower",
    referenceName: "write + fdatasync",
    peers: { "ms, p50 beyond the sync": beyond, ...ours.figures, ...bare.figures },
    targets: [target("ms, p50 beyond the sync", beyond, "below", 1)],
    method: `${sends} × 100 B a round on 1 partition, send to the body of for await; the next is sent when it arrived and was confirmed`,
  })
}

function sendToHandler(sends: number): Arm {
  return {
    name: "send to handler",
    async measure(directory, share) {
      await using log = await openLog(directory, 1)
      const producer = log.topic.producer()
      await producer.init()
      const consumer = log.topic.consumer(undefined, 0, { startAt: { kind: "first" } })
      let arrived = Promise.withResolvers<number>()
      const handling = (async () => {
        for await (const message of consumer) {
          if (message.payload?.length !== record.length) throw new Error("not the record that was sent")
          arrived.resolve(systemClock.monotonicMs())
        }
      })()
      handling.catch((error: unknown) => arrived.reject(error))
      const times: number[] = []
      for (let left = Math.ceil(sends * share); left > 0; left--) {
        arrived = Promise.withResolvers()
        const start = systemClock.monotonicMs()
        const sent = producer.send(record)
        const [end] = await Promise.all([arrived.promise, sent])
        times.push(end - start)
      }
      await consumer.shutdown()
      await handling
      return {
        value: quantile(times, 0.5),
        figures: { "ms, p99": quantile(times, 0.99), "ms, greatest": quantile(times, 1) },
      }
    },
  }
}
