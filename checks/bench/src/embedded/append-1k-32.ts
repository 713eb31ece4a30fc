/** 32 `sendBatch` calls of 100 × 1 KiB under way, over 8 partitions: 4 batches in flight for each, within the limit of 5. */
import type { Benchmark } from "../benchmark.ts"
import { append1k } from "./append-1k.ts"

export const append1k32: Benchmark = append1k({ id: "append-1k-32", outstanding: 32, partitions: 8, batches: 3000 })
