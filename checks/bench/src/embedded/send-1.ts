/** Sends of one 100-byte record: awaited one by one, and not awaited with 1,000 waiting. */
import { join } from "node:path"
import { systemClock } from "@millrace/runtime"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { keepOutstanding } from "../outstanding.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { joined, payloads } from "../payload.ts"
import { quantile } from "../quantile.ts"
import { openBareFile } from "../reference/bare-file.ts"
import { type Row, target } from "../row.ts"
import { perSecond, timed } from "../stopwatch.ts"
import { openLog } from "./log.ts"
import { bareWrite } from "./reference-arms.ts"

const waiting = 1000
const records = payloads(waiting, 100)
const record = records[0] as Uint8Array

export const send1: Benchmark = { id: "send-1", run }

async function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const awaitedSends = quick ? 50 : 1000
  const waitingSends = quick ? 5_000 : 300_000
  const arms = [
    awaited(awaitedSends),
    bareWrite(record, awaitedSends),
    bareFile(awaitedSends),
    sliding(waitingSends),
    bursts(waitingSends),
  ]
  const [ours, bare, thread, window, burst] = (await interleave(arms, quick ? 1 : 5, scratch)) as [
    Series,
    Series,
    Series,
    Series,
    Series,
  ]
  return pairRow(ours, bare, {
    id: "send-1",
    unit: "ms, p50",
    better: "lower",
    referenceName: "write + fdatasync in the calling thread",
    peers: {
      ...ours.figures,
      ...bare.figures,
      "ms, p50 of a bare file in a worker thread": thread.median,
      "records/s not awaited, 1,000 waiting": window.median,
      "CPU µs/record not awaited, 1,000 waiting": window.cpuMicrosPerRecord ?? 0,
      "records/s in bursts of 1,000": burst.median,
    },
    targets: [
      target("× write + fdatasync, p50", ours.median / bare.median, "at most", 1.3),
      target("records/s not awaited, 1,000 waiting", window.median, "at least", 200_000),
    ],
    method: `send of 100 B on 1 partition; ${awaitedSends} awaited, then ${waitingSends} with ${waiting} waiting, a round`,
  })
}

/** The p50 of `send` through the public API, each awaited. */
export function awaited(sends: number): Arm {
  return {
    name: "awaited",
    async measure(directory, share) {
      const count = Math.ceil(sends * share)
      await using log = await openLog(directory, 1)
      const producer = log.topic.producer()
      await producer.init()
      const times: number[] = []
      const { ms, cpuMicros } = await timed(async () => {
        for (let index = 0; index < count; index++) {
          const start = systemClock.monotonicMs()
          await producer.send(record)
          times.push(systemClock.monotonicMs() - start)
        }
      })
      return {
        value: quantile(times, 0.5),
        cpuMicrosPerRecord: cpuMicros / count,
        figures: { "ms, p99": quantile(times, 0.99), "records/s awaited": perSecond(count, ms) },
      }
    },
  }
}

/** The p50 of the same bytes appended to a bare file in a worker thread. */
export function bareFile(appends: number): Arm {
  return {
    name: "bare file in a worker thread",
    async measure(directory, share) {
      const file = await openBareFile(join(directory, "bare"), joined([record]))
      try {
        const times: number[] = []
        for (let left = Math.ceil(appends * share); left > 0; left--) {
          const start = systemClock.monotonicMs()
          await file.append()
          times.push(systemClock.monotonicMs() - start)
        }
        return { value: quantile(times, 0.5) }
      } finally {
        await file.close()
      }
    },
  }
}

function sliding(sends: number): Arm {
  return {
    name: "not awaited",
    async measure(directory, share) {
      const count = Math.ceil(sends * share)
      await using log = await openLog(directory, 1)
      const producer = log.topic.producer()
      await producer.init()
      const { ms, cpuMicros } = await timed(() => keepOutstanding(count, waiting, () => producer.send(record)))
      return { value: perSecond(count, ms), cpuMicrosPerRecord: cpuMicros / count }
    },
  }
}

function bursts(sends: number): Arm {
  return {
    name: "bursts",
    async measure(directory, share) {
      const rounds = Math.ceil((sends * share) / waiting)
      await using log = await openLog(directory, 1)
      const producer = log.topic.producer()
      await producer.init()
      const { ms } = await timed(async () => {
        for (let round = 0; round < rounds; round++) await Promise.all(records.map((each) => producer.send(each)))
      })
      return { value: perSecond(rounds * waiting, ms) }
    },
  }
}
