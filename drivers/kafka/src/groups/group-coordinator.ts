/** The groups of a session: the contract's facet, and the memberships that end with the session. */
import {
  ClosedError,
  type GroupCoordinator,
  type GroupDescription,
  InvalidError,
  type JoinOptions,
  type Membership,
  MillraceError,
  type TopicName,
} from "@millrace/contract"
import { checkGroupName } from "../offsets/offset-owner.ts"
import { consumerGroupHeartbeatApi } from "../protocol/api.ts"
import { ClassicProtocol } from "./classic-protocol.ts"
import { ConsumerProtocol, checkTopics, type GroupTools } from "./consumer-protocol.ts"
import { deleteGroup, describeGroup } from "./group-requests.ts"
import { type GroupMembership, openMembership } from "./membership.ts"

/** KIP-848 where the cluster offers it, or the one that is wished for. */
export type GroupProtocolChoice = "auto" | "consumer" | "classic"

/** The finalized feature that turns KIP-848 on, and its first version on the wire that members of ours speak. */
const groupFeature = "group.version"
const firstHeartbeatVersion = 1

/** What a close waits at most for joins under way, so that those members can leave, and then again for all to leave. ms */
const farewellMs = 2_500

export class KafkaGroupCoordinator implements GroupCoordinator {
  readonly #tools: GroupTools
  readonly #protocol: GroupProtocolChoice
  readonly #members = new Set<GroupMembership>()
  readonly #joining = new Set<Promise<unknown>>()
  #closed: Promise<void> | undefined

  constructor(tools: GroupTools & { readonly protocol?: GroupProtocolChoice }) {
    this.#tools = tools
    this.#protocol = tools.protocol ?? "auto"
  }

  /** Groups are names: there is nothing to do. @throws NotFoundError for a topic that is not there */
  async create(group: string, topic: TopicName): Promise<void> {
    this.#checkOpen(group)
    checkGroupName(group)
    await checkTopics(this.#tools.cluster, [topic])
  }

  /** The generation of a group of the classic protocol is not told by Kafka: it is 0. */
  async describe(group: string, topic: TopicName): Promise<GroupDescription> {
    this.#checkOpen(group)
    checkGroupName(group)
    return describeGroup(this.#tools, group, topic)
  }

  async delete(group: string, topic: TopicName): Promise<void> {
    this.#checkOpen(group)
    checkGroupName(group)
    await deleteGroup(this.#tools, group, topic)
  }

  async join(group: string, topics: readonly TopicName[], options: JoinOptions): Promise<Membership> {
    this.#checkOpen(group)
    checkGroupName(group)
    if (topics.length === 0) throw new InvalidError(`a member of group ${JSON.stringify(group)} needs a topic to read`)
    const opening = this.#join(group, topics, options)
    this.#joining.add(opening)
    try {
      const membership = await opening
      this.#checkOpen(group)
      return membership
    } finally {
      this.#joining.delete(opening)
    }
  }

  /**
   * Leaves every group, as far as that goes within its time. To be called before the cluster closes, which ends what is left. A
   * coordinator that does not answer is no failure: it takes the member for dead after its session timeout. Any other failure is told
   * once all have settled.
   */
  close(): Promise<void> {
    this.#closed ??= this.#leaveAll()
    return this.#closed
  }

  async #leaveAll(): Promise<void> {
    await this.#inTime(Promise.allSettled(this.#joining))
    const outcomes = await this.#inTime(Promise.allSettled([...this.#members].map((member) => member.leave())))
    this.#members.clear()
    const failure = outcomes?.find((outcome) => outcome.status === "rejected" && !isOutage(outcome.reason))
    if (failure?.status === "rejected") throw failure.reason
  }

  /** `undefined` when the time is over first. */
  #inTime<T>(work: Promise<T>): Promise<T | undefined> {
    return Promise.race([work, this.#tools.pauses.wait(farewellMs).then(() => undefined)])
  }

  async #join(group: string, topics: readonly TopicName[], options: JoinOptions): Promise<GroupMembership> {
    await checkTopics(this.#tools.cluster, topics)
    const membership = await this.#open(group, topics, options)
    this.#members.add(membership)
    // It never rejects.
    void membership.over.then(() => this.#members.delete(membership))
    return membership
  }

  async #open(group: string, topics: readonly TopicName[], options: JoinOptions): Promise<GroupMembership> {
    const { sessionTimeoutMs, rebalanceTimeoutMs, memberId: instanceId } = options
    const member = { group, instanceId, sessionTimeoutMs, rebalanceTimeoutMs }
    const { clock } = this.#tools
    if (this.#speaksConsumer()) {
      try {
        const protocol = new ConsumerProtocol(this.#tools, { ...member, memberId: this.#newMemberId() }, topics)
        return await openMembership(group, protocol, clock)
      } catch (error) {
        if (this.#protocol === "consumer" || !isOfClassicGroup(error)) throw error
      }
    }
    return openMembership(group, new ClassicProtocol(this.#tools, member, topics), clock)
  }

  #speaksConsumer(): boolean {
    if (this.#protocol !== "auto") return this.#protocol === "consumer"
    const { cluster } = this.#tools
    return cluster.feature(groupFeature) >= 1 && cluster.offers(consumerGroupHeartbeatApi, firstHeartbeatVersion)
  }

  /** 128 random bits in the form of Kafka's own ids. */
  #newMemberId(): string {
    const words = Uint32Array.from({ length: 4 }, () => this.#tools.random.uint32())
    return Buffer.from(words.buffer).toString("base64url")
  }

  #checkOpen(group: string): void {
    if (this.#closed === undefined) return
    throw new ClosedError(`group ${JSON.stringify(group)} cannot be used: the session is closed`, {
      context: { group },
    })
  }
}

function isOutage(error: unknown): boolean {
  return error instanceof MillraceError && (error.kind === "connection" || error.kind === "timeout")
}

/** The group has members of the classic protocol, and the cluster does not let the two mix (`group.consumer.migration.policy`). */
function isOfClassicGroup(error: unknown): boolean {
  if (!(error instanceof MillraceError)) return false
  const { kafkaError } = error.context
  return kafkaError === "INCONSISTENT_GROUP_PROTOCOL" || kafkaError === "GROUP_ID_NOT_FOUND"
}
