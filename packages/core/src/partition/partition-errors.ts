/** What a partition's reader fails with by its own judgement. */
import {
  CorruptionError,
  type EncodedBatch,
  type MillraceError,
  OffsetOutOfRangeError,
  type TopicPartition,
} from "@millrace/contract"
import { topicText } from "../client/names.ts"

/** A record is not there, though the backend's offsets have no holes. */
export function gapError(partition: TopicPartition, offset: bigint, nextOffset: bigint): CorruptionError {
  return new CorruptionError(
    `partition ${partition.partition} of topic "${topicText(partition)}": record ${offset} is missing between records that are there`,
    { context: { ...partition, offset, nextOffset } },
  )
}

/** The batch contradicts itself before anything of it could be handed out: all of it is bad. */
export function damagedError(partition: TopicPartition, batch: EncodedBatch, cause: MillraceError): CorruptionError {
  const { firstOffset, lastOffset } = batch
  return new CorruptionError(
    `partition ${partition.partition} of topic "${topicText(partition)}": the batch of records ${firstOffset} to ${lastOffset} is damaged: ${cause.message}`,
    { context: { ...partition, offset: firstOffset, nextOffset: lastOffset + 1n }, cause },
  )
}

/** The position is not in the log, and nobody says where else to read (`onOutOfRange: "fail"`). */
export function rangeError(
  partition: TopicPartition,
  offset: bigint,
  first: bigint,
  end: bigint,
): OffsetOutOfRangeError {
  return new OffsetOutOfRangeError(
    `partition ${partition.partition} of topic "${topicText(partition)}": the position ${offset} is out of range: the partition has ${first === end ? `no records; its next offset is ${end}` : `offsets ${first} to ${end - 1n}`}`,
    { context: { ...partition, offset, first, end } },
  )
}
