/** One benchmark: an id, and what it answers. */
import type { Row } from "./row.ts"
import type { Scratch } from "./scratch.ts"

export interface BenchmarkContext {
  readonly scratch: Scratch
  /** A smoke test: the load of each arm, and the number of rounds, are as small as makes sense. */
  readonly quick: boolean
}

export interface Benchmark {
  readonly id: string
  run(context: BenchmarkContext): Promise<Row>
}
