/** Memory of a process that reads 10 million records, with the default read-ahead. */
import { join } from "node:path"
import { systemClock } from "@millrace/runtime"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { startChild } from "../child.ts"
import { fillLog } from "../embedded/filled-log.ts"
import { residentBytes } from "../process-memory.ts"
import { recordBytes } from "../producer/load.ts"
import { median, spread } from "../quantile.ts"
import { type Row, target } from "../row.ts"
import { sibling } from "../sibling.ts"
import { perSecond, timed } from "../stopwatch.ts"

const mebibyte = 1 << 20
const prefetchBytes = 16 * mebibyte
const sampleEveryMs = 10

export const memory10m: Benchmark = {
  id: "memory-10m",
  run({ scratch, quick }: BenchmarkContext): Promise<Row> {
    const count = quick ? 100_000 : 10_000_000
    return scratch.within(async (directory) => {
      const store = join(directory, "store")
      const log = await fillLog(store, { count })
      await log.close()
      const rounds: Round[] = []
      for (let round = 0; round < (quick ? 1 : 5); round++) rounds.push(await measure(store, count))
      return row(rounds, count)
    })
  },
}

/** One process that reads the whole log. */
interface Round {
  readonly grown: number
  readonly peak: number
  readonly rate: number
}

async function measure(store: string, count: number): Promise<Round> {
  const child = startChild(sibling(import.meta.url, "memory-10m.child"), [store, String(count), String(prefetchBytes)])
  await child.receive()
  const start = residentBytes(child.pid)
  let peak = start
  let done = false
  const look = (): void => {
    if (done) return
    peak = Math.max(peak, residentBytes(child.pid))
    systemClock.setTimer(sampleEveryMs, look)
  }
  const { ms } = await timed(async () => {
    child.send("read")
    look()
    await child.receive()
    done = true
  })
  await child.end()
  return { grown: (peak - start) / mebibyte, peak: peak / mebibyte, rate: perSecond(count, ms) }
}

function row(rounds: readonly Round[], count: number): Row {
  const limit = prefetchBytes / mebibyte + 64
  const grown = rounds.map((round) => round.grown)
  const ours = median(grown)
  const range = spread(grown)
  return {
    id: "memory-10m",
    unit: "MiB beyond start",
    better: "lower",
    ours,
    reference: limit,
    referenceName: "prefetchBytes and 64 MiB",
    ratio: ours / limit,
    peers: {
      "MiB at the peak": median(rounds.map((round) => round.peak)),
      "messages/s": median(rounds.map((round) => round.rate)),
    },
    cpuMicrosPerRecord: null,
    spread: {
      ours: range,
      reference: { min: limit, max: limit },
      ratio: { min: range.min / limit, max: range.max / limit },
    },
    targets: [target("MiB beyond start", ours, "at most", limit)],
    method: `RSS of a fresh process every ${sampleEveryMs} ms, beyond what it had when it was connected; ${count} × ${recordBytes} B by next(), a named consumer with policy polling and the default read-ahead`,
  }
}
