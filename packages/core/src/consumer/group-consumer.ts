import {
  AlreadyExistsError,
  type AssignmentChange,
  type Claim,
  ClosedError,
  type Membership,
  MillraceError,
  type TopicName,
  type TopicPartition,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { ClientContext } from "../client/context.ts"
import { checkName, topicKey, topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"
import { need } from "../client/topic-options.ts"
import type { Consumer } from "./consumer.ts"
import { type GroupConsumerOptions, type GroupSettings, groupConsumerSettings } from "./consumer-options.ts"
import { asMillraceError } from "./failure.ts"
import { LogConsumer } from "./log-consumer.ts"

/**
 * The most that a revoked partition waits for its last message to be handled, in ms. Within it a handler that is about to finish still
 * commits, and the message is not delivered twice; more would hold up the group for a caller that does not read.
 */
const drainMs = 1000

/**
 * Joins a group and reads the partitions it gives (`topic.consumerGroup(name).consumer`, seed 000). Settles once the first assignment has
 * its positions: records that are published from then on are delivered.
 * @param source.topic The topic that the group was named on; `options.topics` adds to it.
 * @throws InvalidError for an option or a name; NotFoundError when a topic is missing, or the group with `createGroup: false`;
 *   UnsupportedError where the backend has no groups.
 */
export async function openGroupConsumer(
  context: ClientContext,
  source: { readonly topic: TopicName; readonly group: string },
  options?: GroupConsumerOptions,
): Promise<Consumer> {
  const { session, clock } = context
  const { manifest } = session
  const what = `consumer of group ${shown(source.group)} on topic "${topicText(source.topic)}"`
  const group = checkName("group", source.group, manifest.limits)
  const settings = groupConsumerSettings(what, options, manifest.limits)
  need(manifest, manifest.groups, { owner: what, what: "consumer groups" })
  if (settings.group.memberId !== undefined) {
    need(manifest, manifest.staticMembers, { owner: `${what}: option "memberId"`, what: "members with a stable name" })
  }
  const topics = distinct([source.topic, ...settings.group.topics])
  const { initRetries, initRetryIntervalMs } = settings.consumer
  const membership = await retried(clock, { retries: initRetries, intervalMs: initRetryIntervalMs }, () =>
    join(context, { group, topics }, settings.group),
  )
  const consumer = new LogConsumer(
    context,
    { what, owner: { kind: "group", name: group }, partition: undefined },
    settings.consumer,
  )
  const member = new GroupMember(membership, consumer, clock)
  try {
    await member.begin()
  } catch (error) {
    // The reason why the consumer did not come to be counts for more than what its end may fail with.
    await consumer.shutdown().catch(() => {})
    throw error
  }
  return consumer
}

/** Follows a membership: gains, hands over and loses partitions for a consumer. */
class GroupMember {
  readonly #membership: Membership
  readonly #consumer: LogConsumer
  readonly #clock: Clock

  constructor(membership: Membership, consumer: LogConsumer, clock: Clock) {
    this.#membership = membership
    this.#consumer = consumer
    this.#clock = clock
    consumer.onLeave(() => membership.leave())
  }

  /** The first assignment, with its positions; the rest is followed in the background. */
  async begin(): Promise<void> {
    const changes = this.#membership.changes[Symbol.asyncIterator]()
    const first = await changes.next()
    if (first.done === true) throw new ClosedError("the membership ended before its first assignment")
    const gained = this.#apply(first.value, { later: false })
    this.#follow(changes)
    await gained
  }

  #follow(changes: AsyncIterator<AssignmentChange>): void {
    const follow = async (): Promise<void> => {
      for (let change = await changes.next(); change.done !== true; change = await changes.next()) {
        // A start that fails is handed out in its place by the partition itself.
        this.#apply(change.value, { later: true }).catch(() => {})
      }
      if (!this.#consumer.ended) this.#consumer.failForGood(new ClosedError("the membership of the group has ended"))
    }
    follow().catch((error) => {
      if (!this.#consumer.ended) this.#consumer.failForGood(asMillraceError(error))
    })
  }

  /** Settles when what was assigned has positions. Handing over goes on beside it. */
  #apply(change: AssignmentChange, { later }: { readonly later: boolean }): Promise<void> {
    const consumer = this.#consumer
    if (consumer.ended) return Promise.resolve()
    const lost = change.lost.filter((claim) => this.#drop(claim))
    if (lost.length > 0) consumer.listeners.tell("lost", lost.map(placeOf))
    if (change.revoked.length > 0) this.#handOver(change.revoked, change.deadlineMs)
    if (change.assigned.length === 0) return Promise.resolve()
    const gained = consumer.gain(change.assigned, { later })
    consumer.listeners.tell("assigned", change.assigned.map(placeOf))
    return gained
  }

  #handOver(claims: readonly Claim[], deadlineMs: number): void {
    this.#release(claims, deadlineMs).catch((error) => {
      // After the end, and for a partition that went meanwhile, there is nothing left to hand over.
      const known = asMillraceError(error)
      const moot =
        this.#consumer.ended || known.kind === "fenced" || known.kind === "not-assigned" || known.kind === "closed"
      if (!moot) this.#consumer.fail(known)
    })
  }

  /** Drains, commits, drops, releases: in this order, so that the next member starts behind all that is stored. */
  async #release(claims: readonly Claim[], deadlineMs: number): Promise<void> {
    const lanes = claims.map((claim) => this.#consumer.lane(claim)).filter((lane) => lane !== undefined)
    const patience = this.#patience(Math.min(drainMs, deadlineMs / 2))
    try {
      await Promise.all(lanes.map((lane) => this.#consumer.drain(lane, patience.over)))
    } finally {
      patience.cancel()
    }
    for (const lane of lanes) if (lane.live) this.#consumer.drop(lane)
    await this.#membership.release(claims)
    this.#consumer.listeners.tell("revoked", claims.map(placeOf))
  }

  #patience(ms: number): { readonly over: Promise<void>; cancel(): void } {
    let cancel = (): void => {}
    const over = new Promise<void>((resolve) => {
      const timer = this.#clock.setTimer(ms, resolve)
      cancel = () => timer.cancel()
    })
    return { over, cancel }
  }

  /** Changes come in order: whatever is read of this partition now is what the claim speaks of. */
  #drop(claim: Claim): boolean {
    const lane = this.#consumer.lane(claim)
    if (lane !== undefined) this.#consumer.drop(lane)
    return lane !== undefined
  }
}

