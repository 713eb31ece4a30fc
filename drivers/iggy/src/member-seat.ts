/**
 * One member's place in one topic's group, and the manners of joining.
 *
 * The server moves partitions the moment a member joins. Its own way to wait for the old owner is to wait for the commit of what was
 * polled, up to half a minute, and a member that stops without having handled all that it polled never commits that. So members of
 * Millrace settle a join among themselves, by two groups beside the one in question, which nobody polls:
 *
 * 1. A newcomer joins `millrace.joining/…` and waits.
 * 2. Members look there whenever they ask for their assignment. Those that will lose partitions revoke them; once these are drained,
 *    committed and released, or there are none, the member joins `millrace.ready/…`.
 * 3. When all are ready, or its patience is over, the newcomer joins the group itself, and the server moves what was released.
 *
 * A member that dies leaves all three with its connection. Clients that know nothing of this join at once, as ever; then partitions are lost
 * without being drained, and what was not committed is delivered again. The same is true when a member leaves: the server deals
 * all partitions out anew.
 */
import { NotFoundError, type TopicName } from "@millrace/contract"
import {
  createConsumerGroup,
  getConsumerGroup,
  joinConsumerGroup,
  leaveConsumerGroup,
  syncConsumerGroup,
} from "./codec/group-commands.ts"
import type { GroupDetails } from "./codec/group-structures.ts"
import { partitionsToYield } from "./member-yield.ts"
import type { TopicSync } from "./membership.machine.ts"
import { code, type Requests, refusedWith } from "./requests.ts"
import { missingTopic, nameOf } from "./topic-lookup.ts"

/** Names of groups have at most so many bytes; groups whose names leave no room for the prefix do without manners. */
const mostNameBytes = 255

/** Newcomers with the same patience may be a little late. */
const graceMs = 2000

type MemberSync = Extract<TopicSync, { readonly kind: "member" }>

/** Now, and how long members may take to be ready for another one. */
interface SeatTimes {
  readonly nowMs: number
  readonly patienceMs: number
}

export class MemberSeat {
  readonly topic: TopicName
  readonly #requests: Requests
  readonly #group: string
  readonly #joining: string | undefined
  readonly #ready: string | undefined
  /** When this member announced itself; `undefined` when it does not wait. */
  #announcedMs: number | undefined
  #isReady = false
  #isStale = false
  /** Since when how many newcomers have been waiting in which generation, and how many of them are taken for dead. */
  #newcomers = { count: 0, generation: 0n, sinceMs: 0 }
  #dead = 0

  constructor(requests: Requests, topic: TopicName, group: string) {
    this.topic = topic
    this.#requests = requests
    this.#group = group
    this.#joining = besideName("millrace.joining/", group)
    this.#ready = besideName("millrace.ready/", group)
  }

  /** The session is another. A server that was killed may still have this member in any of the groups. */
  reset(): void {
    this.#announcedMs = undefined
    this.#isReady = false
    this.#isStale = true
  }

  /** Asks what is assigned, and what is to be handed over. @param live The partitions that the owner still works with. */
  ask(live: readonly number[], times: SeatTimes): Promise<TopicSync> {
    return this.#unlessGone(async () => {
      const [sync, joining] = await Promise.all([this.#assignment(), this.#find(this.#joining)])
      if (sync.kind !== "member") return sync
      // A join that half failed may have left it waiting beside.
      await this.#withdraw()
      if (!this.#noteNewcomers(joining?.membersCount ?? 0, sync.generation, times)) {
        await this.#setReady(false)
        return sync
      }
      return this.#yield(sync, live)
    })
  }

