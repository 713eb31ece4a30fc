/** Whether a partition, as it is now, can be read from a place. */
import {
  HistoryChangedError,
  type MillraceError,
  OffsetOutOfRangeError,
  type Position,
  type TopicPartition,
} from "@millrace/contract"
import { described, type PartitionInfo } from "./topic-layout.ts"

/** What a partition holds, in sequences: `first` to `last`; empty when `first` is `last` + 1. */
export interface HeldRange {
  readonly first: number
  readonly last: number
}

/** The range that a stream's information tells. An empty new stream tells 0 and 0. */
export function heldRange({ info }: PartitionInfo): HeldRange {
  return { first: Math.max(1, info.state.first_seq), last: info.state.last_seq }
}

/** Why a reader cannot go on at this place: another history, or an offset that the partition does not hold and will not hold next. */
export function placeRefusal(position: Position, found: PartitionInfo): MillraceError | undefined {
  const { stream, topic, partition, offset, lineage } = position
  if (found.layout.lineage !== lineage) {
    return new HistoryChangedError(
      `partition ${partition} of topic ${described(position)} was made anew since offset ${offset} was taken: its history is ${found.layout.lineage}, not ${lineage}`,
      { context: { stream, topic, partition, offset } },
    )
  }
  const range = heldRange(found)
  const sequence = Number(offset)
  return sequence >= range.first - 1 && sequence <= range.last ? undefined : outOfRange(position, range)
}

/** The error for an offset that the partition does not have (any more). */
export function outOfRange(
  position: TopicPartition & { readonly offset: bigint },
  held: HeldRange,
): OffsetOutOfRangeError {
  const { stream, topic, partition, offset } = position
  const [first, end] = [BigInt(held.first - 1), BigInt(held.last)]
  const where = offset < first ? `before the first retained record, ${first}` : `behind the end, ${end}`
  const holds = first === end ? "it is empty" : `it holds offsets ${first} to ${end - 1n}`
  return new OffsetOutOfRangeError(
    `offset ${offset} of partition ${partition} of topic ${described(position)} lies ${where}: ${holds}`,
    { context: { stream, topic, partition, offset, first, end } },
  )
}
