/** The requests of KIP-848: ConsumerGroupHeartbeat, and ConsumerGroupDescribe to find who has a name. */
import { NotFoundError, type TopicName } from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import { askNow, type Cluster } from "../cluster/cluster.ts"
import { errorCode, kafkaError } from "../errors.ts"
import { kafkaTopic } from "../names.ts"
import { Attempts, checkCoordinator } from "../offsets/attempts.ts"
import type { Pauses } from "../pauses.ts"
import { consumerGroupDescribeApi, consumerGroupHeartbeatApi } from "../protocol/api.ts"
import type { ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse } from "../protocol/messages.generated.ts"
import {
  type ConsumerAnswer,
  type ConsumerCall,
  type ConsumerMember,
  ConsumerProtocolMachine,
} from "./consumer-protocol.machine.ts"
import type { Seat } from "./member-claims.ts"
import type { MemberProtocol } from "./membership.ts"

/** What a group protocol works with. */
export interface GroupTools {
  readonly cluster: Cluster
  readonly clock: Clock
  readonly random: Random
  /** Of the session: they end when it is closed. */
  readonly pauses: Pauses
}

/** The first version in which the member makes its own id (KIP-1082). */
const firstHeartbeatVersion = 1
/** A heartbeat that takes so much of the session timeout is given up, and sent again. */
const beatShare = 0.5
/** How long a member that leaves waits to be heard, in ms. After that the session timeout does it. */
export const goodbyeMs = 2000
/** The epochs that say goodbye: for good, and for a stable name whose partitions wait for it. */
const leaveEpoch = -1
const leaveForNowEpoch = -2

/** One member that speaks KIP-848. */
export class ConsumerProtocol implements MemberProtocol<ConsumerCall, ConsumerAnswer> {
  readonly machine: ConsumerProtocolMachine
  readonly #tools: GroupTools
  readonly #member: ConsumerMember
  readonly #topics: ReadonlyMap<string, TopicName>
  /** What the coordinator last said that the member is to have, by topic id; some ids may not have a name yet. */
  #target: ReadonlyMap<string, readonly number[]> = new Map()
  #nameless = false
  /** Every incarnation of the topics that was seen. */
  readonly #names = new Map<string, TopicName>()

  constructor(tools: GroupTools, member: ConsumerMember, topics: readonly TopicName[]) {
    this.#tools = tools
    this.#member = member
    this.#topics = new Map(topics.map(({ stream, topic }) => [kafkaTopic({ stream, topic }), { stream, topic }]))
    this.machine = new ConsumerProtocolMachine(member)
  }

  get memberId(): string {
    return this.#member.instanceId ?? this.#member.memberId
  }

  perform(call: ConsumerCall): Promise<ConsumerAnswer> {
    switch (call.name) {
      case "beat":
        return this.#beat(call)
      case "leave":
        return this.#leave()
      case "evict":
        return this.#evict()
    }
  }

  close(): void {
    // Requests go over the cluster's own connections.
  }

  async #beat(call: ConsumerCall & { name: "beat" }): Promise<ConsumerAnswer> {
    const { instanceId, rebalanceTimeoutMs } = this.#member
    const request: ConsumerGroupHeartbeatRequest = {
      groupId: this.#member.group,
      memberId: this.#member.memberId,
      memberEpoch: call.epoch,
      ...(instanceId === undefined ? {} : { instanceId }),
      ...(call.full
        ? { rebalanceTimeoutMs: Math.ceil(rebalanceTimeoutMs), subscribedTopicNames: [...this.#topics.keys()] }
        : {}),
      ...(call.owned === undefined ? {} : { topicPartitions: byTopicId(call.owned) }),
    }
    const { requestTimeoutMs } = this.#tools.cluster
    const response = await this.#send(request, Math.min(requestTimeoutMs, this.#member.sessionTimeoutMs * beatShare))
    const failure = this.#failureOf(response)
    if (failure !== undefined) return failure
    const told = response.assignment
    if (told !== null) {
      this.#target = new Map(told.topicPartitions.map(({ topicId, partitions }) => [topicId, partitions]))
    }
    const changed = told !== null || this.#nameless
    const target = changed ? { target: await this.#seats() } : {}
    return { kind: "beat", epoch: response.memberEpoch, intervalMs: response.heartbeatIntervalMs, ...target }
  }

  #failureOf(response: ConsumerGroupHeartbeatResponse): ConsumerAnswer | undefined {
    const code = response.errorCode
    if (code === errorCode.none) return undefined
    const { group } = this.#member
    const error = kafkaError(code, {
      what: `taking part in group ${JSON.stringify(group)}`,
      context: { group, memberId: this.memberId },
      detail: response.errorMessage,
    })
    switch (code) {
      case errorCode.unknownMemberId:
      case errorCode.fencedMemberEpoch:
      case errorCode.groupIdNotFound:
        return { kind: "gone", error }
      case errorCode.fencedInstanceId:
        return { kind: "replaced", error }
      case errorCode.unreleasedInstanceId:
        return { kind: "occupied", error }
      default:
        throw error
    }
  }

  async #leave(): Promise<ConsumerAnswer> {
    const { group, memberId, instanceId } = this.#member
    const goodbye = { groupId: group, memberId, memberEpoch: leaveEpoch }
    const response = await this.#send(instanceId === undefined ? goodbye : { ...goodbye, instanceId }, goodbyeMs)
    // Whoever is unknown, fenced or replaced is gone, too.
    this.#failureOf(response)
    return { kind: "left" }
  }

