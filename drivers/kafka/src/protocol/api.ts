/**
 * Kafka's APIs: for each the versions that Millrace speaks and how requests become frames and frames responses.
 *
 * Which version is spoken with a broker is the connection's choice: the highest that both know (ApiVersions).
 */
import { InvalidError, MillraceError } from "@millrace/contract"
import { type BodyCodec, compile, type Struct } from "./codec.ts"
import * as messages from "./messages.generated.ts"
import { malformed, Reader } from "./reader.ts"
import type { MessageSchema } from "./schema.ts"
import { Writer } from "./writer.ts"

/** One API with its requests `Q` and responses `S`. */
export interface Api<Q, S> {
  readonly key: number
  readonly name: string
  /** The lowest and the highest version that Millrace speaks. */
  readonly min: number
  readonly max: number
  readonly request: MessageSchema
  readonly response: MessageSchema
  /**
   * The whole frame with its length and header, as chunks to be written one behind the other: one, unless there are record batches,
   * which are not copied and must stay as they are until the frame was sent.
   * @throws UnsupportedError for a value that the version cannot express, InvalidError for one that fits no version
   */
  encode(body: Q, version: number, header: RequestHeader): Uint8Array[]
  /**
   * The response in a frame. Bytes and records are views of it.
   * @param frame What stands behind the length, header included.
   * @throws MillraceError of kind `protocol` when the bytes are no such response
   */
  decode(frame: Uint8Array, version: number): S
}

/** What stands before every request. */
export interface RequestHeader {
  /** Comes back with the response; 32 bits, signed. */
  readonly correlationId: number
  readonly clientId: string
}

const apiVersionsKey = 18

/** The correlation id at the head of a response frame. @throws MillraceError of kind `protocol` for a shorter frame */
export function correlationIdOf(frame: Uint8Array): number {
  return new Reader(frame).int32()
}

/** The codec of a message in each version, made when it is first needed. */
export function codecOf(schema: MessageSchema, version: number): BodyCodec {
  let versions = compiled.get(schema)
  if (versions === undefined) {
    versions = []
    compiled.set(schema, versions)
  }
  const known = versions[version]
  if (known !== undefined) return known
  const [first, last] = schema.versions
  if (!(Number.isInteger(version) && version >= first && version <= last)) {
    throw new InvalidError(`${schema.name} version ${version} is not known: ${first} to ${last} are`)
  }
  const codec = compile(schema, version)
  versions[version] = codec
  return codec
}

const compiled = new Map<MessageSchema, BodyCodec[]>()

/** Whether the version has compact lengths and tagged fields. */
function isFlexible(schema: MessageSchema, version: number): boolean {
  return schema.flexible !== undefined && version >= schema.flexible
}

/** Whether the response header of the version has tagged fields. That of ApiVersions never has, so that old clients can read it (KIP-511). */
function hasTaggedResponseHeader(schema: MessageSchema, version: number): boolean {
  return schema.key !== apiVersionsKey && isFlexible(schema, version)
}

/** Skips a section of tagged fields. */
function skipTagged(reader: Reader): void {
  for (let rest = reader.count(reader.unsignedVarint(), 2); rest > 0; rest--) {
    reader.unsignedVarint()
    reader.skip(reader.unsignedVarint())
  }
}

function define<Q extends object, S extends object>(request: MessageSchema, response: MessageSchema): Api<Q, S> {
  const name = request.name.replace(/Request$/, "")
  return {
    key: request.key,
    name,
    min: request.versions[0],
    max: request.versions[1],
    request,
    response,
    encode(body, version, header) {
      const codec = codecOf(request, version)
      const writer = new Writer()
      try {
        writer.int32(0)
        writer.int16(request.key)
        writer.int16(version)
        writer.int32(header.correlationId)
        writer.string(header.clientId)
        if (isFlexible(request, version)) writer.unsignedVarint(0)
        codec.write(writer, body as Struct)
        return writer.frame()
      } catch (cause) {
        if (cause instanceof MillraceError) throw cause
        // A number that its field does not hold, or a value that is missing.
        const detail = cause instanceof Error ? cause.message : String(cause)
        throw new InvalidError(`${name} version ${version} cannot be written: ${detail}`, { cause })
      }
    },
    decode(frame, version) {
      const codec = codecOf(response, version)
      try {
        const reader = new Reader(frame, 4)
        if (hasTaggedResponseHeader(response, version)) skipTagged(reader)
        const body = codec.read(reader)
        if (reader.left > 0) throw malformed(`${reader.left} bytes are left over`)
        return body as S
      } catch (cause) {
        const detail = cause instanceof Error ? cause.message : String(cause)
        throw new MillraceError("protocol", `the answer to ${name} version ${version} is malformed: ${detail}`, {
          cause,
        })
      }
    },
  }
}

