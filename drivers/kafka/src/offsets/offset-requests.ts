/** The requests about offsets, in the versions that brokers offer: one request a call, one outcome a partition. */
import { MillraceError } from "@millrace/contract"
import type { Cluster } from "../cluster/cluster.ts"
import { errorCode } from "../errors.ts"
import type { Fence } from "../groups/claim-token.ts"
import { offsetCommitApi, offsetDeleteApi, offsetFetchApi } from "../protocol/api.ts"
import type { OffsetFetchRequest, OffsetFetchResponse } from "../protocol/messages.generated.ts"
import { checkCoordinator } from "./attempts.ts"
import { belongsTo, offsetMetadata } from "./offset-owner.ts"

/** A partition in Kafka's words. */
export interface OffsetPlace {
  readonly topic: string
  readonly topicId: string
  readonly partition: number
}

/** An offset that is stored. */
export interface Committed {
  readonly offset: bigint
}

/** What a partition's part of a request came to: a value, or the coordinator's error code. */
export type OffsetsOutcome<T> = { readonly value: T } | { readonly code: number }

/** From this version on topics go by their id. */
const firstVersionWithIds = 10
/** From this version on several groups are asked for at once, in another layout. */
const firstVersionWithGroups = 8
/** From this version on a fetch can ask to wait for offsets that a transaction holds. */
const firstVersionWithStable = 7
/** A transaction holds the offset: it is told when the transaction has ended (KIP-447). */
const unstableOffsetCommit = 88

const noMember: Fence = { memberId: "", generation: -1, instanceId: undefined }

/**
 * Stores offsets, the next to read. One error code an entry, in order; 0 is success.
 * @param writer.fence Whose claim it is; `undefined` for a group without members.
 * @throws OtherCoordinator, and what `Cluster.request` throws
 */
export async function commitOffsets(
  cluster: Cluster,
  { group, fence }: { readonly group: string; readonly fence: Fence | undefined },
  entries: readonly (OffsetPlace & { readonly offset: bigint })[],
): Promise<readonly number[]> {
  const { memberId, generation, instanceId } = fence ?? noMember
  const topics = byTopic(entries).map(({ topic, topicId, list }) => ({
    name: topic,
    topicId,
    partitions: list.map(({ partition, offset }) => ({
      partitionIndex: partition,
      committedOffset: offset,
      committedMetadata: offsetMetadata(topicId),
    })),
  }))
  const request = { groupId: group, generationIdOrMemberEpoch: generation, memberId, topics }
  const response = await cluster.request(
    offsetCommitApi,
    instanceId === undefined ? request : { ...request, groupInstanceId: instanceId },
    { kind: "coordinator", group },
  )
  const codes = new Codes()
  for (const topic of response.topics) {
    for (const { partitionIndex, errorCode: code } of topic.partitions) {
      checkCoordinator(code)
      codes.set(topic, partitionIndex, code)
    }
  }
  return entries.map((entry) => codes.of(entry, "OffsetCommit"))
}

/**
 * Loads offsets. One outcome a place, in order: `undefined` where none is stored for this history of the topic.
 * @throws OtherCoordinator, and what `Cluster.request` throws
 */
export async function fetchOffsets(
  cluster: Cluster,
  group: string,
  places: readonly OffsetPlace[],
): Promise<readonly OffsetsOutcome<Committed | undefined>[]> {
  const topics = byTopic(places)
  const body = (version: number): OffsetFetchRequest => {
    const list = topics.map(({ topic, topicId, list: parts }) => ({
      name: topic,
      ...(version >= firstVersionWithIds ? { topicId } : {}),
      partitionIndexes: parts.map(({ partition }) => partition),
    }))
    const stable = version >= firstVersionWithStable ? { requireStable: true } : {}
    return version >= firstVersionWithGroups
      ? { groups: [{ groupId: group, topics: list }], ...stable }
      : { groupId: group, topics: list, ...stable }
  }
  const response = await cluster.request(offsetFetchApi, body, { kind: "coordinator", group }, { readOnly: true })
  const { code, topics: answered } = groupPart(response)
  checkCoordinator(code)
  if (code !== errorCode.none) return places.map(() => ({ code }))
  const codes = new Codes()
  const found = new Map<string, { readonly offset: bigint; readonly metadata: string | null }>()
  for (const topic of answered) {
    for (const part of topic.partitions) {
      checkCoordinator(part.errorCode)
      if (part.errorCode === unstableOffsetCommit) checkCoordinator(errorCode.coordinatorLoadInProgress)
      codes.set(topic, part.partitionIndex, part.errorCode)
      const value = { offset: part.committedOffset, metadata: part.metadata }
      if (topic.name !== "") found.set(`${topic.name}/${part.partitionIndex}`, value)
      else found.set(`${topic.topicId}/${part.partitionIndex}`, value)
    }
  }
  return places.map((place) => {
    const refused = codes.of(place, "OffsetFetch")
    if (refused !== errorCode.none) return { code: refused }
    const { topic, topicId, partition } = place
    const value = found.get(`${topic}/${partition}`) ?? found.get(`${topicId}/${partition}`)
    const none = value === undefined || value.offset < 0n || !belongsTo(value.metadata, topicId)
    return { value: none ? undefined : { offset: value.offset } }
  })
}

