/** A group's member: owns the machine and a connection of its own, and hands what changed to the one who iterates. */
import {
  type AssignmentChange,
  type Claim,
  type JoinOptions,
  type Membership,
  MillraceError,
  StorageError,
  type TopicName,
} from "@millrace/contract"
import { type Clock, Signal, type Timer } from "@millrace/runtime"
import { type ClaimKeeper, GroupClaim } from "./group-claim.ts"
import { MemberSeat } from "./member-seat.ts"
import {
  type MembershipCall,
  type MembershipCommand,
  type MembershipEvent,
  MembershipMachine,
  type TopicSync,
} from "./membership.machine.ts"
import type { OwnClaim } from "./membership-claims.ts"
import { notOwned } from "./offset-store.ts"
import { code, type Requests, refusedWith } from "./requests.ts"

/** A connection that belongs to one member: the server knows members by their sessions. */
interface MemberConnection extends Requests {
  close(): Promise<void>
}

/** How long a leave may take before the connection is closed without it. */
const longestLeaveMs = 2000

type SessionEvent = "ready" | "lost"

/** Who joins what. */
interface MembershipTarget {
  readonly group: string
  readonly topics: readonly TopicName[]
  readonly memberId: string
  readonly options: JoinOptions
}

export interface MembershipTools {
  readonly clock: Clock
  /** Told of sessions after the first one. */
  readonly open: (onSession: (event: SessionEvent) => void) => Promise<MemberConnection>
  /** Told the newest generation of the group over a topic. */
  readonly onGeneration: (topic: TopicName, generation: bigint) => void
}

/** One member of one group, over one or more topics. */
export class GroupMembership implements Membership, ClaimKeeper {
  readonly memberId: string
  readonly group: string
  readonly changes: AsyncIterable<AssignmentChange>
  /** Resolves when nothing follows for the owner and the connection is closed. */
  readonly over: Promise<void>

  readonly #target: MembershipTarget
  readonly #tools: MembershipTools
  readonly #machine: MembershipMachine
  readonly #joined = Promise.withResolvers<void>()
  readonly #over = Promise.withResolvers<void>()
  readonly #claims = new Map<GroupClaim, number>()
  readonly #tokens = new Map<number, GroupClaim>()
  #connection: MemberConnection | undefined
  #seats: readonly MemberSeat[] = []
  #timer: Timer | undefined
  #end: { readonly error?: MillraceError } | undefined
  readonly #changed: Signal = new Signal()

