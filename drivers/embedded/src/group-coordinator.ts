/** The groups of a session: the contract's facet, and the memberships that end with the session. */
import {
  ClosedError,
  type GroupCoordinator,
  type GroupDescription,
  type JoinOptions,
  type Membership,
  type TopicName,
} from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import type { Channel } from "./channel.ts"
import type { GroupName } from "./engine/groups.ts"
import { type GroupMembership, type MembershipTarget, openMembership } from "./membership.ts"

/** The contract's groups over a channel to the engine. */
export class EmbeddedGroups implements GroupCoordinator {
  readonly #channel: Channel
  readonly #clock: Clock
  readonly #random: Random
  readonly #members = new Set<GroupMembership>()
  readonly #joining = new Set<Promise<unknown>>()
  #closed: Promise<void> | undefined

  constructor({
    channel,
    clock,
    random,
  }: { readonly channel: Channel; readonly clock: Clock; readonly random: Random }) {
    this.#channel = channel
    this.#clock = clock
    this.#random = random
  }

  create(group: string, topic: TopicName): Promise<void> {
    return this.#channel.call<void>("groups.create", { group, topic } satisfies GroupName)
  }

  describe(group: string, topic: TopicName): Promise<GroupDescription> {
    return this.#channel.call<GroupDescription>("groups.describe", { group, topic } satisfies GroupName)
  }

  delete(group: string, topic: TopicName): Promise<void> {
    return this.#channel.call<void>("groups.delete", { group, topic } satisfies GroupName)
  }

  async join(group: string, topics: readonly TopicName[], options: JoinOptions): Promise<Membership> {
    if (this.#closed !== undefined) throw closed(group)
    const memberId = options.memberId ?? this.#newMemberId()
    const opening = this.#open({ group, topics: topics.map(plainName), options: { ...options, memberId } })
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
   * Leaves every group. To be called before the channel closes. Rejects with the first failure once all have settled; members that
   * could not be removed are taken for dead after their session timeout, since their heartbeats have ended.
   */
  close(): Promise<void> {
    this.#closed ??= this.#leaveAll()
    return this.#closed
  }

  async #leaveAll(): Promise<void> {
    await Promise.allSettled(this.#joining)
    const outcomes = await Promise.allSettled([...this.#members].map((member) => member.leave()))
    this.#members.clear()
    const failure = outcomes.find((outcome) => outcome.status === "rejected")
    if (failure !== undefined) throw failure.reason
  }

  /** The membership is remembered until it has left; what a failed leave says, its caller hears. */
  async #open(target: MembershipTarget): Promise<GroupMembership> {
    const membership = await openMembership(target, { channel: this.#channel, clock: this.#clock })
    this.#members.add(membership)
    const forget = (): void => void this.#members.delete(membership)
    membership.over.then(() => membership.leave()).then(forget, forget)
    return membership
  }

  #newMemberId(): string {
    const words = Array.from({ length: 4 }, () => this.#random.uint32().toString(16).padStart(8, "0"))
    return `member-${words.join("")}`
  }
}

/** Callers may hand in larger objects, such as descriptions; only the name crosses the thread. */
function plainName({ stream, topic }: TopicName): TopicName {
  return { stream, topic }
}

function closed(group: string): ClosedError {
  return new ClosedError(`cannot join group ${JSON.stringify(group)}: the session is closed`, { context: { group } })
}
