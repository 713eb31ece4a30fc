/** What lies between the last record that came of a partition and its end: nothing, holes, records on their way, or records that its consumer does not know of. */
import { NotFoundError, type TopicPartition } from "@millrace/contract"
import type { Connection } from "./connection.ts"
import type { ReaderConsumer } from "./reader-consumer.ts"
import { type HeldRange, heldRange } from "./reader-range.ts"
import { isReplicated, type PartitionInfo, type TopicLayouts } from "./topic-layout.ts"

/**
 * - trimmed: the records behind the last one are gone, and those that are left begin later.
 * - end: nothing is there up to the end that the range tells.
 * - owed: there is a record, and it has not come.
 */
export interface EndVerdict {
  readonly kind: "trimmed" | "end" | "owed"
  readonly range: HeldRange
}

/** How far a lane has come. */
export interface LaneStanding {
  /** The last sequence that came or was passed over. */
  readonly last: number
  readonly consumer: ReaderConsumer | undefined
  /** Records that came from the consumer. */
  arrived(): number
}

/** Asks the stream's leader, and then the consumer. @throws NotFoundError when the partition is gone, and what `Connection.api` throws */
export async function lookAtEnd(
  { connection, layouts }: { readonly connection: Connection; readonly layouts: TopicLayouts },
  place: TopicPartition,
  { last, consumer, arrived }: LaneStanding,
): Promise<EndVerdict> {
  const found = await layouts.partition(place)
  const range = heldRange(found)
  if (range.first > last + 1) return { kind: "trimmed", range }
  if (range.last <= last || consumer === undefined) return { kind: "end", range }
  const { pending, sent } = await consumer.standing()
  // What was sent and has not come is on its way, and no hole.
  if (pending > 0 || sent !== arrived()) return { kind: "owed", range }
  return judgeEnd(connection, found, last)
}

/** For a consumer that has nothing to deliver behind this sequence. @throws what `Connection.api` throws */
export async function judgeEnd(connection: Connection, found: PartitionInfo, last: number): Promise<EndVerdict> {
  const range = heldRange(found)
  // A stream on one server is never behind itself.
  const held = range.last > last && isReplicated(found) && (await leaderHolds(connection, found, last + 1))
  return { kind: held ? "owed" : "end", range }
}

/**
 * Whether the leader of the stream holds a record from this sequence up to its end. It alone answers both requests: information that
 * tells of no hole is enough, else the record itself is asked for.
 */
async function leaderHolds(connection: Connection, found: PartitionInfo, sequence: number): Promise<boolean> {
  const { first, last } = heldRange(found)
  if (found.info.state.messages === last - first + 1) return sequence >= first
  try {
    const body = { seq: sequence, next_by_subj: ">" }
    await connection.api(`STREAM.MSG.GET.${found.streamName}`, body, { idempotent: true })
    return true
  } catch (error) {
    if (error instanceof NotFoundError) return false
    throw error
  }
}