  private constructor(target: MembershipTarget, tools: MembershipTools) {
    this.memberId = target.memberId
    this.group = target.group
    this.changes = { [Symbol.asyncIterator]: () => ({ next: () => this.#nextChange(), return: endOfChanges }) }
    this.over = this.#over.promise
    this.#target = target
    this.#tools = tools
    const { sessionTimeoutMs, rebalanceTimeoutMs } = target.options
    this.#machine = new MembershipMachine({ topics: target.topics.length, sessionTimeoutMs, rebalanceTimeoutMs })
  }

  /**
   * Connects, joins every topic, and settles once the server knows the member.
   * @throws NotFoundError when the group or a topic does not exist
   */
  static async open(target: MembershipTarget, tools: MembershipTools): Promise<GroupMembership> {
    const membership = new GroupMembership(target, tools)
    await membership.#open()
    return membership
  }

  /** Void from here on. Who waits to join is told that this member is ready once it has released all that it must. */
  release(claims: readonly Claim[]): Promise<void> {
    const numbers = claims.flatMap(({ token }) => this.#claims.get(token as GroupClaim) ?? [])
    this.#handle({ type: "release", nowMs: this.#now(), claims: numbers })
    for (const { token } of claims) this.#forget(token as GroupClaim)
    return Promise.resolve()
  }

  /** Does not wait for a server that does not answer: it takes out members whose connection is closed. */
  async leave(): Promise<void> {
    this.#handle({ type: "leave", nowMs: this.#now() })
    this.#changed.wake()
    const patience = this.#tools.clock.setTimer(longestLeaveMs, () => this.#closeConnection())
    await this.over
    patience.cancel()
  }

  async commit(claim: GroupClaim, change: (requests: Requests) => Promise<void>): Promise<void> {
    const number = this.#claims.get(claim)
    if (number === undefined || !this.#machine.isLive(number)) throw notOwned(this.#owner, claim.place)
    try {
      await change(this.#requests)
    } catch (error) {
      if (!refusedWith(error, code.resourceNotFound)) throw error
      this.#handle({ type: "doubted", nowMs: this.#now() })
      throw notOwned(this.#owner, claim.place)
    }
  }

  /** What each topic assigns to this member, as last heard. */
  assigned(): readonly { readonly topic: TopicName; readonly partition: number }[] {
    return this.#machine.live().map(({ topic, partition }) => ({ topic: this.#topic(topic), partition }))
  }

  get #owner(): { readonly kind: "group"; readonly name: string } {
    return { kind: "group", name: this.group }
  }

  async #open(): Promise<void> {
    this.#connection = await this.#tools.open((event) => {
      if (this.#connection === undefined) return
      for (const seat of this.#seats) seat.reset()
      this.#handle({ type: event === "ready" ? "sessionReady" : "sessionLost", nowMs: this.#now() })
    })
    const { topics, group } = this.#target
    this.#seats = topics.map(({ stream, topic }) => new MemberSeat(this.#requests, { stream, topic }, group))
    this.#carryOut(this.#machine.start(this.#now()))
    await this.#joined.promise
  }

  async #nextChange(): Promise<IteratorResult<AssignmentChange>> {
    for (;;) {
      const change = this.#machine.take(this.#now())
      if (change !== undefined) {
        const { assigned, revoked, lost, deadlineMs } = change
        const value = {
          assigned: assigned.map((own) => this.#claimOf(own)),
          revoked: revoked.map((own) => this.#claimOf(own)),
          lost: lost.map((own) => this.#claimOf(own)),
          deadlineMs,
        }
        for (const { token } of value.lost) this.#forget(token as GroupClaim)
        return { done: false, value }
      }
      if (this.#end?.error !== undefined) throw this.#end.error
      if (this.#end !== undefined || this.#machine.phase === "leaving") return endOfChanges()
      await this.#changed.next()
    }
  }

  #claimOf(own: OwnClaim): Claim {
    const { stream, topic } = this.#topic(own.topic)
    const place = { stream, topic, partition: own.partition }
    let token = this.#tokens.get(own.claim)
    if (token === undefined) {
      token = new GroupClaim(place, this)
      this.#tokens.set(own.claim, token)
      this.#claims.set(token, own.claim)
    }
    return { ...place, token }
  }

  #forget(token: GroupClaim): void {
    const number = this.#claims.get(token)
    if (number === undefined) return
    this.#claims.delete(token)
    this.#tokens.delete(number)
  }

  #handle(event: MembershipEvent): void {
    this.#carryOut(this.#machine.handle(event))
  }

  #carryOut(commands: readonly MembershipCommand[]): void {
    for (const command of commands) {
      switch (command.type) {
        case "call":
          this.#call(command.call)
          break
        case "arm":
          this.#timer?.cancel()
          this.#timer = this.#tools.clock.setTimer(command.delayMs, () =>
            this.#handle({ type: "due", nowMs: this.#now() }),
          )
          break
        case "joined":
          this.#joined.resolve()
          break
        case "offer":
          this.#changed.wake()
          break
        case "end":
          this.#finish(command)
          break
      }
    }
  }

  #call(call: MembershipCall): void {
    this.#ask(call).then(
      (event) => this.#handle(event),
      (error: unknown) => {
        this.#handle({ type: "failed", nowMs: this.#now(), error: asMillraceError(error) })
      },
    )
  }

  async #ask({ name, claims }: MembershipCall): Promise<MembershipEvent> {
    if (name === "leave") {
      await Promise.all(this.#seats.map((seat) => seat.leave()))
      return { type: "left", nowMs: this.#now() }
    }
    const times = { nowMs: this.#now(), patienceMs: this.#target.options.rebalanceTimeoutMs }
    const answers = this.#seats.map((seat, index) => {
      const live = claims.filter(({ topic }) => topic === index).map(({ partition }) => partition)
      return name === "join" ? seat.join(live, times) : seat.ask(live, times)
    })
    return this.#viewed(await Promise.all(answers))
  }

  #viewed(topics: readonly TopicSync[]): MembershipEvent {
    for (const [index, sync] of topics.entries()) {
      if (sync.kind === "member") this.#tools.onGeneration(this.#topic(index), sync.generation)
    }
    return { type: "viewed", nowMs: this.#now(), topics }
  }

  /** The server takes a member whose socket is closed out of its groups, so that nothing else need be done here. */
  #finish(end: { readonly error?: MillraceError }): void {
    this.#end = end
    this.#timer?.cancel()
    if (end.error !== undefined) this.#joined.reject(end.error)
    else this.#joined.resolve()
    this.#changed.wake()
    this.#closeConnection()
  }

  /** What is still asked fails by it. */
  #closeConnection(): void {
    this.#connection?.close().then(this.#over.resolve, this.#over.resolve)
  }

  get #requests(): Requests {
    return this.#connection as MemberConnection
  }

  #topic(index: number): TopicName {
    const { stream, topic } = this.#target.topics[index] as TopicName
    return { stream, topic }
  }

  #now(): number {
    return this.#tools.clock.monotonicMs()
  }
}

function endOfChanges(): Promise<IteratorResult<AssignmentChange>> {
  return Promise.resolve({ done: true, value: undefined })
}

function asMillraceError(error: unknown): MillraceError {
  return error instanceof MillraceError ? error : new StorageError(String(error), { cause: error })
}
