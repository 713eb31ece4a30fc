/** What a membership asks of the bucket, one method a call of its machine. Holds what must be remembered between calls, no policy. */
import { FencedError, MillraceError, NotFoundError, type TopicName } from "@millrace/contract"
import type { Connection } from "./connection.ts"
import { reported, type TopicState, topicOf, withMember, withoutMember, withTopic } from "./groups-change.ts"
import type { GroupRecord } from "./groups-record.ts"
import { type GroupView, type OwnClaim, viewOf } from "./groups-view.ts"
import type { MembershipCall } from "./membership.machine.ts"
import type { Sign } from "./membership-vigil.ts"
import type { NatsOffsets } from "./offsets.ts"
import { beatKey } from "./offsets-key.ts"
import { described, type TopicLayouts } from "./topic-layout.ts"

/** Who joins what. */
export interface MembershipTarget {
  readonly group: string
  readonly topics: readonly TopicName[]
  readonly memberId: string
  readonly sessionTimeoutMs: number
  readonly rebalanceTimeoutMs: number
}

/** What a membership works with. */
export interface MembershipTools {
  readonly connection: Connection
  readonly layouts: TopicLayouts
  readonly offsets: NatsOffsets
}

/** The answer of a report. */
export interface ReportAnswer {
  /** Absent when the record does not list the member. */
  readonly view: GroupView | undefined
  readonly signs: readonly Sign[]
}

export class MembershipCalls {
  readonly #target: MembershipTarget
  readonly #tools: MembershipTools
  /** The record's id at the last join: numbers of another one mean nothing. */
  #recordId: string | undefined
  /** Claims that carry the member's mark already. */
  readonly #fenced = new Set<number>()
  #beats = 0

  constructor(target: MembershipTarget, tools: MembershipTools) {
    this.#target = target
    this.#tools = tools
  }

