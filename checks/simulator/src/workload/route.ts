import type { Chance } from "../chance.ts"
import type { RecordFact } from "./history.ts"

const text = new TextEncoder()

/** A key or a partition, or nothing said. */
export interface SimRoute {
  readonly key?: Uint8Array
  readonly partition?: number
}

/**
 * Where some records go: to a key, or to a partition that the topic is likely to have. It is noted with them, unless a partitioner of
 * the producer's own decides about keys.
 */
export function routeFor(
  chance: Chance,
  records: readonly RecordFact[],
  kinds: { readonly partitions: boolean; readonly keys?: "together" | "spread" } = { partitions: true },
): SimRoute {
  const kind = chance.weighted([
    [5, "balanced"],
    [3, "key"],
    [kinds.partitions ? 1 : 0, "partition"],
  ])
  if (kind === "balanced") return {}
  const place = chance.below(kind === "key" ? 4 : 2)
  const isTold = kind === "partition" || kinds.keys !== "spread"
  for (const record of records) record.route = isTold ? `${kind} ${place}` : ""
  return kind === "key" ? { key: text.encode(`key ${place}`) } : { partition: place }
}
