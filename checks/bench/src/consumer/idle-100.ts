/** CPU of a consumer that waits on 100 partitions with nothing in them. */
import { systemClock } from "@millrace/runtime"
import { connect } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { startChild } from "../child.ts"
import { type Row, target } from "../row.ts"
import { sibling } from "../sibling.ts"
import { type GroupBackend, onEachBackend } from "./backends.ts"

const partitions = 100
const limit = 1
/** What follows the start (the first assignment, compiled code) does not count. */
const settleMs = 3_000

interface Idle {
  readonly backend: string
  readonly percent: number
}

export const idle100: Benchmark = {
  id: "idle-100",
  async run({ scratch, quick }: BenchmarkContext): Promise<Row> {
    const seconds = quick ? 2 : 30
    return row(await onEachBackend(scratch, (backend) => measure(backend, seconds)), seconds)
  },
}

async function measure({ name, url }: GroupBackend, seconds: number): Promise<Idle> {
  await using client = await connect(url, { stream: "bench" })
  const topic = client.topic(`idle-${process.pid}`)
  await topic.ensure(partitions)
  const child = startChild(sibling(import.meta.url, "idle-100.child"), [url, topic.name])
  await child.receive()
  const usage = async (): Promise<number> => {
    child.send("usage")
    return (await child.receive()) as number
  }
  await elapse(settleMs)
  const before = await usage()
  const startMs = systemClock.monotonicMs()
  await elapse(seconds * 1000)
  const used = (await usage()) - before
  const percent = used / (systemClock.monotonicMs() - startMs) / 10
  await child.end()
  await topic.delete()
  return { backend: name, percent }
}

function elapse(ms: number): Promise<void> {
  return new Promise((resolve) => void systemClock.setTimer(ms, resolve))
}

function row(idle: readonly Idle[], seconds: number): Row {
  const percents = idle.map((each) => each.percent)
  const worst = Math.max(...percents)
  const range = { min: Math.min(...percents), max: worst }
  return {
    id: "idle-100",
    unit: "% of one core",
    better: "lower",
    ours: worst,
    reference: limit,
    referenceName: "1 % of one core",
    ratio: worst / limit,
    peers: Object.fromEntries(idle.map((each) => [`% of one core, ${each.backend}`, each.percent])),
    cpuMicrosPerRecord: null,
    spread: {
      ours: range,
      reference: { min: limit, max: limit },
      ratio: { min: range.min / limit, max: worst / limit },
    },
    targets: idle.map((each) => target(`% of one core, ${each.backend}`, each.percent, "below", limit)),
    method: `a group consumer alone in its process, with ${partitions} empty partitions and a next() that waits; user and system time of the process over ${seconds} s, the log's thread included; one round a backend`,
  }
}
