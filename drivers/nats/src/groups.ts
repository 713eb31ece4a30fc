/** The contract's groups: records in the key-value bucket, and the memberships that end with the session. */
import {
  AlreadyExistsError,
  ClosedError,
  type GroupCoordinator,
  type GroupDescription,
  type JoinOptions,
  type Membership,
  type TopicName,
} from "@millrace/contract"
import { newGroup, topicOf, withoutTopic, withTopic } from "./groups-change.ts"
import { type GroupMembership, openMembership } from "./membership.ts"
import { type MembershipTarget, type MembershipTools, noGroup } from "./membership-calls.ts"
import { described } from "./topic-layout.ts"

/** How long leaving all groups may hold up the end of a session, in ms: many times what a server needs that answers. */
const longestLeaveMs = 2_000

export class NatsGroups implements GroupCoordinator {
  readonly #tools: MembershipTools
  readonly #members = new Set<GroupMembership>()
  readonly #joining = new Set<Promise<unknown>>()
  #closed: Promise<void> | undefined

  constructor(tools: MembershipTools) {
    this.#tools = tools
  }

  async create(group: string, { stream, topic }: TopicName): Promise<void> {
    const { layouts, offsets } = this.#tools
    const { lineage, partitionCount } = await layouts.find({ stream, topic })
    const state = { stream, topic, lineage, partitions: partitionCount }
    const id = this.#newId()
    await offsets.groups.change(group, (record) => {
      if (record !== undefined && topicOf(record, state) !== undefined) {
        throw new AlreadyExistsError(`group ${JSON.stringify(group)} of topic ${described(state)} exists already`, {
          context: { group, stream, topic },
        })
      }
      return withTopic(record ?? newGroup(id), state)
    })
  }

  async describe(group: string, { stream, topic }: TopicName): Promise<GroupDescription> {
    const { record } = await this.#tools.offsets.groups.read(group)
    const own = record === undefined ? undefined : topicOf(record, { stream, topic })
    if (record === undefined || own === undefined) throw noGroup(group, [{ stream, topic }])
    const members = record.members
      .filter(({ topics }) => topics.includes(own.number))
      .map(({ number, memberId }) => ({
        memberId,
        partitions: record.claims
          .filter((claim) => claim.member === number && claim.topic === own.number)
          .map(({ partition }) => ({ stream, topic, partition })),
      }))
    return { group, generation: record.generation, members }
  }

  async delete(group: string, { stream, topic }: TopicName): Promise<void> {
    const { offsets } = this.#tools
    await offsets.groups.change(group, (record) => {
      if (record === undefined || topicOf(record, { stream, topic }) === undefined)
        throw noGroup(group, [{ stream, topic }])
      const rest = withoutTopic(record, { stream, topic })
      return rest.topics.length === 0 ? undefined : rest
    })
    // After the claims are void: a commit that comes between is swept away with the rest.
    await offsets.forgetGroup(group, { stream, topic })
  }

  async join(group: string, topics: readonly TopicName[], options: JoinOptions): Promise<Membership> {
    if (this.#closed !== undefined) throw closed(group)
    const target: MembershipTarget = {
      group,
      topics: topics.map(({ stream, topic }) => ({ stream, topic })),
      memberId: options.memberId ?? `member-${this.#newId()}`,
      sessionTimeoutMs: Math.ceil(options.sessionTimeoutMs),
      rebalanceTimeoutMs: Math.ceil(options.rebalanceTimeoutMs),
    }
    const opening = this.#open(target)
    this.#joining.add(opening)
    try {
      const membership = await opening
      if (this.#closed !== undefined) throw closed(group)
      return membership
    } finally {
      this.#joining.delete(opening)
    }
  }

  /**
   * Leaves every group, within 2 s; to be called before the connection is closed, which ends what is still under way. Members that the
   * bucket could not be told of are taken for dead after their session time-out, since their heartbeats have ended.
   */
  close(): Promise<void> {
    this.#closed ??= this.#leaveInTime()
    return this.#closed
  }

  async #leaveInTime(): Promise<void> {
    const { promise: late, resolve } = Promise.withResolvers<void>()
    const timer = this.#tools.connection.clock.setTimer(longestLeaveMs, resolve)
    await Promise.race([this.#leaveAll(), late])
    timer.cancel()
  }

  async #leaveAll(): Promise<void> {
    await Promise.allSettled(this.#joining)
    await Promise.allSettled([...this.#members].map((member) => member.leave()))
    this.#members.clear()
  }

  /** The membership is remembered until it has left; what a failed leave says, its caller hears. */
  async #open(target: MembershipTarget): Promise<GroupMembership> {
    this.#tools.connection.check()
    const membership = await openMembership(target, this.#tools)
    this.#members.add(membership)
    const forget = (): void => void this.#members.delete(membership)
    membership.over.then(() => membership.leave()).then(forget, forget)
    return membership
  }

  #newId(): string {
    const { random } = this.#tools.connection
    return Array.from({ length: 4 }, () => random.uint32().toString(16).padStart(8, "0")).join("")
  }
}

function closed(group: string): ClosedError {
  return new ClosedError(`cannot join group ${JSON.stringify(group)}: the session is closed`, { context: { group } })
}
