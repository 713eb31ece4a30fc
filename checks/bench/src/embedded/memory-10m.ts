/** Anonymous memory of a process that writes and then reads 10 million 100-byte records, beyond what it had before it connected. */
import { systemClock } from "@millrace/runtime"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { type Child, startChild } from "../child.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { anonymousBytes } from "../process-memory.ts"
import { type Row, target } from "../row.ts"
import { sibling } from "../sibling.ts"
import { perSecond, timed } from "../stopwatch.ts"

const sampleEveryMs = 10
const mebibyte = 1 << 20

export const memory10m: Benchmark = { id: "memory-10m", run }

async function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const records = quick ? 100_000 : 10_000_000
  const arms = [inProcess("memory-10m-log.child", records), inProcess("memory-10m-file.child", records)]
  const [ours, bare] = (await interleave(arms, 1, scratch)) as [Series, Series]
  return pairRow(ours, bare, {
    id: "memory-10m",
    unit: "MiB, peak beyond start",
    better: "lower",
    referenceName: "a process that writes and reads a bare file",
    peers: ours.figures,
    targets: [target("MiB, peak beyond start", ours.median, "below", 128)],
    method: `RssAnon of a fresh process every ${sampleEveryMs} ms; ${records} × 100 B by sendBatch of 1,000 with 5 outstanding, then all read by next()`,
  })
}

/** An arm that runs a module in a fresh process: `ready`, then on `write` and on `read` it does so and answers. */
function inProcess(module: string, records: number): Arm {
  return {
    name: module,
    async measure(directory, share) {
      const count = Math.ceil(records * share)
      const child = startChild(sibling(import.meta.url, module), [directory, String(count)])
      await child.receive()
      const start = anonymousBytes(child.pid)
      const writing = await phase(child, "write")
      const reading = await phase(child, "read")
      await child.end()
      const beyond = (bytes: number): number => (bytes - start) / mebibyte
      return {
        value: beyond(Math.max(writing.peakBytes, reading.peakBytes)),
        figures: {
          "MiB at start": start / mebibyte,
          "MiB, peak beyond start while writing": beyond(writing.peakBytes),
          "MiB, peak beyond start while reading": beyond(reading.peakBytes),
          "records/s written": perSecond(count, writing.ms),
          "records/s read": perSecond(count, reading.ms),
        },
      }
    },
  }
}

async function phase(
  child: Child,
  name: "write" | "read",
): Promise<{ readonly ms: number; readonly peakBytes: number }> {
  let peakBytes = 0
  let done = false
  const look = (): void => {
    if (done) return
    peakBytes = Math.max(peakBytes, anonymousBytes(child.pid))
    systemClock.setTimer(sampleEveryMs, look)
  }
  const { ms } = await timed(async () => {
    child.send(name)
    look()
    await child.receive()
    look()
    done = true
  })
  return { ms, peakBytes }
}
