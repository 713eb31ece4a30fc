/** How long a program waits for the core, and for all of `millrace`, when it uses no codec. */
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { startChild } from "../child.ts"
import { median, spread } from "../quantile.ts"
import { type Row, target } from "../row.ts"
import { sibling } from "../sibling.ts"

export const loadCore: Benchmark = { id: "load-core", run }

const limitMs = 60

interface Loaded {
  readonly ms: number
  /** Of heap. */
  readonly bytes: number
  readonly heavy: readonly string[]
}

async function run({ quick }: BenchmarkContext): Promise<Row> {
  const rounds = quick ? 1 : 11
  const [core, whole]: [Loaded[], Loaded[]] = [[], []]
  // The first round fills the cache of the file system, and does not count.
  for (let round = 0; round <= rounds; round++) {
    const loads = [await load("@millrace/core"), await load("millrace")] as const
    if (round === 0) continue
    core.push(loads[0])
    whole.push(loads[1])
  }
  const ms = core.map((loaded) => loaded.ms)
  const all = whole.map((loaded) => loaded.ms)
  return {
    id: loadCore.id,
    unit: "ms to load the core",
    better: "lower",
    ours: median(ms),
    reference: median(all),
    referenceName: "to load millrace, the embedded driver included",
    ratio: median(ms) / median(all),
    peers: { "MiB of heap that millrace takes": median(whole.map(({ bytes }) => bytes)) / (1 << 20) },
    cpuMicrosPerRecord: null,
    spread: {
      ours: spread(ms),
      reference: spread(all),
      ratio: spread(ms.map((one, round) => one / (all[round] as number))),
    },
    targets: [target("ms", median(ms), "at most", limitMs)],
    method: `import() of the compiled packages (npm run build) in ${rounds} fresh processes each, no compile cache; none of the codecs' libraries is in memory afterwards`,
  }
}

/** @throws Error when a library of a codec came along */
async function load(name: string): Promise<Loaded> {
  const child = startChild(sibling(import.meta.url, "load-core.child"), [name], { compiled: true })
  const loaded = (await child.receive()) as Loaded
  await child.end()
  if (loaded.heavy.length > 0) throw new Error(`${name} loaded without being asked: ${loaded.heavy.join(", ")}`)
  return loaded
}