/** Appends record batches (0). A broker does not answer it at all when `acks` is 0. */
export const produceApi: Api<messages.ProduceRequest, messages.ProduceResponse> = define(
  messages.produceRequestSchema,
  messages.produceResponseSchema,
)
/** Reads record batches, as a long poll (1; sessions are KIP-227, topic ids from version 13 on KIP-516). */
export const fetchApi: Api<messages.FetchRequest, messages.FetchResponse> = define(
  messages.fetchRequestSchema,
  messages.fetchResponseSchema,
)
/** The offset of a time, or of the first or last record (2; the special times are KIP-79, KIP-734). */
export const listOffsetsApi: Api<messages.ListOffsetsRequest, messages.ListOffsetsResponse> = define(
  messages.listOffsetsRequestSchema,
  messages.listOffsetsResponseSchema,
)
/** Brokers, topics and the leaders of their partitions (3). */
export const metadataApi: Api<messages.MetadataRequest, messages.MetadataResponse> = define(
  messages.metadataRequestSchema,
  messages.metadataResponseSchema,
)
/** Stores offsets of a group (8). */
export const offsetCommitApi: Api<messages.OffsetCommitRequest, messages.OffsetCommitResponse> = define(
  messages.offsetCommitRequestSchema,
  messages.offsetCommitResponseSchema,
)
/** Loads offsets of groups (9). */
export const offsetFetchApi: Api<messages.OffsetFetchRequest, messages.OffsetFetchResponse> = define(
  messages.offsetFetchRequestSchema,
  messages.offsetFetchResponseSchema,
)
/** Forgets offsets of a group (47, KIP-496). */
export const offsetDeleteApi: Api<messages.OffsetDeleteRequest, messages.OffsetDeleteResponse> = define(
  messages.offsetDeleteRequestSchema,
  messages.offsetDeleteResponseSchema,
)
/** The broker that keeps a group (10). */
export const findCoordinatorApi: Api<messages.FindCoordinatorRequest, messages.FindCoordinatorResponse> = define(
  messages.findCoordinatorRequestSchema,
  messages.findCoordinatorResponseSchema,
)
/** Enters a group of the classic protocol; the answer comes when its rebalance has ended (11). */
export const joinGroupApi: Api<messages.JoinGroupRequest, messages.JoinGroupResponse> = define(
  messages.joinGroupRequestSchema,
  messages.joinGroupResponseSchema,
)
/** Says that a member of a classic group is alive (12). */
export const heartbeatApi: Api<messages.HeartbeatRequest, messages.HeartbeatResponse> = define(
  messages.heartbeatRequestSchema,
  messages.heartbeatResponseSchema,
)
/** Takes members out of a classic group (13). */
export const leaveGroupApi: Api<messages.LeaveGroupRequest, messages.LeaveGroupResponse> = define(
  messages.leaveGroupRequestSchema,
  messages.leaveGroupResponseSchema,
)
/** Gives and takes the assignment of a classic group (14). */
export const syncGroupApi: Api<messages.SyncGroupRequest, messages.SyncGroupResponse> = define(
  messages.syncGroupRequestSchema,
  messages.syncGroupResponseSchema,
)
/** Members of classic groups (15). */
export const describeGroupsApi: Api<messages.DescribeGroupsRequest, messages.DescribeGroupsResponse> = define(
  messages.describeGroupsRequestSchema,
  messages.describeGroupsResponseSchema,
)
/** Forgets groups without members (42). */
export const deleteGroupsApi: Api<messages.DeleteGroupsRequest, messages.DeleteGroupsResponse> = define(
  messages.deleteGroupsRequestSchema,
  messages.deleteGroupsResponseSchema,
)
/** What a broker speaks, and the features that its cluster has finalized (18, KIP-35, KIP-584). */
export const apiVersionsApi: Api<messages.ApiVersionsRequest, messages.ApiVersionsResponse> = define(
  messages.apiVersionsRequestSchema,
  messages.apiVersionsResponseSchema,
)
/** Creates topics (19). Sent to any broker; the controller does it. */
export const createTopicsApi: Api<messages.CreateTopicsRequest, messages.CreateTopicsResponse> = define(
  messages.createTopicsRequestSchema,
  messages.createTopicsResponseSchema,
)
/** Deletes topics by name, or by id from version 6 on (20). */
export const deleteTopicsApi: Api<messages.DeleteTopicsRequest, messages.DeleteTopicsResponse> = define(
  messages.deleteTopicsRequestSchema,
  messages.deleteTopicsResponseSchema,
)
/** Adds partitions to topics (37). */
export const createPartitionsApi: Api<messages.CreatePartitionsRequest, messages.CreatePartitionsResponse> = define(
  messages.createPartitionsRequestSchema,
  messages.createPartitionsResponseSchema,
)
/** Removes records below an offset; sent to the leader of each partition (21, KIP-107). */
export const deleteRecordsApi: Api<messages.DeleteRecordsRequest, messages.DeleteRecordsResponse> = define(
  messages.deleteRecordsRequestSchema,
  messages.deleteRecordsResponseSchema,
)
/** Settings of topics and brokers (32). */
export const describeConfigsApi: Api<messages.DescribeConfigsRequest, messages.DescribeConfigsResponse> = define(
  messages.describeConfigsRequestSchema,
  messages.describeConfigsResponseSchema,
)
/** Changes single settings (44, KIP-339). */
export const incrementalAlterConfigsApi: Api<
  messages.IncrementalAlterConfigsRequest,
  messages.IncrementalAlterConfigsResponse
> = define(messages.incrementalAlterConfigsRequestSchema, messages.incrementalAlterConfigsResponseSchema)
/** A producer id, or the next epoch of one (22, KIP-98, KIP-360). */
export const initProducerIdApi: Api<messages.InitProducerIdRequest, messages.InitProducerIdResponse> = define(
  messages.initProducerIdRequestSchema,
  messages.initProducerIdResponseSchema,
)
/** Members of groups of the new protocol (69, KIP-848). */
export const consumerGroupDescribeApi: Api<
  messages.ConsumerGroupDescribeRequest,
  messages.ConsumerGroupDescribeResponse
> = define(messages.consumerGroupDescribeRequestSchema, messages.consumerGroupDescribeResponseSchema)
/** Joins, stays in, and leaves a group of the new protocol, and takes its assignment (68, KIP-848). */
export const consumerGroupHeartbeatApi: Api<
  messages.ConsumerGroupHeartbeatRequest,
  messages.ConsumerGroupHeartbeatResponse
> = define(messages.consumerGroupHeartbeatRequestSchema, messages.consumerGroupHeartbeatResponseSchema)
