/** The groups of a session: the contract's facet, and the memberships that end with the session. */
import {
  AlreadyExistsError,
  ClosedError,
  type GroupCoordinator,
  type GroupDescription,
  type JoinOptions,
  type Membership,
  type TopicName,
} from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import { createConsumerGroup, deleteConsumerGroup, getConsumerGroup } from "./codec/group-commands.ts"
import type { GroupDetails } from "./codec/group-structures.ts"
import { missingGroup } from "./member-seat.ts"
import { GroupMembership, type MembershipTools } from "./membership.ts"
import { code, type Requests, refusedWith } from "./requests.ts"
import { keyOf, missingTopic, nameOf } from "./topic-lookup.ts"

export class IggyGroups implements GroupCoordinator {
  readonly #requests: Requests
  readonly #tools: { readonly clock: Clock; readonly random: Random; readonly open: MembershipTools["open"] }
  readonly #members = new Set<GroupMembership>()
  readonly #joining = new Set<Promise<unknown>>()
  /** The newest generation that members of this session have heard of, by group and topic. */
  readonly #generations = new Map<string, bigint>()
  #closed: Promise<void> | undefined

  constructor(
    requests: Requests,
    tools: { readonly clock: Clock; readonly random: Random; readonly open: MembershipTools["open"] },
  ) {
    this.#requests = requests
    this.#tools = tools
  }

  async create(group: string, name: TopicName): Promise<void> {
    const { stream, topic } = name
    try {
      await this.#requests.request(createConsumerGroup, { stream, topic, name: group })
    } catch (error) {
      if (refusedWith(error, code.streamNotFound, code.topicNotFound)) throw await missingTopic(this.#requests, name)
      if (!refusedWith(error, code.groupExists)) throw error
      throw new AlreadyExistsError(`group ${JSON.stringify(group)} of topic ${nameOf(name)} exists already`, {
        context: { group, stream, topic },
      })
    }
  }

  /**
   * The server tells the generation to members alone, and knows them by slots. So the generation is the newest that a member of this session
   * has heard of, 0 where there is none; and only members of this session that own a partition go by their names.
   */
  async describe(group: string, name: TopicName): Promise<GroupDescription> {
    const { stream, topic } = name
    const found = await this.#find(group, name)
    const members = found.members.map(({ id, partitions }) => ({
      memberId: this.#nameOfSlot(group, name, partitions) ?? `slot-${id}`,
      partitions: partitions.map((partition) => ({ stream, topic, partition })),
    }))
    return { group, generation: Number(this.#generations.get(generationKey(group, name)) ?? 0n), members }
  }

  async delete(group: string, name: TopicName): Promise<void> {
    const { stream, topic } = name
    try {
      await this.#requests.request(deleteConsumerGroup, { stream, topic, group })
      this.#generations.delete(generationKey(group, name))
    } catch (error) {
      if (refusedWith(error, code.groupNotFound)) throw missingGroup(group, name)
      if (!refusedWith(error, code.streamNotFound, code.topicNotFound)) throw error
      throw await missingTopic(this.#requests, name)
    }
  }

  async join(group: string, topics: readonly TopicName[], options: JoinOptions): Promise<Membership> {
    if (this.#closed !== undefined) throw closed(group)
    const opening = this.#open(group, topics, options)
    this.#joining.add(opening)
    try {
      const membership = await opening
      if (this.#closed !== undefined) throw closed(group)
      return membership
    } finally {
      this.#joining.delete(opening)
    }
  }

  /** Leaves every group. */
  close(): Promise<void> {
    this.#closed ??= this.#leaveAll()
    return this.#closed
  }

  async #leaveAll(): Promise<void> {
    await Promise.allSettled(this.#joining)
    await Promise.all([...this.#members].map((member) => member.leave()))
    this.#members.clear()
  }

  async #open(group: string, topics: readonly TopicName[], options: JoinOptions): Promise<GroupMembership> {
    const target = { group, topics, memberId: options.memberId ?? this.#newMemberId(), options }
    const membership = await GroupMembership.open(target, {
      clock: this.#tools.clock,
      open: this.#tools.open,
      onGeneration: (topic, generation) => this.#noteGeneration(generationKey(group, topic), generation),
    })
    this.#members.add(membership)
    const forget = (): void => void this.#members.delete(membership)
    membership.over.then(forget, forget)
    return membership
  }

  /** Members may hear of a change one after the other. */
  #noteGeneration(key: string, generation: bigint): void {
    const known = this.#generations.get(key)
    if (known === undefined || generation > known) this.#generations.set(key, generation)
  }

  async #find(group: string, name: TopicName): Promise<GroupDetails> {
    const { stream, topic } = name
    try {
      const found = await this.#requests.request(getConsumerGroup, { stream, topic, group })
      if (found !== undefined) return found
    } catch (error) {
      if (!refusedWith(error, code.streamNotFound, code.topicNotFound, code.groupNotFound)) throw error
      if (!refusedWith(error, code.groupNotFound)) throw await missingTopic(this.#requests, name)
    }
    throw missingGroup(group, name)
  }

  #nameOfSlot(group: string, name: TopicName, partitions: readonly number[]): string | undefined {
    for (const member of this.#members) {
      if (member.group !== group) continue
      const own = member.assigned().find(({ topic }) => keyOf(topic) === keyOf(name))
      if (own !== undefined && partitions.includes(own.partition)) return member.memberId
    }
    return undefined
  }

  #newMemberId(): string {
    const words = Array.from({ length: 4 }, () => this.#tools.random.uint32().toString(16).padStart(8, "0"))
    return `member-${words.join("")}`
  }
}

function generationKey(group: string, topic: TopicName): string {
  return `${group.length}/${group}/${keyOf(topic)}`
}

function closed(group: string): ClosedError {
  return new ClosedError(`cannot join group ${JSON.stringify(group)}: the session is closed`, { context: { group } })
}
