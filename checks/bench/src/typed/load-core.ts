/** How long a program waits for `import "millrace"` that uses no codec, beside the same process without it. */

import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { startChild } from "../child.ts"
import { median, spread } from "../quantile.ts"
import { type Row, target } from "../row.ts"
import { sibling } from "../sibling.ts"

export const loadCore: Benchmark = { id: "load-core", run }

const limitMs = 60

async function run({ quick }: BenchmarkContext): Promise<Row> {
  const rounds = quick ? 1 : 11
  const ms: number[] = []
  const bytes: number[] = []
  for (let round = 0; round <= rounds; round++) {
    const child = startChild(sibling(import.meta.url, "load-core.child"), [], { compiled: true })
    const loaded = (await child.receive()) as { readonly ms: number; readonly bytes: number; readonly heavy: string[] }
    await child.end()
    if (loaded.heavy.length > 0) throw new Error(`loaded without being used: ${loaded.heavy.join(", ")}`)
    // The first one fills the cache of the file system.
    if (round === 0) continue
    ms.push(loaded.ms)
    bytes.push(loaded.bytes)
  }
  const ours = median(ms)
  const shares = ms.map((value) => value / limitMs)
  return {
    id: loadCore.id,
    unit: "ms to load millrace",
    better: "lower",
    ours,
    reference: limitMs,
    referenceName: "the limit",
    ratio: ours / limitMs,
    peers: { "MiB of heap that it takes": median(bytes) / (1 << 20) },
    cpuMicrosPerRecord: null,
    spread: { ours: spread(ms), reference: spread([limitMs]), ratio: spread(shares) },
    targets: [target("ms", ours, "at most", limitMs)],
    method: `import("millrace") of the compiled packages (npm run build) in ${rounds} fresh processes, no compile cache; none of the codecs' libraries is in memory afterwards`,
  }
}