  /**
   * Puts the member into the record, in the place of one with the same id.
   * @param returning Topics that are gone meanwhile are passed over, as long as one is left.
   * @throws NotFoundError for the group or a topic
   */
  async join(returning: boolean): Promise<{ readonly member: number; readonly view: GroupView }> {
    const { group, topics, memberId } = this.#target
    const states = await Promise.all(topics.map((topic) => this.#stateOf(topic)))
    const missing = states.find(({ lineage }) => lineage === undefined)
    if (missing !== undefined && !returning) throw noTopic(missing)
    const { record } = await this.#tools.offsets.groups.change(group, (present) => {
      if (present === undefined) throw noGroup(group)
      const known = states.filter((state) => topicOf(present, state) !== undefined)
      if (known.length === 0 || (known.length < states.length && !returning)) throw noGroup(group, states)
      const upToDate = known.reduce((next, state) => withTopic(next, state), present)
      return withMember(upToDate, { ...this.#target, topics: known })
    })
    const member = record?.members.find((one) => one.memberId === memberId)?.number
    if (record === undefined || member === undefined) throw noGroup(group)
    this.#recordId = record.id
    this.#fenced.clear()
    this.#beats = 0
    return { member, view: await this.#fencedView(record, member) }
  }

  /**
   * Tells what the member has to tell, and looks.
   * @throws FencedError when another member has taken its id
   */
  async report(call: MembershipCall & { readonly name: "report" }): Promise<ReportAnswer> {
    const { group, memberId, topics } = this.#target
    const { offsets } = this.#tools
    const { member, released, overdue } = call
    const [signs, states] = await Promise.all([this.#signs(call), call.topics ? this.#states(topics) : []])
    const silent = call.silent.filter(({ member: peer, beat }) =>
      signs.some((sign) => sign.member === peer && sign.beat === beat),
    )
    const news = { released, overdue, silent: silent.map((sign) => sign.member), topics: states }
    const { record } = await offsets.groups.change(group, (present) =>
      present?.id === this.#recordId && present !== undefined ? reported(present, member, news) : present,
    )
    await Promise.all(silent.map((sign) => offsets.bucket.purge(beatKey(group, sign.member))))
    if (record === undefined || record.id !== this.#recordId) return { view: undefined, signs }
    if (!record.members.some(({ number }) => number === member)) {
      if (record.members.some((other) => other.memberId === memberId)) throw replaced(this.#target)
      await offsets.bucket.purge(beatKey(group, member))
      return { view: undefined, signs }
    }
    return { view: await this.#fencedView(record, member), signs }
  }

  /** Takes the member out of the record. */
  async leave(member: number): Promise<void> {
    const { group } = this.#target
    const { offsets } = this.#tools
    await offsets.groups.change(group, (present) =>
      present !== undefined && present.id === this.#recordId ? withoutMember(present, member) : present,
    )
    await offsets.bucket.purge(beatKey(group, member))
  }

  /** Sends the next heartbeat, if there is a server to send it to. */
  beat(member: number): void {
    if (!this.#tools.connection.connected) return
    this.#beats++
    this.#tools.offsets.bucket.send(beatKey(this.#target.group, member), Buffer.from(String(this.#beats)))
  }

  /**
   * The view, without claims on whose offsets another member's mark could still be: those are fenced first, and what cannot be fenced now
   * is left out until the next look.
   */
  async #fencedView(record: GroupRecord, member: number): Promise<GroupView> {
    const view = viewOf(record, member) as GroupView
    const present = new Set(view.claims.map(({ number }) => number))
    for (const number of this.#fenced) if (!present.has(number)) this.#fenced.delete(number)
    const open = view.claims.filter(({ number }) => !this.#fenced.has(number))
    await Promise.all(open.map((claim) => this.#fence(record.id, claim)))
    return { ...view, claims: view.claims.filter(({ number }) => this.#fenced.has(number)) }
  }

  async #fence(id: string, claim: OwnClaim): Promise<void> {
    try {
      const done = await this.#tools.offsets.fence(this.#target.group, claim, { group: id, number: claim.number })
      if (done) this.#fenced.add(claim.number)
    } catch (error) {
      // It is tried again with every look, and the partition stays without a reader until it is done.
      if (!(error instanceof MillraceError && error.retryable)) throw error
    }
  }

  /** The present heartbeats of those in doubt, and of those who are about to be taken for dead. */
  async #signs({ doubtful, silent }: MembershipCall & { readonly name: "report" }): Promise<Sign[]> {
    const members = new Set([...doubtful, ...silent.map((sign) => sign.member)])
    return await Promise.all(
      [...members].map(async (member) => {
        const { value } = await this.#tools.offsets.bucket.get(beatKey(this.#target.group, member))
        return { member, beat: beatOf(value) }
      }),
    )
  }

  /** Topics as they are now. One that cannot be asked for at the moment is left out. */
  async #states(topics: readonly TopicName[]): Promise<TopicState[]> {
    const states = await Promise.all(
      topics.map(async (topic) => {
        try {
          return [await this.#stateOf(topic)]
        } catch (error) {
          if (error instanceof MillraceError && error.retryable) return []
          throw error
        }
      }),
    )
    return states.flat()
  }

  async #stateOf({ stream, topic }: TopicName): Promise<TopicState> {
    try {
      const { lineage, partitionCount } = await this.#tools.layouts.find({ stream, topic })
      return { stream, topic, lineage, partitions: partitionCount }
    } catch (error) {
      if (error instanceof NotFoundError) return { stream, topic, lineage: undefined, partitions: 0 }
      throw error
    }
  }
}

/** The number of a heartbeat; −1 where there is none. */
export function beatOf(value: Uint8Array | undefined): number {
  const text = Buffer.from(value ?? []).toString("latin1")
  return /^\d{1,15}$/.test(text) ? Number(text) : -1
}

/** @throws NotFoundError's making: the group does not exist, or not for these topics */
export function noGroup(group: string, topics: readonly TopicName[] = []): NotFoundError {
  const where = topics.length === 0 ? "" : ` for topic ${topics.map(described).join(", ")}`
  return new NotFoundError(`group ${JSON.stringify(group)} does not exist${where}`, { context: { group } })
}

function noTopic({ stream, topic }: TopicName): NotFoundError {
  return new NotFoundError(`topic ${described({ stream, topic })} does not exist`, { context: { stream, topic } })
}

function replaced({ group, memberId }: MembershipTarget): FencedError {
  return new FencedError(
    `member ${JSON.stringify(memberId)} of group ${JSON.stringify(group)} was replaced: another member has joined under its id`,
    { context: { group, memberId } },
  )
}