  /**
   * Takes the name from the member that has it: that member is sent away as if it had gone for a moment, so that its partitions wait for
   * the name; at its next heartbeat it hears that it was replaced.
   */
  async #evict(): Promise<ConsumerAnswer> {
    const { group, instanceId } = this.#member
    const holder = (await describeConsumerGroup(this.#tools, group))?.members.find(
      (member) => member.instanceId === instanceId,
    )
    if (holder !== undefined && instanceId !== undefined) {
      const goodbye = { groupId: group, memberId: holder.memberId, memberEpoch: leaveForNowEpoch, instanceId }
      this.#failureOf(await this.#send(goodbye, this.#tools.cluster.requestTimeoutMs))
    }
    return { kind: "evicted" }
  }

  #send(request: ConsumerGroupHeartbeatRequest, timeoutMs: number): Promise<ConsumerGroupHeartbeatResponse> {
    const { cluster } = this.#tools
    const { group } = this.#member
    return new Attempts(this.#tools, group, timeoutMs).run(async () => {
      const to = { kind: "coordinator", group } as const
      const options = { minVersion: firstHeartbeatVersion, timeoutMs }
      const response = await cluster.request(consumerGroupHeartbeatApi, request, to, options)
      checkCoordinator(response.errorCode)
      return response
    })
  }

  /** What the member is to have, by name. Topics whose ids have no name yet are left out, and looked for with the next heartbeat. */
  async #seats(): Promise<Seat[]> {
    const nameless = (): boolean => [...this.#target.keys()].some((id) => !this.#names.has(id))
    if (nameless()) await this.#learnNames({})
    if (nameless()) await this.#learnNames({ maxAgeMs: askNow })
    const seats: Seat[] = []
    this.#nameless = false
    for (const [topicId, partitions] of this.#target) {
      const name = this.#names.get(topicId)
      if (name === undefined) this.#nameless = true
      else for (const partition of partitions) seats.push({ ...name, partition, topicId })
    }
    return seats
  }

  /** Asks for the present ids of the topics. One that cannot be looked up now is asked for again with the next heartbeat. */
  async #learnNames(options: { readonly maxAgeMs?: number }): Promise<void> {
    const { cluster } = this.#tools
    const found = await Promise.allSettled([...this.#topics.keys()].map((topic) => cluster.topic(topic, options)))
    for (const outcome of found) {
      if (outcome.status === "rejected") continue
      const name = this.#topics.get(outcome.value.name)
      if (name !== undefined) this.#names.set(outcome.value.topicId, name)
    }
  }
}

/** A group as its coordinator describes it under KIP-848. */
export interface ConsumerGroupView {
  readonly generation: number
  readonly members: readonly {
    readonly memberId: string
    readonly instanceId: string | undefined
    /** By Kafka's names. */
    readonly partitions: readonly { readonly topic: string; readonly partition: number }[]
  }[]
}

/** `undefined` when the coordinator knows no such group, or one of the classic protocol. */
export async function describeConsumerGroup(tools: GroupTools, group: string): Promise<ConsumerGroupView | undefined> {
  const to = { kind: "coordinator", group } as const
  const described = await new Attempts(tools, group).run(async () => {
    const body = { groupIds: [group], includeAuthorizedOperations: false }
    const response = await tools.cluster.request(consumerGroupDescribeApi, body, to, { readOnly: true })
    const answer = response.groups[0]
    if (answer !== undefined) checkCoordinator(answer.errorCode)
    return answer
  })
  if (described === undefined || described.errorCode === errorCode.groupIdNotFound) return undefined
  if (described.errorCode !== errorCode.none) {
    throw kafkaError(described.errorCode, {
      what: `describing group ${JSON.stringify(group)}`,
      context: { group },
      detail: described.errorMessage,
      readOnly: true,
    })
  }
  return {
    generation: described.groupEpoch,
    members: described.members.map(({ memberId, instanceId, assignment }) => ({
      memberId,
      instanceId: instanceId ?? undefined,
      partitions: assignment.topicPartitions.flatMap(({ topicName, partitions }) =>
        partitions.map((partition) => ({ topic: topicName, partition })),
      ),
    })),
  }
}

/** @throws NotFoundError for the first topic that does not exist */
export async function checkTopics(cluster: Cluster, topics: readonly TopicName[]): Promise<void> {
  for (const { stream, topic } of topics) {
    const name = kafkaTopic({ stream, topic })
    try {
      // What is known may be old, and a member of a topic that is gone would wait for ever.
      await cluster.topic(name, { maxAgeMs: askNow })
    } catch (cause) {
      if (!(cause instanceof NotFoundError)) throw cause
      const text = stream === "" ? topic : `${stream}/${topic}`
      throw new NotFoundError(`topic "${text}" does not exist`, { context: { stream, topic }, cause })
    }
  }
}

function byTopicId(seats: readonly Seat[]): { readonly topicId: string; readonly partitions: number[] }[] {
  const topics = new Map<string, number[]>()
  for (const { topicId, partition } of seats) {
    const partitions = topics.get(topicId)
    if (partitions === undefined) topics.set(topicId, [partition])
    else partitions.push(partition)
  }
  return [...topics].map(([topicId, partitions]) => ({ topicId, partitions }))
}