/**
 * Deletes offsets of a group whose topics nobody reads. One error code a place, in order.
 * @throws OtherCoordinator, and what `Cluster.request` throws
 */
export async function deleteOffsets(
  cluster: Cluster,
  group: string,
  places: readonly OffsetPlace[],
): Promise<readonly number[]> {
  const topics = byTopic(places).map(({ topic, list }) => ({
    name: topic,
    partitions: list.map(({ partition }) => ({ partitionIndex: partition })),
  }))
  const response = await cluster.request(offsetDeleteApi, { groupId: group, topics }, { kind: "coordinator", group })
  checkCoordinator(response.errorCode)
  if (response.errorCode !== errorCode.none) return places.map(() => response.errorCode)
  const codes = new Codes()
  for (const topic of response.topics) {
    for (const part of topic.partitions) {
      codes.set({ name: topic.name, topicId: "" }, part.partitionIndex, part.errorCode)
    }
  }
  return places.map((place) => codes.of(place, "OffsetDelete"))
}

/** The Kafka names of the topics that a group has offsets of. @throws OtherCoordinator, and what `Cluster.request` throws */
export async function topicsWithOffsets(
  cluster: Cluster,
  group: string,
): Promise<readonly { readonly topic: string; readonly partitions: readonly number[] }[]> {
  // Named topics are asked for and answered by id from version 10 on; here the names are what is wanted.
  const body = (version: number): OffsetFetchRequest =>
    version >= firstVersionWithGroups
      ? { groups: [{ groupId: group, topics: null }] }
      : { groupId: group, topics: null }
  const to = { kind: "coordinator", group } as const
  const maxVersion = firstVersionWithIds - 1
  const response = await cluster.request(offsetFetchApi, body, to, { readOnly: true, minVersion: 2, maxVersion })
  const { code, topics } = groupPart(response)
  checkCoordinator(code)
  if (code !== errorCode.none) return []
  return topics.map(({ name, partitions }) => ({
    topic: name,
    partitions: partitions.map(({ partitionIndex }) => partitionIndex),
  }))
}

interface AnsweredTopic {
  readonly name: string
  readonly topicId: string
  readonly partitions: readonly {
    readonly partitionIndex: number
    readonly committedOffset: bigint
    readonly metadata: string | null
    readonly errorCode: number
  }[]
}

/** The one group's part of an answer, in either layout. */
function groupPart(response: OffsetFetchResponse): {
  readonly code: number
  readonly topics: readonly AnsweredTopic[]
} {
  const group = response.groups[0]
  if (group !== undefined) return { code: group.errorCode, topics: group.topics }
  return { code: response.errorCode, topics: response.topics.map((topic) => ({ ...topic, topicId: "" })) }
}

/** Error codes by partition, of answers that name topics or identify them. */
class Codes {
  readonly #codes = new Map<string, number>()

  set({ name, topicId }: { readonly name: string; readonly topicId: string }, partition: number, code: number): void {
    this.#codes.set(`${name === "" ? topicId : name}/${partition}`, code)
  }

  of({ topic, topicId, partition }: OffsetPlace, api: string): number {
    const code = this.#codes.get(`${topic}/${partition}`) ?? this.#codes.get(`${topicId}/${partition}`)
    if (code !== undefined) return code
    throw new MillraceError(
      "protocol",
      `the answer to ${api} lacks partition ${partition} of topic ${JSON.stringify(topic)}`,
    )
  }
}

function byTopic<P extends OffsetPlace>(
  places: readonly P[],
): { readonly topic: string; readonly topicId: string; readonly list: readonly P[] }[] {
  const topics = new Map<string, { topic: string; topicId: string; list: P[] }>()
  for (const place of places) {
    const known = topics.get(place.topic)
    if (known === undefined) topics.set(place.topic, { topic: place.topic, topicId: place.topicId, list: [place] })
    else if (!known.list.some(({ partition }) => partition === place.partition)) known.list.push(place)
  }
  return [...topics.values()]
}
