/** One `sendBatch` of 100 × 1 KiB after the other, each awaited, on one partition. */
import type { Benchmark } from "../benchmark.ts"
import { append1k } from "./append-1k.ts"

export const append1k1: Benchmark = append1k({ id: "append-1k-1", outstanding: 1, partitions: 1, batches: 1500 })
