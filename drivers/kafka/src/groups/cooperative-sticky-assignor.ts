import { type Assignment, type Assignor, type AssignorMember, inOrder, partKey, type TopicPart } from "./assignor.ts"

/**
 * Members keep what they have as far as the shares stay even, and nobody is interrupted who keeps it (KIP-429): a partition that is to
 * move is given to nobody in this round, and to the next member when its owner has come back without it.
 */
export const cooperativeStickyAssignor: Assignor = { name: "cooperative-sticky", eager: false, assign }

function assign(members: readonly AssignorMember[], counts: ReadonlyMap<string, number>): Assignment {
  const ordered = inOrder(members)
  const owners = presentOwners(ordered, counts)
  const shares = new Shares(ordered, counts)
  for (const member of ordered) {
    for (const part of member.owned)
      if (owners.get(partKey(part)) === member.memberId) shares.give(part, member.memberId)
  }
  shares.giveRest()
  shares.level()
  return withhold(shares.given, ordered)
}

/**
 * Who has each partition: the member that says so with the newest generation. Of two that say so with the same one nobody has it, for one
 * of them must be wrong.
 */
function presentOwners(members: readonly AssignorMember[], counts: ReadonlyMap<string, number>): Map<string, string> {
  const owners = new Map<string, string>()
  const since = new Map<string, number>()
  for (const { memberId, topics, owned, generation } of members) {
    for (const part of owned) {
      if (!topics.includes(part.topic) || part.partition >= (counts.get(part.topic) ?? 0)) continue
      const key = partKey(part)
      const known = since.get(key)
      if (known !== undefined && known > generation) continue
      since.set(key, generation)
      if (known === generation) owners.delete(key)
      else owners.set(key, memberId)
    }
  }
  return owners
}

/** Partitions on their way to members. */
class Shares {
  readonly given: Map<string, TopicPart[]>
  readonly #members: readonly AssignorMember[]
  readonly #readers = new Map<string, readonly AssignorMember[]>()
  readonly #taken = new Set<string>()
  readonly #rest: TopicPart[] = []

  constructor(members: readonly AssignorMember[], counts: ReadonlyMap<string, number>) {
    this.#members = members
    this.given = new Map(members.map(({ memberId }) => [memberId, []]))
    for (const [topic, count] of counts) {
      const readers = members.filter(({ topics }) => topics.includes(topic))
      this.#readers.set(topic, readers)
      if (readers.length === 0) continue
      for (let partition = 0; partition < count; partition++) this.#rest.push({ topic, partition })
    }
  }

  give(part: TopicPart, memberId: string): void {
    this.#taken.add(partKey(part))
    this.#of(memberId).push(part)
  }

  /** What nobody has goes to those who have least; first what few can read. */
  giveRest(): void {
    const rest = this.#rest.filter((part) => !this.#taken.has(partKey(part)))
    rest.sort((one, other) => this.#readersOf(one).length - this.#readersOf(other).length)
    for (const part of rest) {
      const poorest = this.#poorest(this.#readersOf(part))
      if (poorest !== undefined) this.give(part, poorest.memberId)
    }
  }

  /** Moves partitions from who has most to who has least, as long as that makes them more even. Each move does, so it ends. */
  level(): void {
    for (let moved = true; moved; ) {
      moved = false
      for (const { memberId } of this.#members) {
        const own = this.#of(memberId)
        for (let index = own.length - 1; index >= 0; index--) {
          const part = own[index] as TopicPart
          const poorest = this.#poorest(this.#readersOf(part))
          if (poorest === undefined || own.length - this.#of(poorest.memberId).length < 2) continue
          own.splice(index, 1)
          this.#of(poorest.memberId).push(part)
          moved = true
        }
      }
    }
  }

  #poorest(readers: readonly AssignorMember[]): AssignorMember | undefined {
    let poorest: AssignorMember | undefined
    let least = Number.POSITIVE_INFINITY
    for (const reader of readers) {
      const count = this.#of(reader.memberId).length
      if (count >= least) continue
      least = count
      poorest = reader
    }
    return poorest
  }

  #readersOf(part: TopicPart): readonly AssignorMember[] {
    return this.#readers.get(part.topic) ?? []
  }

  #of(memberId: string): TopicPart[] {
    return this.given.get(memberId) as TopicPart[]
  }
}

/** Leaves out what somebody else still says to have. */
function withhold(given: ReadonlyMap<string, readonly TopicPart[]>, members: readonly AssignorMember[]): Assignment {
  const claimed = new Map<string, Set<string>>()
  for (const { memberId, owned } of members) {
    for (const part of owned) {
      const key = partKey(part)
      const claimants = claimed.get(key)
      if (claimants === undefined) claimed.set(key, new Set([memberId]))
      else claimants.add(memberId)
    }
  }
  const left = new Map<string, readonly TopicPart[]>()
  for (const [memberId, parts] of given) {
    left.set(
      memberId,
      parts.filter((part) => {
        const claimants = claimed.get(partKey(part))
        return claimants === undefined || (claimants.has(memberId) && claimants.size === 1)
      }),
    )
  }
  return left
}
