/** The benchmarks of consumers, in the order of the table. */
import type { Benchmark } from "../benchmark.ts"
import { consume100b } from "./consume-100b.ts"
import { idle100 } from "./idle-100.ts"
import { layer } from "./layer.ts"
import { memory10m } from "./memory-10m.ts"
import { rebalance } from "./rebalance.ts"
import { run64 } from "./run-64.ts"
import { takeover } from "./takeover.ts"

export const consumerSuite: readonly Benchmark[] = [consume100b, run64, layer, rebalance, takeover, memory10m, idle100]
