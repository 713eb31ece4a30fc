/** Commands on streams, topics and partitions (iggy-wire.md: Commands). */

import { type Codec, join, list8, list32, listToEnd, name, nothing, orNothing, struct, u32 } from "../wire/codec.ts"
import { nonReplicated } from "../wire/operation.ts"
import {
  leastTopicBytes,
  type Stream,
  type StreamDetails,
  stream,
  streamDetails,
  type Topic,
  type TopicDetails,
  topic,
  topicDetails,
} from "./catalog-structures.ts"
import type { Command } from "./command.ts"
import {
  type Identifier,
  identifier,
  type StreamRef,
  streamRef,
  type TopicRef,
  topicRef,
  userRef,
} from "./identifier.ts"
import { type Options, optionsToEnd } from "./options.ts"

export interface CreateStream {
  readonly name: string
  readonly options: Options
}
export interface CreateTopic extends CreateStream {
  readonly stream: Identifier
  /** 0 to 1000. */
  readonly partitionsCount: number
}
export interface UpdateStream extends StreamRef {
  /** The present one to keep it. */
  readonly name: string
  readonly options: Options
}
export interface UpdateTopic extends TopicRef {
  /** The present one to keep it. */
  readonly name: string
  /** What is not named stays as it is. */
  readonly options: Options
}
export interface PartitionsRequest extends TopicRef {
  /** 1 to 1000. */
  readonly count: number
}
export interface SegmentsRequest extends TopicRef {
  readonly partition: number
  readonly segmentsCount: number
}
/** A patch of wire 0.12; a new name travels as an option. */
export interface UpdateResource {
  readonly resource:
    | { readonly scope: "topic"; readonly stream: Identifier; readonly topic: Identifier }
    | { readonly scope: "stream"; readonly stream: Identifier }
    | { readonly scope: "user"; readonly user: Identifier }
  /** Keys that go back to their defaults. */
  readonly reset: readonly string[]
  readonly options: Options
}

const nameAndOptions: Codec<CreateStream> = struct<CreateStream>({ name, options: optionsToEnd })
const createTopicRequest: Codec<CreateTopic> = struct<CreateTopic>({
  stream: identifier,
  partitionsCount: u32,
  name,
  options: optionsToEnd,
})
const partitionsRequest: Codec<PartitionsRequest> = join(topicRef, struct<{ readonly count: number }>({ count: u32 }))
const segmentsRequest: Codec<SegmentsRequest> = join(
  topicRef,
  struct<Omit<SegmentsRequest, keyof TopicRef>>({ partition: u32, segmentsCount: u32 }),
)
const updateStreamRequest: Codec<UpdateStream> = join(streamRef, nameAndOptions)
const updateTopicRequest: Codec<UpdateTopic> = join(topicRef, nameAndOptions)

const patch = struct<Omit<UpdateResource, "resource">>({ reset: list8(name, 2), options: optionsToEnd })
const updateResourceRequest: Codec<UpdateResource> = {
  write(writer, value, version) {
    const { resource } = value
    if (resource.scope === "topic") {
      writer.u8(1)
      topicRef.write(writer, resource, version)
    } else if (resource.scope === "stream") {
      writer.u8(2)
      streamRef.write(writer, resource, version)
    } else {
      writer.u8(3)
      userRef.write(writer, resource, version)
    }
    patch.write(writer, value, version)
  },
  read(reader, version) {
    const scope = reader.u8()
    const resource: UpdateResource["resource"] =
      scope === 1
        ? { scope: "topic", ...topicRef.read(reader, version) }
        : scope === 2
          ? { scope: "stream", ...streamRef.read(reader, version) }
          : scope === 3
            ? { scope: "user", ...userRef.read(reader, version) }
            : reader.fail(`has ${scope} for the scope of an update`)
    return { resource, ...patch.read(reader, version) }
  },
}

/** `undefined`: it does not exist. */
export const getStream: Command<StreamRef, StreamDetails | undefined> = {
  name: "get_stream",
  code: 200,
  operation: nonReplicated,
  request: streamRef,
  reply: orNothing(streamDetails),
}
export const getStreams: Command<undefined, readonly Stream[]> = {
  name: "get_streams",
  code: 201,
  operation: nonReplicated,
  request: nothing,
  reply: listToEnd(stream),
}
export const createStream: Command<CreateStream, Stream> = {
  name: "create_stream",
  code: 202,
  operation: 128,
  request: nameAndOptions,
  reply: stream,
}
/** With all of its topics. */
export const deleteStream: Command<StreamRef, undefined> = {
  name: "delete_stream",
  code: 203,
  operation: 130,
  request: streamRef,
  reply: nothing,
}
export const updateStream: Command<UpdateStream, undefined> = {
  name: "update_stream",
  code: 204,
  operation: 129,
  request: updateStreamRequest,
  reply: nothing,
  only: "0.11",
}
export const purgeStream: Command<StreamRef, undefined> = {
  name: "purge_stream",
  code: 205,
  operation: 131,
  request: streamRef,
  reply: nothing,
  only: "0.11",
}
/** `undefined`: the topic, or its stream, does not exist. */
export const getTopic: Command<TopicRef, TopicDetails | undefined> = {
  name: "get_topic",
  code: 300,
  operation: nonReplicated,
  request: topicRef,
  reply: orNothing(topicDetails),
}
/** None for a missing stream, too. */
export const getTopics: Command<StreamRef, readonly Topic[]> = {
  name: "get_topics",
  code: 301,
  operation: nonReplicated,
  request: streamRef,
  reply: list32(topic, leastTopicBytes),
}
export const createTopic: Command<CreateTopic, TopicDetails> = {
  name: "create_topic",
  code: 302,
  operation: 132,
  request: createTopicRequest,
  reply: topicDetails,
}
export const deleteTopic: Command<TopicRef, undefined> = {
  name: "delete_topic",
  code: 303,
  operation: 134,
  request: topicRef,
  reply: nothing,
}
export const updateTopic: Command<UpdateTopic, undefined> = {
  name: "update_topic",
  code: 304,
  operation: 133,
  request: updateTopicRequest,
  reply: nothing,
  only: "0.11",
}
/** Offsets start at 0 again; stored offsets are gone. */
export const purgeTopic: Command<TopicRef, undefined> = {
  name: "purge_topic",
  code: 305,
  operation: 135,
  request: topicRef,
  reply: nothing,
  only: "0.11",
}
export const createPartitions: Command<PartitionsRequest, undefined> = {
  name: "create_partitions",
  code: 402,
  operation: 136,
  request: partitionsRequest,
  reply: nothing,
}
/** The highest ids first. */
export const deletePartitions: Command<PartitionsRequest, undefined> = {
  name: "delete_partitions",
  code: 403,
  operation: 137,
  request: partitionsRequest,
  reply: nothing,
}
/** The oldest ones that are full. */
export const deleteSegments: Command<SegmentsRequest, undefined> = {
  name: "delete_segments",
  code: 503,
  operation: 138,
  request: segmentsRequest,
  reply: nothing,
}
/** In place of the update commands of wire 0.11. */
export const updateResource: Command<UpdateResource, undefined> = {
  name: "update_resource",
  code: 16,
  operation: 150,
  request: updateResourceRequest,
  reply: nothing,
  only: "0.12",
}
