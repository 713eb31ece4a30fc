/** The requests of the classic group protocol: JoinGroup and SyncGroup, Heartbeat, LeaveGroup, with the assignment in between. */
import { MillraceError, NotFoundError, type TopicName } from "@millrace/contract"
import type { NodeConnection } from "../cluster/cluster.ts"
import { errorCode, kafkaError, meansOtherCoordinator } from "../errors.ts"
import { kafkaTopic } from "../names.ts"
import { Attempts, checkCoordinator } from "../offsets/attempts.ts"
import { type Api, heartbeatApi, joinGroupApi, leaveGroupApi, syncGroupApi } from "../protocol/api.ts"
import {
  decodeAssignment,
  decodeSubscription,
  encodeAssignment,
  encodeSubscription,
} from "../protocol/member-metadata.ts"
import type { JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest } from "../protocol/messages.generated.ts"
import type { Assignor, AssignorMember, TopicPart } from "./assignor.ts"
import {
  type ClassicAnswer,
  type ClassicCall,
  type ClassicMember,
  ClassicProtocolMachine,
} from "./classic-protocol.machine.ts"
import { type GroupTools, goodbyeMs } from "./consumer-protocol.ts"
import { cooperativeStickyAssignor } from "./cooperative-sticky-assignor.ts"
import type { Seat } from "./member-claims.ts"
import type { MemberProtocol } from "./membership.ts"
import { rangeAssignor } from "./range-assignor.ts"

/** In the order of preference; the coordinator takes one that every member has. */
const assignors: readonly Assignor[] = [cooperativeStickyAssignor, rangeAssignor]
const protocolType = "consumer"
/** Of what members tell each other: with owned partitions, without generation, as every client of the last years reads it. */
const subscriptionVersion = 1
const assignmentVersion = 1
/** How often the leader looks whether the topics have other partitions than it gave out, in ms. */
const topicCheckMs = 2000
/** From this version on a static member can be named when it leaves; before there are none. */
const firstStaticLeave = 3

/** What the member knows of the generation that it is in. */
interface Generation {
  readonly number: number
  readonly memberId: string
  readonly protocol: string
  /** What the topics looked like when this member gave their partitions out; `undefined` for who is not the leader. */
  readonly led: string | undefined
}

/** One member that speaks the classic protocol, on a connection of its own: a join holds up whatever is behind it. */
export class ClassicProtocol implements MemberProtocol<ClassicCall, ClassicAnswer> {
  readonly machine: ClassicProtocolMachine
  readonly #tools: GroupTools
  readonly #member: ClassicMember
  readonly #topics: ReadonlyMap<string, TopicName>
  #connection: NodeConnection | undefined
  #generation: Generation | undefined
  #memberId = ""
  #checkedMs = 0
  #closed = false

  constructor(tools: GroupTools, member: ClassicMember, topics: readonly TopicName[]) {
    this.#tools = tools
    this.#member = member
    this.#topics = new Map(topics.map(({ stream, topic }) => [kafkaTopic({ stream, topic }), { stream, topic }]))
    this.machine = new ClassicProtocolMachine(member)
  }

  get memberId(): string {
    return this.#member.instanceId ?? this.#memberId
  }

  /** The generation that this member is in; 0 before the first. */
  get generation(): number {
    return this.#generation?.number ?? 0
  }

  perform(call: ClassicCall): Promise<ClassicAnswer> {
    switch (call.name) {
      case "join":
        return this.#join(call)
      case "beat":
        return this.#beat(call)
      case "leave":
        return this.#leave(call)
    }
  }

  close(): void {
    this.#closed = true
    this.#connection?.close()
    this.#connection = undefined
  }

