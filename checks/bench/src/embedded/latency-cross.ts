/** From the call of `send` in one process to the handler in another, one message under way at a time. */
import { seededRandom, systemClock } from "@millrace/runtime"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { startChild } from "../child.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { payloads } from "../payload.ts"
import { quantile } from "../quantile.ts"
import { type Row, target } from "../row.ts"
import { sibling } from "../sibling.ts"
import { openLog } from "./log.ts"
import { bareWrite } from "./reference-arms.ts"

const recordBytes = 100

/** The longest pause before a send, so that the sends do not fall into step with anything in the receiver. */
const longestPauseMs = 4

export const latencyCross: Benchmark = { id: "latency-cross", run }

async function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const sends = quick ? 20 : 500
  const arms = [acrossProcesses(sends), bareWrite(payloads(1, recordBytes)[0] as Uint8Array, sends)]
  const [ours, bare] = (await interleave(arms, quick ? 1 : 5, scratch)) as [Series, Series]
  const beyond = ours.median - bare.median
  return pairRow(ours, bare, {
    id: "latency-cross",
    unit: "ms, p50",
    better: "lower",
    referenceName: "write + fdatasync",
    peers: { "ms, p50 beyond the sync": beyond, ...ours.figures, ...bare.figures },
    targets: [target("ms, p50 beyond the sync", beyond, "below", 2)],
    method: `${sends} × ${recordBytes} B a round on 1 partition, send to the body of for await in another process (CLOCK_MONOTONIC in both), 0 to ${longestPauseMs} ms apart`,
  })
}

function acrossProcesses(sends: number): Arm {
  return {
    name: "across processes",
    async measure(directory, share) {
      await using log = await openLog(directory, 1)
      const producer = log.topic.producer()
      await producer.init()
      const receiver = startChild(sibling(import.meta.url, "latency-cross.child"), [directory])
      await receiver.receive()
      const random = seededRandom(sends)
      const record = new Uint8Array(recordBytes)
      const view = new DataView(record.buffer)
      const times: number[] = []
      for (let left = Math.ceil(sends * share); left > 0; left--) {
        await pause((random.uint32() / 2 ** 32) * longestPauseMs)
        view.setBigUint64(0, process.hrtime.bigint(), true)
        const [nanos] = await Promise.all([receiver.receive(), producer.send(record)])
        times.push((nanos as number) / 1e6)
      }
      await receiver.end()
      return {
        value: quantile(times, 0.5),
        figures: { "ms, p99": quantile(times, 0.99), "ms, greatest": quantile(times, 1) },
      }
    },
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => systemClock.setTimer(ms, resolve))
}