  /** Joins when the others are ready, or announces itself. To be asked again while it answers `waiting`. A member is just asked. */
  join(live: readonly number[], times: SeatTimes): Promise<TopicSync> {
    return this.#unlessGone(async () => {
      await this.#clean()
      const waits = this.#announcedMs !== undefined
      const [group, present, ready] = await Promise.all([
        this.#find(this.#group),
        this.ask(live, times),
        this.#find(waits ? this.#ready : undefined),
      ])
      if (group === undefined) return { kind: "gone", error: missingGroup(this.#group, this.topic) }
      if (present.kind !== "outside") return present
      if (await this.#mustWait({ members: group.membersCount, ready: ready?.membersCount ?? 0 }, times)) {
        return { kind: "waiting" }
      }
      // Sent together: nobody is to see this member in both places, and yield to it once more.
      const join = this.#requests.request(joinConsumerGroup, { ...this.#place, group: this.#group })
      await Promise.all([join, this.#withdraw()])
      return this.#assignment()
    })
  }

  async leave(): Promise<void> {
    await this.#withdraw()
    await this.#setReady(false)
    await this.#leave(this.#group)
  }

  /**
   * Whether to make room. Those who have waited for longer than anybody has patience are dead: a server that was killed
   * remembers members whose processes may never come back.
   */
  #noteNewcomers(count: number, generation: bigint, { nowMs, patienceMs }: SeatTimes): boolean {
    const known = this.#newcomers
    if (count !== known.count || generation !== known.generation)
      this.#newcomers = { count, generation, sinceMs: nowMs }
    this.#dead = Math.min(this.#dead, count)
    if (count > this.#dead && nowMs - this.#newcomers.sinceMs > patienceMs + graceMs) this.#dead = count
    return count > this.#dead
  }

  /** Says that it is ready once the owner works with nothing that is to be handed over. */
  async #yield(sync: MemberSync, live: readonly number[]): Promise<TopicSync> {
    const group = await this.#find(this.#group)
    const pending = group === undefined ? [] : partitionsToYield(group, sync.partitions)
    await this.#setReady(!pending.some((partition) => live.includes(partition)))
    return { ...sync, partitions: sync.partitions.filter((partition) => !pending.includes(partition)), pending }
  }

  async #clean(): Promise<void> {
    if (!this.#isStale) return
    for (const group of [this.#joining, this.#ready]) if (group !== undefined) await this.#leave(group)
    this.#isStale = false
  }

  get #place(): { readonly stream: string; readonly topic: string } {
    return { stream: this.topic.stream, topic: this.topic.topic }
  }

  /** The others are ready when as many have said so as there are members. */
  async #mustWait(others: { readonly members: number; readonly ready: number }, times: SeatTimes): Promise<boolean> {
    const [joining, ready] = [this.#joining, this.#ready]
    if (others.members === 0 || joining === undefined || ready === undefined) return false
    if (this.#announcedMs !== undefined) {
      return others.ready < others.members && times.nowMs - this.#announcedMs < times.patienceMs
    }
    await Promise.all([this.#ensure(ready), this.#ensure(joining)])
    await this.#requests.request(joinConsumerGroup, { ...this.#place, group: joining })
    this.#announcedMs = times.nowMs
    return true
  }

  async #withdraw(): Promise<void> {
    if (this.#announcedMs === undefined || this.#joining === undefined) return
    await this.#leave(this.#joining)
    this.#announcedMs = undefined
  }

  async #setReady(wanted: boolean): Promise<void> {
    const ready = this.#ready
    if (ready === undefined || this.#isReady === wanted) return
    if (wanted) await this.#requests.request(joinConsumerGroup, { ...this.#place, group: ready })
    else await this.#leave(ready)
    this.#isReady = wanted
  }

  async #assignment(): Promise<TopicSync> {
    const found = await this.#requests.request(syncConsumerGroup, { ...this.#place, group: this.#group })
    return found === undefined ? { kind: "outside" } : { kind: "member", ...found, pending: [] }
  }

  async #find(group: string | undefined): Promise<GroupDetails | undefined> {
    if (group === undefined) return undefined
    try {
      return await this.#requests.request(getConsumerGroup, { ...this.#place, group })
    } catch (error) {
      if (refusedWith(error, code.groupNotFound)) return undefined
      throw error
    }
  }

  async #ensure(group: string): Promise<void> {
    try {
      await this.#requests.request(createConsumerGroup, { ...this.#place, name: group })
    } catch (error) {
      if (!refusedWith(error, code.groupExists)) throw error
    }
  }

  /** Who is no member has left already. */
  async #leave(group: string): Promise<void> {
    try {
      await this.#requests.request(leaveConsumerGroup, { ...this.#place, group })
    } catch (error) {
      const { memberNotFound, groupNotFound, topicNotFound, streamNotFound, resourceNotFound } = code
      if (!refusedWith(error, memberNotFound, groupNotFound, topicNotFound, streamNotFound, resourceNotFound))
        throw error
    }
  }

  /** What does not exist is an answer, not a failure. */
  async #unlessGone(act: () => Promise<TopicSync>): Promise<TopicSync> {
    try {
      return await act()
    } catch (error) {
      if (refusedWith(error, code.groupNotFound)) return { kind: "gone", error: missingGroup(this.#group, this.topic) }
      if (!refusedWith(error, code.topicNotFound, code.streamNotFound)) throw error
      return { kind: "gone", error: await missingTopic(this.#requests, this.topic) }
    }
  }
}

export function missingGroup(group: string, name: TopicName): NotFoundError {
  const { stream, topic } = name
  return new NotFoundError(`group ${JSON.stringify(group)} of topic ${nameOf(name)} does not exist`, {
    context: { group, stream, topic },
  })
}

function besideName(prefix: string, group: string): string | undefined {
  const name = `${prefix}${group}`
  return Buffer.byteLength(name) > mostNameBytes ? undefined : name
}
