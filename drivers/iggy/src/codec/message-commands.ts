/** Commands that send and poll messages (iggy-wire.md: Batches, Polls). */

import { type Codec, flag, join, nothing, struct, u32 } from "../wire/codec.ts"
import { nonReplicated } from "../wire/operation.ts"
import type { Command } from "./command.ts"
import { type TopicRef, topicRef } from "./identifier.ts"
import {
  type Confirmation,
  confirmations,
  type FetchedPartition,
  type FetchMessages,
  fetched,
  fetchMessages as fetchMessagesRequest,
  type PartitionRef,
  type PartitionRoute,
  type PollDeferred,
  type Polled,
  type PollMessages,
  partitionRef,
  partitionRoute,
  placeOf,
  pollDeferred as pollDeferredRequest,
  polled,
  pollMessages as pollMessagesRequest,
  type SendMessages,
  sendMessages as sendMessagesRequest,
} from "./message-structures.ts"

export interface FlushRequest extends TopicRef {
  readonly partition: number
  readonly fsync: boolean
}

const flushRequest: Codec<FlushRequest> = join(
  topicRef,
  struct<Omit<FlushRequest, keyof TopicRef>>({ partition: u32, fsync: flag }),
)

/** Answers at once, also where there is nothing. */
export const pollMessages: Command<PollMessages, Polled> = {
  name: "poll_messages",
  code: 100,
  operation: nonReplicated,
  request: pollMessagesRequest,
  reply: polled,
  place: placeOf,
}
/** Batches of a writer go by `Connection.send`, which copies nothing. */
export const sendMessages: Command<SendMessages, readonly Confirmation[]> = {
  name: "send_messages",
  code: 101,
  operation: 160,
  request: sendMessagesRequest,
  reply: confirmations,
}
/** Refused as FeatureUnavailable by the servers that we know. */
export const flushUnsavedBuffer: Command<FlushRequest, undefined> = {
  name: "flush_unsaved_buffer",
  code: 102,
  operation: nonReplicated,
  request: flushRequest,
  reply: nothing,
  only: "0.11",
}
/** What later requests to the partition must carry. */
export const getPartitionRoute: Command<PartitionRef, PartitionRoute> = {
  name: "get_partition_route",
  code: 105,
  operation: nonReplicated,
  request: partitionRef,
  reply: partitionRoute,
  only: "0.12",
}
/** A poll that waits on the server. */
export const pollMessagesDeferred: Command<PollDeferred, Polled> = {
  name: "poll_messages_deferred",
  code: 106,
  operation: nonReplicated,
  request: pollDeferredRequest,
  reply: polled,
  only: "0.12",
  place: placeOf,
}
/** Polls several partitions of a topic at once. */
export const fetchMessages: Command<FetchMessages, readonly FetchedPartition[]> = {
  name: "fetch_messages",
  code: 109,
  operation: nonReplicated,
  request: fetchMessagesRequest,
  reply: fetched,
  only: "0.12",
}