async function join(
  { session }: ClientContext,
  { group, topics }: { readonly group: string; readonly topics: readonly TopicName[] },
  settings: GroupSettings,
): Promise<Membership> {
  if (settings.createGroup) {
    for (const topic of topics) {
      try {
        await session.groups.create(group, topic)
      } catch (error) {
        if (!(error instanceof AlreadyExistsError)) throw error
      }
    }
  }
  const { memberId, sessionTimeoutMs, rebalanceTimeoutMs } = settings
  const timeouts = { sessionTimeoutMs, rebalanceTimeoutMs }
  return session.groups.join(group, topics, memberId === undefined ? timeouts : { ...timeouts, memberId })
}

/** Tries again after a failure that time may mend: everything but a wrong call. */
async function retried<V>(
  clock: Clock,
  tries: { readonly retries: number; readonly intervalMs: number },
  work: () => Promise<V>,
): Promise<V> {
  for (let failed = 0; ; failed++) {
    try {
      return await work()
    } catch (error) {
      const final = error instanceof MillraceError && (error.kind === "invalid" || error.kind === "closed")
      if (final || failed >= tries.retries) throw error
    }
    await new Promise<void>((resolve) => void clock.setTimer(tries.intervalMs, resolve))
  }
}

function distinct(topics: readonly TopicName[]): TopicName[] {
  return [...new Map(topics.map((topic) => [topicKey(topic), topic])).values()]
}

function placeOf({ stream, topic, partition }: TopicPartition): TopicPartition {
  return { stream, topic, partition }
}
