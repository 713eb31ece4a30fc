/**
 * What makes the workers idempotent: a snapshot says what one partition of the flights came to, and up to which offset. It is published
 * to the partition of the same number of the results, before that offset is committed. Whoever owns the partition next starts from the
 * snapshot with the greatest offset and passes over flights that it has in it, so a flight that is delivered twice counts once.
 */
import type { Topic, TypedTopic } from "millrace"
import { Json } from "millrace"
import type { AirportDelays } from "./delays.ts"
import { DelayTable } from "./delays.ts"

/** The delays of one partition's flights, from its first to the one at `upTo`. */
export interface Snapshot {
  readonly partition: number
  readonly upTo: bigint
  readonly table: DelayTable
}

/** The results, as JSON in their topic. */
function snapshotsOf(topic: Topic): TypedTopic<SnapshotJson> {
  return topic.json(new Json(decodeSnapshot))
}

/** A snapshot as JSON. Its offset is text, since a JSON number loses digits above 2^53. */
export interface SnapshotJson {
  readonly partition: number
  readonly upTo: string
  readonly airports: Readonly<Record<string, AirportDelays>>
}

/** Publishes a snapshot, and waits until it is confirmed. */
export async function storeSnapshot(topic: Topic, { partition, upTo, table }: Snapshot): Promise<void> {
  const airports = Object.fromEntries(table.entries())
  await snapshotsOf(topic).publish({ partition, upTo: String(upTo), airports }, { partition })
}

/**
 * The newest snapshot of each partition that has one. Newest is the greatest offset, not the last record: a worker that lost its
 * partition may have published one more before it noticed.
 */
export async function newestSnapshots(topic: Topic): Promise<Map<number, Snapshot>> {
  const newest = new Map<number, Snapshot>()
  await using reader = await snapshotsOf(topic).records("newest-snapshots")
  for await (const result of reader.stream()) {
    if (result.kind === "error") throw result.error
    if (result.kind !== "record") continue
    const { partition, upTo, airports } = result.value
    const known = newest.get(partition)
    if (known !== undefined && known.upTo >= BigInt(upTo)) continue
    newest.set(partition, { partition, upTo: BigInt(upTo), table: new DelayTable(Object.entries(airports)) })
  }
  return newest
}

function decodeSnapshot(value: unknown): SnapshotJson {
  const { partition, upTo, airports } = Object(value) as Record<string, unknown>
  if (!Number.isSafeInteger(partition)) throw new TypeError(`"partition" of a snapshot is ${String(partition)}`)
  if (typeof upTo !== "string" || !/^\d+$/.test(upTo)) throw new TypeError(`"upTo" of a snapshot is ${String(upTo)}`)
  if (typeof airports !== "object" || airports === null) throw new TypeError('"airports" of a snapshot is missing')
  return value as SnapshotJson
}
