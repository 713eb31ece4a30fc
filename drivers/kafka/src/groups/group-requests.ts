/** Describing and deleting groups of either protocol. */
import {
  type GroupDescription,
  InvalidError,
  MillraceError,
  type TopicName,
  type TopicPartition,
} from "@millrace/contract"
import { errorCode, kafkaError } from "../errors.ts"
import { kafkaTopic } from "../names.ts"
import { Attempts, checkCoordinator } from "../offsets/attempts.ts"
import { deleteOffsets, topicsWithOffsets } from "../offsets/offset-requests.ts"
import { consumerGroupDescribeApi, deleteGroupsApi, describeGroupsApi } from "../protocol/api.ts"
import { decodeAssignment } from "../protocol/member-metadata.ts"
import { checkTopics, describeConsumerGroup, type GroupTools } from "./consumer-protocol.ts"

/** A group that nobody uses has no members and generation 0. @throws NotFoundError for the topic */
export async function describeGroup(tools: GroupTools, group: string, topic: TopicName): Promise<GroupDescription> {
  await checkTopics(tools.cluster, [topic])
  const { generation, members } = await describeMembers(tools, group)
  const name = kafkaTopic(topic)
  return {
    group,
    generation,
    members: members.map(({ memberId, parts }) => ({
      memberId,
      partitions: parts
        .filter((part) => part.topic === name)
        .map(({ partition }): TopicPartition => ({ stream: topic.stream, topic: topic.topic, partition })),
    })),
  }
}

/**
 * Forgets what the group has stored of the topic, and the group when that was all.
 * @throws InvalidError when it has members
 */
export async function deleteGroup(tools: GroupTools, group: string, topic: TopicName): Promise<void> {
  const { members } = await describeMembers(tools, group)
  if (members.length > 0) throw hasMembers(group, members.length)
  const name = kafkaTopic(topic)
  const stored = await new Attempts(tools, group).run(() => topicsWithOffsets(tools.cluster, group))
  const own = stored.find((entry) => entry.topic === name)
  if (stored.length > (own === undefined ? 0 : 1)) {
    if (own !== undefined) await forgetOffsets(tools, group, own)
    return
  }
  const code = await new Attempts(tools, group).run(async () => {
    const to = { kind: "coordinator", group } as const
    const response = await tools.cluster.request(deleteGroupsApi, { groupsNames: [group] }, to)
    const answer = response.results[0]?.errorCode ?? errorCode.groupIdNotFound
    checkCoordinator(answer)
    return answer
  })
  if (code === errorCode.none || code === errorCode.groupIdNotFound) return
  if (code === errorCode.nonEmptyGroup) throw hasMembers(group, (await describeMembers(tools, group)).members.length)
  throw kafkaError(code, { what: `deleting group ${JSON.stringify(group)}`, context: { group } })
}

async function forgetOffsets(
  tools: GroupTools,
  group: string,
  { topic, partitions }: { readonly topic: string; readonly partitions: readonly number[] },
): Promise<void> {
  const places = partitions.map((partition) => ({ topic, topicId: "", partition }))
  const codes = await new Attempts(tools, group).run(() => deleteOffsets(tools.cluster, group, places))
  for (const code of codes) {
    if (code === errorCode.none) continue
    throw kafkaError(code, { what: `deleting the offsets of group ${JSON.stringify(group)}`, context: { group } })
  }
}

/** Members of a group of either protocol. */
interface MembersView {
  readonly generation: number
  readonly members: readonly {
    /** The stable name where the member has one. */
    readonly memberId: string
    readonly parts: readonly { readonly topic: string; readonly partition: number }[]
  }[]
}

async function describeMembers(tools: GroupTools, group: string): Promise<MembersView> {
  if (tools.cluster.offers(consumerGroupDescribeApi)) {
    const view = await describeConsumerGroup(tools, group)
    if (view !== undefined) {
      const members = view.members.map(({ memberId, instanceId, partitions }) => ({
        memberId: instanceId ?? memberId,
        parts: partitions,
      }))
      return { generation: view.generation, members }
    }
  }
  return describeClassic(tools, group)
}

async function describeClassic(tools: GroupTools, group: string): Promise<MembersView> {
  const described = await new Attempts(tools, group).run(async () => {
    const to = { kind: "coordinator", group } as const
    const response = await tools.cluster.request(describeGroupsApi, { groups: [group] }, to, { readOnly: true })
    const answer = response.groups[0]
    if (answer === undefined) throw new MillraceError("protocol", `group ${JSON.stringify(group)} was not described`)
    checkCoordinator(answer.errorCode)
    return answer
  })
  if (described.errorCode !== errorCode.none && described.errorCode !== errorCode.groupIdNotFound) {
    throw kafkaError(described.errorCode, {
      what: `describing group ${JSON.stringify(group)}`,
      context: { group },
      readOnly: true,
    })
  }
  const members = described.members.map(({ memberId, groupInstanceId, memberAssignment }) => ({
    memberId: groupInstanceId ?? memberId,
    parts: memberAssignment.length === 0 ? [] : partsOf(memberAssignment),
  }))
  return { generation: 0, members }
}

function partsOf(assignment: Uint8Array): { readonly topic: string; readonly partition: number }[] {
  return decodeAssignment(assignment).assignedPartitions.flatMap(({ topic, partitions }) =>
    partitions.map((partition) => ({ topic, partition })),
  )
}

function hasMembers(group: string, count: number): InvalidError {
  return new InvalidError(
    `group ${JSON.stringify(group)} cannot be deleted: it has ${count === 1 ? "1 member" : `${count} members`}. Let them leave first`,
    { context: { group, members: count } },
  )
}
