/** The benchmarks of the embedded log, in the order of the table. */
import type { Benchmark } from "../benchmark.ts"
import { append1k1 } from "./append-1k-1.ts"
import { append1k32 } from "./append-1k-32.ts"
import { append100b } from "./append-100b.ts"
import { latencyCross } from "./latency-cross.ts"
import { latencyProcess } from "./latency-process.ts"
import { memory10m } from "./memory-10m.ts"
import { scan100b } from "./scan-100b.ts"
import { send1 } from "./send-1.ts"

export const embeddedSuite: readonly Benchmark[] = [
  append1k32,
  append1k1,
  append100b,
  send1,
  scan100b,
  latencyProcess,
  latencyCross,
  memory10m,
]