  async #join(call: ClassicCall & { name: "join" }): Promise<ClassicAnswer> {
    const joined = await this.#joinGroup(call)
    if (joined.kind !== "response") return joined
    const { response } = joined
    this.#memberId = response.memberId
    const leads = response.leader === response.memberId && !response.skipAssignment
    const plan = leads ? await this.#plan(response) : undefined
    const synced = await this.#ask(syncGroupApi, () => ({
      groupId: this.#member.group,
      generationId: response.generationId,
      memberId: response.memberId,
      ...this.#instance(),
      protocolType,
      protocolName: response.protocolName,
      assignments: plan?.assignments ?? [],
    }))
    const failure = this.#failureOf(synced.errorCode)
    if (failure?.kind === "rebalance") return { kind: "rebalance", memberId: response.memberId }
    if (failure !== undefined) return failure
    this.#generation = {
      number: response.generationId,
      memberId: response.memberId,
      protocol: response.protocolName ?? "",
      led: plan?.topics,
    }
    this.#checkedMs = this.#tools.clock.monotonicMs()
    return {
      kind: "joined",
      memberId: response.memberId,
      generation: response.generationId,
      eager: assignorOf(response.protocolName).eager,
      target: await this.#seats(synced.assignment),
    }
  }

  /** Joins; a coordinator that wants the member to have an id first gives one (KIP-394). */
  async #joinGroup(
    call: ClassicCall & { name: "join" },
  ): Promise<{ readonly kind: "response"; readonly response: JoinGroupResponse } | ClassicAnswer> {
    let memberId = call.memberId
    for (let again = true; ; again = false) {
      const request = this.#joinRequest(call, memberId)
      const timeoutMs = this.#member.rebalanceTimeoutMs + this.#tools.cluster.requestTimeoutMs
      const response = await this.#ask(joinGroupApi, () => request, timeoutMs)
      if (response.errorCode === errorCode.memberIdRequired && again) {
        memberId = response.memberId
        continue
      }
      const failure = this.#failureOf(response.errorCode)
      if (failure?.kind === "rebalance") return { kind: "rebalance", memberId }
      return failure ?? { kind: "response", response }
    }
  }

  #joinRequest(call: ClassicCall & { name: "join" }, memberId: string): JoinGroupRequest {
    const { group, sessionTimeoutMs, rebalanceTimeoutMs } = this.#member
    return {
      groupId: group,
      sessionTimeoutMs: Math.ceil(sessionTimeoutMs),
      rebalanceTimeoutMs: Math.ceil(rebalanceTimeoutMs),
      memberId,
      ...this.#instance(),
      protocolType,
      protocols: assignors.map(({ name, eager }) => ({ name, metadata: this.#subscription(call, eager) })),
    }
  }

  /** What the member has is also told under an eager assignor, which does not look at it. */
  #subscription({ owned, generation }: ClassicCall & { name: "join" }, eager: boolean): Uint8Array {
    const topics = new Map<string, number[]>()
    for (const seat of owned) {
      const topic = kafkaTopic(seat)
      const partitions = topics.get(topic)
      if (partitions === undefined) topics.set(topic, [seat.partition])
      else partitions.push(seat.partition)
    }
    return encodeSubscription(
      {
        topics: [...this.#topics.keys()].toSorted(),
        // Where Kafka's cooperative assignor keeps the generation of the owned partitions.
        userData: eager ? null : int32(generation),
        ownedPartitions: [...topics].map(([topic, partitions]) => ({ topic, partitions })),
      },
      subscriptionVersion,
    )
  }

  async #beat(call: ClassicCall & { name: "beat" }): Promise<ClassicAnswer> {
    const { errorCode: code } = await this.#ask(
      heartbeatApi,
      () => ({
        groupId: this.#member.group,
        generationId: call.generation,
        memberId: call.memberId,
        ...this.#instance(),
      }),
      this.#beatTimeoutMs,
    )
    return this.#failureOf(code) ?? ((await this.#topicsChanged()) ? { kind: "rebalance" } : { kind: "beat" })
  }

  async #leave({ memberId }: ClassicCall & { name: "leave" }): Promise<ClassicAnswer> {
    const { group } = this.#member
    const body = (version: number): LeaveGroupRequest =>
      version >= firstStaticLeave
        ? { groupId: group, members: [{ memberId, ...this.#instance() }] }
        : { groupId: group, memberId, members: [] }
    const response = await this.#ask(leaveGroupApi, body, goodbyeMs)
    const code = response.errorCode !== errorCode.none ? response.errorCode : (response.members[0]?.errorCode ?? 0)
    // Whoever is unknown or replaced is gone, too.
    this.#failureOf(code)
    return { kind: "left" }
  }

  #failureOf(code: number): (ClassicAnswer & { kind: "gone" | "replaced" | "rebalance" }) | undefined {
    if (code === errorCode.none) return undefined
    const { group } = this.#member
    const error = kafkaError(code, {
      what: `taking part in group ${JSON.stringify(group)}`,
      context: { group, memberId: this.memberId },
    })
    switch (code) {
      case errorCode.rebalanceInProgress:
        return { kind: "rebalance" }
      case errorCode.unknownMemberId:
        return { kind: "gone", unknown: true, error }
      case errorCode.illegalGeneration:
        return { kind: "gone", unknown: false, error }
      case errorCode.fencedInstanceId:
        return { kind: "replaced", error }
      default:
        throw error
    }
  }

  // ---- the leader's part ----------------------------------------------------------------------------------

  async #plan(
    response: JoinGroupResponse,
  ): Promise<{ readonly topics: string; readonly assignments: { memberId: string; assignment: Uint8Array }[] }> {
    const members = response.members.map(({ memberId, groupInstanceId, metadata }) =>
      toMember(memberId, groupInstanceId, metadata),
    )
    const { counts, text } = await this.#topicCounts(members.flatMap(({ topics }) => topics))
    const given = assignorOf(response.protocolName).assign(members, counts)
    const assignments = [...given].map(([memberId, parts]) => ({ memberId, assignment: toAssignment(parts) }))
    return { topics: text, assignments }
  }

  /** How many partitions each topic has that is there, and a text that changes with it, also when a topic is recreated. */
  async #topicCounts(
    topics: readonly string[],
    options: { readonly maxAgeMs?: number } = {},
  ): Promise<{ readonly counts: Map<string, number>; readonly text: string }> {
    const counts = new Map<string, number>()
    const words: string[] = []
    for (const topic of [...new Set(topics)].toSorted()) {
      try {
        const { partitions, topicId } = await this.#tools.cluster.topic(topic, options)
        counts.set(topic, partitions.length)
        words.push(`${topic}:${topicId}:${partitions.length}`)
      } catch (error) {
        if (!(error instanceof NotFoundError)) throw error
      }
    }
    return { counts, text: words.join(" ") }
  }

  /** Only the leader looks, and only now and then: its own topics, which in a group are commonly everybody's. */
  async #topicsChanged(): Promise<boolean> {
    const led = this.#generation?.led
    const nowMs = this.#tools.clock.monotonicMs()
    if (led === undefined || nowMs - this.#checkedMs < topicCheckMs) return false
    this.#checkedMs = nowMs
    const known = new Set(led.split(" ").map((word) => word.split(":")[0] as string))
    for (const topic of this.#topics.keys()) known.add(topic)
    known.delete("")
    const { text } = await this.#topicCounts([...known], { maxAgeMs: topicCheckMs / 2 })
    return text !== led
  }

  // ---- requests -------------------------------------------------------------------------------------------

  /** What the leader gave, of the topics that are there now. */
  async #seats(assignment: Uint8Array): Promise<Seat[]> {
    if (assignment.length === 0) return []
    const seats: Seat[] = []
    for (const { topic, partitions } of decodeAssignment(assignment).assignedPartitions) {
      const name = this.#topics.get(topic)
      if (name === undefined) continue
      const { topicId } = await this.#tools.cluster.topic(topic)
      for (const partition of partitions) seats.push({ ...name, partition, topicId })
    }
    return seats
  }

  /** A heartbeat that takes half of the session timeout is given up, and sent again. */
  get #beatTimeoutMs(): number {
    return Math.min(this.#tools.cluster.requestTimeoutMs, this.#member.sessionTimeoutMs / 2)
  }

  #instance(): { readonly groupInstanceId?: string } {
    const { instanceId } = this.#member
    return instanceId === undefined ? {} : { groupInstanceId: instanceId }
  }

  #ask<Q, S extends { readonly errorCode: number }>(
    api: Api<Q, S>,
    body: (version: number) => Q,
    timeoutMs: number = this.#tools.cluster.requestTimeoutMs,
  ): Promise<S> {
    return new Attempts(this.#tools, this.#member.group, timeoutMs).run(async () => {
      const connection = await this.#connect(timeoutMs)
      const response = await connection.request(api, body, { timeoutMs })
      if (meansOtherCoordinator(response.errorCode)) {
        connection.close()
        checkCoordinator(response.errorCode)
      }
      return response
    })
  }

  async #connect(timeoutMs: number): Promise<NodeConnection> {
    if (this.#connection !== undefined && !this.#connection.closed) return this.#connection
    const { cluster } = this.#tools
    const limit = { timeoutMs: Math.min(timeoutMs, cluster.requestTimeoutMs) }
    const connection = await cluster.open(await cluster.coordinator(this.#member.group, limit), limit)
    if (this.#closed) {
      connection.close()
      throw new MillraceError("closed", `the member of group ${JSON.stringify(this.#member.group)} has left`)
    }
    this.#connection = connection
    return connection
  }
}

function assignorOf(name: string | null): Assignor {
  const assignor = assignors.find((one) => one.name === name)
  if (assignor !== undefined) return assignor
  throw new MillraceError(
    "protocol",
    `the coordinator chose the assignor ${JSON.stringify(name)}, which was not offered`,
  )
}

function toMember(memberId: string, instanceId: string | null, metadata: Uint8Array): AssignorMember {
  const { topics, ownedPartitions, generationId, userData } = decodeSubscription(metadata)
  const told = generationId ?? -1
  return {
    memberId,
    instanceId: instanceId ?? undefined,
    topics,
    owned: (ownedPartitions ?? []).flatMap(({ topic = "", partitions = [] }) =>
      partitions.map((partition) => ({ topic, partition })),
    ),
    generation: told < 0 && userData != null && userData.length >= 4 ? fromInt32(userData) : told,
  }
}

function toAssignment(parts: readonly TopicPart[]): Uint8Array {
  const topics = new Map<string, number[]>()
  for (const { topic, partition } of parts) {
    const partitions = topics.get(topic)
    if (partitions === undefined) topics.set(topic, [partition])
    else partitions.push(partition)
  }
  const assignedPartitions = [...topics].map(([topic, partitions]) => ({ topic, partitions }))
  return encodeAssignment({ assignedPartitions, userData: null }, assignmentVersion)
}

function int32(value: number): Uint8Array {
  const bytes = new Uint8Array(4)
  new DataView(bytes.buffer).setInt32(0, value)
  return bytes
}

function fromInt32(bytes: Uint8Array): number {
  return new DataView(bytes.buffer, bytes.byteOffset, 4).getInt32(0)
}
