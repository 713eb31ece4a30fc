/** The benchmarks of producers, in the order of the table. */
import type { Benchmark } from "../benchmark.ts"
import { background100b } from "./background-100b.ts"
import { confirm100b } from "./confirm-100b.ts"
import { layerKeys } from "./layer-keys.ts"
import { layerPromise } from "./layer-promise.ts"
import { outage } from "./outage.ts"
import { send1 } from "./send-1.ts"
import { spool100b } from "./spool-100b.ts"

export const producerSuite: readonly Benchmark[] = [
  background100b,
  confirm100b,
  send1,
  layerKeys,
  layerPromise,
  outage,
  spool100b,
]
