import type { Claim, GroupDescription, JoinOptions, TopicName, TopicPartition } from "@millrace/contract"
import type { SimTopic } from "./sim-topic.ts"

/** What a group asks of the backend around it. */
interface GroupHost {
  readonly nowMs: number
  /** The topic as it is now, if it is there. */
  find(name: TopicName): SimTopic | undefined
  /** Ownership begins. */
  claimed(claim: Claim, memberId: string): void
  /** Ownership is over: given back, or taken away. */
  unclaimed(claim: Claim, why: "released" | "lost"): void
}

/** One life of a member: who comes back after it was taken for dead is another one. */
export interface SimMember {
  readonly memberId: string
  readonly topics: readonly TopicName[]
  readonly options: JoinOptions
  heardMs: number
  /** Alive; taken for dead; or another goes on under its name. */
  state: "member" | "gone" | "fenced"
}

interface Ownership {
  readonly member: SimMember
  readonly claim: Claim
  /** Which incarnation of its topic. */
  readonly incarnation: number
  /** By when it has to be given back, on the monotonic clock; absent while nobody else is to have it. */
  dueMs: number | undefined
}

/** What a member is told of itself. */
export interface MemberView {
  readonly owned: readonly Claim[]
  /** Those of `owned` that are to be given back. */
  readonly revoking: readonly Claim[]
}

/** A revocation is heard a heartbeat later at the most: so much more time its owner has. */
const graceMs = 4000

/**
 * A group as a coordinator keeps it: who is alive, who owns what, and who is to have it. Partitions move one by one, and only when they
 * were given back, or their owner has not done so in time. No requests, no faults.
 */
export class SimGroup {
  readonly name: string
  readonly #host: GroupHost
  readonly #members = new Set<SimMember>()
  readonly #owned = new Map<string, Ownership>()
  #generation = 0
  #tokens = 0
  #names = 0

  constructor(name: string, host: GroupHost) {
    this.name = name
    this.#host = host
  }

  /** A name for a member that has none. */
  freshName(): string {
    return `member-${++this.#names}`
  }

  get size(): number {
    return this.#members.size
  }

  join(memberId: string, topics: readonly TopicName[], options: JoinOptions): SimMember {
    const member: SimMember = { memberId, topics, options, heardMs: this.#host.nowMs, state: "member" }
    for (const other of this.#members) if (other.memberId === memberId) this.#remove(other, "fenced")
    this.#members.add(member)
    this.balance()
    return member
  }

  /** A sign of life; answers what the member owns. */
  beat(member: SimMember): MemberView {
    if (this.#members.has(member)) member.heardMs = this.#host.nowMs
    this.balance()
    const owned: Claim[] = []
    const revoking: Claim[] = []
    for (const ownership of this.#owned.values()) {
      if (ownership.member !== member) continue
      owned.push(ownership.claim)
      if (ownership.dueMs !== undefined) revoking.push(ownership.claim)
    }
    return { owned, revoking }
  }

  release(member: SimMember, claims: readonly Claim[]): void {
    for (const claim of claims) {
      const key = placeKey(claim)
      const ownership = this.#owned.get(key)
      if (ownership?.member === member && ownership.claim.token === claim.token) this.#give(key, "released")
    }
    this.balance()
  }

  leave(member: SimMember): void {
    if (!this.#members.has(member)) return
    for (const [key, ownership] of this.#owned) if (ownership.member === member) this.#give(key, "released")
    this.#remove(member, "gone")
    this.balance()
  }

  /** The claim under which the partition is owned now. */
  claimOf(place: TopicPartition): Claim | undefined {
    return this.#owned.get(placeKey(place))?.claim
  }

  /** Who owns the partition now. */
  ownerOf(place: TopicPartition): string | undefined {
    return this.#owned.get(placeKey(place))?.member.memberId
  }

  /** Everybody is out. */
  end(): void {
    for (const member of this.#members) this.#remove(member, "gone")
  }

  describe(): GroupDescription {
    const members = [...this.#members].map((member) => ({
      memberId: member.memberId,
      partitions: [...this.#owned.values()].filter((one) => one.member === member).map(({ claim }) => claim),
    }))
    return { group: this.name, generation: this.#generation, members }
  }

  /** Takes out who is silent and what is overdue or not there any more, then gives everybody a fair part. */
  balance(): void {
    const { nowMs } = this.#host
    for (const member of this.#members) {
      if (nowMs - member.heardMs > member.options.sessionTimeoutMs) this.#remove(member, "gone")
    }
    for (const [key, { claim, incarnation, dueMs }] of this.#owned) {
      const topic = this.#host.find(claim)
      if (topic?.incarnation !== incarnation) this.#give(key, "lost")
      else if (dueMs !== undefined && nowMs > dueMs + graceMs) this.#give(key, "lost")
    }
    for (const name of this.#topics()) {
      const topic = this.#host.find(name)
      if (topic !== undefined) this.#deal(topic)
    }
  }

  #topics(): TopicName[] {
    const names = new Map<string, TopicName>()
    for (const { topics } of this.#members) for (const name of topics) names.set(`${name.stream}/${name.topic}`, name)
    return [...names.values()]
  }

  #deal(topic: SimTopic): void {
    const { stream, topic: name, partitions } = topic.description
    const readers = [...this.#members].filter(({ topics }) =>
      topics.some((one) => one.stream === stream && one.topic === name),
    )
    const least = Math.floor(partitions.length / readers.length)
    let extra = partitions.length % readers.length
    const shares = new Map<SimMember, number>(readers.map((reader) => [reader, 0]))
    const open: number[] = []
    for (const { partition } of partitions) {
      const owner = this.#owned.get(placeKey({ stream, topic: name, partition }))
      const share = owner === undefined ? undefined : shares.get(owner.member)
      const stays = owner !== undefined && share !== undefined && owner.dueMs === undefined
      if (stays && (share < least || (share === least && extra > 0))) {
        if (share === least) extra--
        shares.set(owner.member, share + 1)
      } else open.push(partition)
    }
    for (const partition of open) {
      const [heir] = [...shares].sort((a, b) => a[1] - b[1])[0] as [SimMember, number]
      shares.set(heir, (shares.get(heir) ?? 0) + 1)
      this.#move({ stream, topic: name, partition }, topic.incarnation, heir)
    }
  }

  #move(place: TopicPartition, incarnation: number, heir: SimMember): void {
    const key = placeKey(place)
    const owner = this.#owned.get(key)
    if (owner?.member === heir) return
    if (owner !== undefined) {
      owner.dueMs ??= this.#host.nowMs + owner.member.options.rebalanceTimeoutMs
      return
    }
    const claim: Claim = { ...place, token: `${this.name}:${++this.#tokens}` }
    this.#generation++
    this.#owned.set(key, { member: heir, claim, incarnation, dueMs: undefined })
    this.#host.claimed(claim, heir.memberId)
  }

  #remove(member: SimMember, state: "gone" | "fenced"): void {
    this.#members.delete(member)
    member.state = state
    for (const [key, ownership] of this.#owned) if (ownership.member === member) this.#give(key, "lost")
  }

  #give(key: string, why: "released" | "lost"): void {
    const { claim } = this.#owned.get(key) as Ownership
    this.#owned.delete(key)
    this.#host.unclaimed(claim, why)
  }
}

function placeKey({ stream, topic, partition }: TopicPartition): string {
  return `${stream}/${topic}/${partition}`
}
