/** The benchmarks of work queues and of exactly-once processing, in the order of the table. */
import type { Benchmark } from "../benchmark.ts"
import { processEo } from "./process-eo.ts"
import { queueBatch } from "./queue-batch.ts"
import { queueExplicit } from "./queue-explicit.ts"

export const queueSuite: readonly Benchmark[] = [queueExplicit, queueBatch, processEo]
