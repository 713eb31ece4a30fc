import type { GroupCoordinator, GroupDescription, JoinOptions, Membership, TopicName } from "@millrace/contract"
import type { FaultyBackend } from "./faulty-backend.ts"
import { SimMembership } from "./sim-membership.ts"

/** How a session's coordinator reaches the backend. */
interface CoordinatorLine {
  readonly backend: FaultyBackend
  readonly isAwake: () => boolean
  readonly ask: <T>(work: () => T) => Promise<T>
}

/** Groups as one session sees them, and the memberships that it keeps alive. */
export class SimCoordinator implements GroupCoordinator {
  readonly #line: CoordinatorLine
  readonly #memberships = new Map<SimMembership, string>()

  constructor(line: CoordinatorLine) {
    this.#line = line
  }

  async create(_group: string, topic: TopicName): Promise<void> {
    await this.#line.ask(() => void this.#line.backend.topic(topic))
  }

  describe(group: string): Promise<GroupDescription> {
    return this.#line.ask(() => this.#line.backend.group(group).describe())
  }

  delete(group: string): Promise<void> {
    return this.#line.ask(() => this.#line.backend.deleteGroup(group))
  }

  async join(group: string, topics: readonly TopicName[], options: JoinOptions): Promise<Membership> {
    const { backend, ask, isAwake } = this.#line
    const found = backend.group(group)
    const memberId = options.memberId ?? found.freshName()
    const { member, view } = await ask(() => {
      for (const topic of topics) backend.topic(topic)
      const one = found.join(memberId, topics, options)
      backend.regroup(group)
      return { member: one, view: found.beat(one) }
    })
    const line = { clock: backend.clock, group: found, ask, isAwake, changed: () => backend.regroup(group) }
    const membership = new SimMembership(line, { topics, options, member }, view)
    this.#memberships.set(membership, group)
    return membership
  }

  /** Memberships of the group look at it soon. */
  look(group: string): void {
    for (const [membership, name] of this.#memberships) if (name === group) membership.look()
  }

  /** The session is closed, or its process is gone. */
  close(): void {
    for (const membership of this.#memberships.keys()) membership.close()
    this.#memberships.clear()
  }
}
