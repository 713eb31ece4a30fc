/** The benchmarks of typed data, in the order of the table. */
import type { Benchmark } from "../benchmark.ts"
import { jsonPublish } from "./json-publish.ts"
import { jsonReader } from "./json-reader.ts"
import { loadCore } from "./load-core.ts"
import { msgpackReader } from "./msgpack-reader.ts"

export const typedSuite: readonly Benchmark[] = [jsonReader, jsonPublish, msgpackReader, loadCore]
