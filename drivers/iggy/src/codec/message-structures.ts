/** Sending and polling, but for the batches themselves, which `batch/` writes and reads (iggy-wire.md: Batches, Polls, Wire 0.12). */
import {
  byVersion,
  type Codec,
  flag,
  join,
  list32,
  orNothing,
  rest,
  sized32,
  struct,
  u8,
  u32,
  u64,
  word,
} from "../wire/codec.ts"
import { noContext, type PartitionContext, partitionContext } from "./catalog-structures.ts"
import {
  type Consumer,
  type ConsumerRef,
  consumer,
  consumerRef,
  type Partitioning,
  partitioning,
  type TopicRef,
  topicRef,
} from "./identifier.ts"

export interface SendTarget extends TopicRef {
  readonly partitioning: Partitioning
  /** Equal to the batch's own count, or the server drops the request without a word. */
  readonly messagesCount: number
}

export interface SendMessages extends SendTarget {
  /** The batch header and its frames. */
  readonly batch: Uint8Array
}

/** What stands before the batch header, its own length first. */
export const sendTarget: Codec<SendTarget> = sized32(
  join(topicRef, struct<Omit<SendTarget, keyof TopicRef>>({ partitioning, messagesCount: u32 })),
)

export const sendMessages: Codec<SendMessages> = join(
  sendTarget,
  struct<{ readonly batch: Uint8Array }>({ batch: rest }),
)

/** Where a sent batch went: message i has `baseOffset + i`. */
export interface Confirmation {
  readonly streamId: number
  readonly topicId: number
  readonly partitionId: number
  readonly baseOffset: bigint
}

const confirmationList = list32(
  struct<Confirmation>({ streamId: u32, topicId: u32, partitionId: u32, baseOffset: u64 }),
  20,
)

/** None: the batch is committed and its offsets are not told. */
export const confirmations: Codec<readonly Confirmation[]> = {
  write: confirmationList.write,
  read: (reader, version) => orNothing(confirmationList).read(reader, version) ?? [],
}

/** Where a poll begins. A time is the server's append time, and finds the first whole batch at or behind it. */
export interface PollingStrategy {
  readonly kind: "offset" | "timestamp" | "first" | "last" | "next"
  /** An offset, or microseconds; 0 for the other kinds. */
  readonly value: bigint
}

const pollingStrategy: Codec<PollingStrategy> = struct<PollingStrategy>({
  kind: word({ offset: 1, timestamp: 2, first: 3, last: 4, next: 5 }, "the kind of a polling strategy"),
  value: u64,
})

export interface PollMessages extends ConsumerRef {
  readonly strategy: PollingStrategy
  readonly count: number
  /** Stores the offset of the last message that is answered, soon after. */
  readonly autoCommit: boolean
}

export const pollMessages: Codec<PollMessages> = join(
  consumerRef,
  struct<Omit<PollMessages, keyof ConsumerRef>>({ strategy: pollingStrategy, count: u32, autoCommit: flag }),
)

export interface Polled {
  /** 2^32 − 1 with no messages: the assignment of the group has changed, ask for it again. */
  readonly partition: number
  /** Of the newest message in the partition; 0 also where there is none. */
  readonly currentOffset: bigint
  readonly messagesCount: number
  /** Zeros on wire 0.11. */
  readonly context: PartitionContext
  /** Batches back to back: see `readBatches`. */
  readonly records: Uint8Array
}

export const polled: Codec<Polled> = struct<Polled>({
  partition: u32,
  currentOffset: u64,
  messagesCount: u32,
  context: byVersion<PartitionContext>({
    "0.11": { write: () => undefined, read: () => noContext },
    "0.12": partitionContext,
  }),
  records: rest,
})

// ---- wire 0.12 ----------------------------------------------------------------------------------------------

export interface PartitionRef extends TopicRef {
  readonly partition: number
}

export const partitionRef: Codec<PartitionRef> = join(
  topicRef,
  struct<{ readonly partition: number }>({ partition: u32 }),
)

/** For commands of a consumer. */
export function placeOf({ stream, topic, partition }: ConsumerRef): PartitionRef | undefined {
  return partition === undefined ? undefined : { stream, topic, partition }
}

export interface PartitionRoute {
  readonly incarnation: bigint
  readonly metadataOp: bigint
  readonly view: number
  readonly partitionsCount: number
  readonly primaryReplica: number
}

export const partitionRoute: Codec<PartitionRoute> = struct<PartitionRoute>({
  incarnation: u64,
  metadataOp: u64,
  view: u32,
  partitionsCount: u32,
  primaryReplica: u8,
})

export interface PollDeferred extends PollMessages {
  /** At most 600 s; servers cap it further. */
  readonly waitMicros: bigint
  /** 1 to `count`. */
  readonly minCount: number
  /** At least 344. The first message may be larger and comes alone. */
  readonly maxBytes: number
  /** At least the wait and 1 s, at most 630 s. */
  readonly requestTimeoutMicros: bigint
}

export const pollDeferred: Codec<PollDeferred> = join(
  pollMessages,
  struct<Omit<PollDeferred, keyof PollMessages>>({
    waitMicros: u64,
    minCount: u32,
    maxBytes: u32,
    requestTimeoutMicros: u64,
  }),
)

export interface FetchPartition {
  readonly partition: number
  /** Of kind `offset` or `next`. */
  readonly strategy: PollingStrategy
  readonly maxBytes: number
  readonly incarnation: bigint
  readonly ownerGeneration: bigint
}

export interface FetchMessages extends TopicRef {
  readonly consumer: Consumer
  readonly waitMicros: bigint
  readonly requestTimeoutMicros: bigint
  readonly minCount: number
  readonly count: number
  readonly maxBytes: number
  readonly autoCommit: boolean
  /** 1 to 1000, each partition once. */
  readonly partitions: readonly FetchPartition[]
}

export const fetchMessages: Codec<FetchMessages> = join(
  join(struct<{ readonly consumer: Consumer }>({ consumer }), topicRef),
  struct<Omit<FetchMessages, keyof TopicRef | "consumer">>({
    waitMicros: u64,
    requestTimeoutMicros: u64,
    minCount: u32,
    count: u32,
    maxBytes: u32,
    autoCommit: flag,
    partitions: list32(
      struct<FetchPartition>({
        partition: u32,
        strategy: pollingStrategy,
        maxBytes: u32,
        incarnation: u64,
        ownerGeneration: u64,
      }),
      33,
    ),
  }),
)

export interface FetchedPartition {
  readonly partition: number
  /** The error of this partition, or 0. */
  readonly status: number
  readonly currentOffset: bigint
  readonly messagesCount: number
  readonly context: PartitionContext
  readonly nextOffset: bigint
  readonly records: Uint8Array
}

type FetchedHead = Omit<FetchedPartition, "records"> & { readonly recordsBytes: number }

const fetchedHeads = list32(
  struct<FetchedHead>({
    partition: u32,
    status: u32,
    currentOffset: u64,
    messagesCount: u32,
    context: partitionContext,
    nextOffset: u64,
    recordsBytes: u32,
  }),
  56,
)

/** A table of the partitions, then their records in the same order. */
export const fetched: Codec<readonly FetchedPartition[]> = {
  write(writer, parts, version) {
    fetchedHeads.write(
      writer,
      parts.map((part) => ({ ...part, recordsBytes: part.records.length })),
      version,
    )
    for (const part of parts) writer.raw(part.records)
  },
  read(reader, version) {
    const heads = fetchedHeads.read(reader, version)
    return heads.map(({ recordsBytes, ...head }) => ({ ...head, records: reader.raw(recordsBytes) }))
  },
}
