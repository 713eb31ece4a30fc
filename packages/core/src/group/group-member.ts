/**
 * A consumer as a member of its group: follows what the membership tells, hands partitions over, leaves when its caller takes too long,
 * and joins again. `GroupMemberMachine` decides; this one has the promises.
 */
import {
  type AssignmentChange,
  type Claim,
  ClosedError,
  type Membership,
  type MillraceError,
  type TopicPartition,
} from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import type { OverdueHandling } from "../consumer/consumer-events.ts"
import { asMillraceError } from "../partition/failure.ts"
import { type Lane, laneKey } from "../partition/lane.ts"
import { GroupMemberMachine, type MemberCommand, type MemberEvent } from "./group-member.machine.ts"
import { type Handling, HandlingWatch } from "./handling-watch.ts"
import { giveUp, placeOf, type ReleaseTimes, type Releasing } from "./partition-release.ts"

/** The consumer as its membership sees it. */
export interface MemberConsumer extends Releasing, Handling {
  /** Whether the consumer was shut down. */
  readonly ended: boolean
  /** A caller waits for something to be handed out. */
  readonly waiting: boolean
  readonly lanes: Iterable<Lane>
  /** Reads these too; settles when each has a position. */
  gain(claims: readonly Claim[], options: { readonly later: boolean }): Promise<void>
  /** The next read fails with this. */
  fail(error: MillraceError): void
  /** Every read fails with this from now on. */
  failForGood(error: MillraceError): void
}

export interface MemberSettings {
  readonly onMissing: "fail" | "wait"
  /** The wait before another try of a join that failed, in ms. */
  readonly retryIntervalMs: number
  readonly onRevoke: "finish" | "fence"
  /** Absent: `shortPatienceMs` for a caller that reads by itself, and all the time there is for handlers of `run`. */
  readonly revokeTimeoutMs: number | undefined
  /** Absent: nobody looks. */
  readonly handlerTimeoutMs: number | undefined
}

/**
 * What a revoked partition waits for its last message, in ms, where nothing says that the caller is at work on it: a caller that does
 * not read would hold up the group.
 */
const shortPatienceMs = 1000

/** Of a revocation's deadline, what is spent on handing over; the rest is for the release to arrive. */
const handOverShare = 0.75

/** The most that leaving because of an overdue handler spends on storing what was handled, and on the group, in ms each. */
const departureMs = 2000

/** The one event that comes often: whenever a caller has to wait. */
const wanted: MemberEvent = { type: "wanted" }

export class GroupMember {
  readonly #consumer: MemberConsumer
  readonly #clock: Clock
  readonly #settings: MemberSettings
  readonly #join: () => Promise<Membership>
  readonly #machine: GroupMemberMachine
  readonly #watch: HandlingWatch | undefined
  readonly #first = Promise.withResolvers<void>()
  #membership: Membership | undefined
  #later = false
  #rest: Timer | undefined
  /** A join or a departure that is under way; never rejects. */
  #underWay: Promise<void> | undefined
  /** Hand-overs that are under way; they never reject. */
  readonly #handOvers = new Set<Promise<void>>()
  /** Partitions that are handed over, but for the answer to their release. */
  readonly #releases = new Set<Map<string, TopicPartition>>()
  readonly #stopped = Promise.withResolvers<void>()
  /** Settles, and is replaced, when the member leaves because of an overdue handler. */
  #departing = Promise.withResolvers<void>()

  /** @param options.join Joins once; called again after each time that the group was left or lost. */
  constructor(
    consumer: MemberConsumer,
    options: { readonly clock: Clock; readonly join: () => Promise<Membership> },
    settings: MemberSettings,
  ) {
    this.#consumer = consumer
    this.#clock = options.clock
    this.#join = options.join
    this.#settings = settings
    this.#machine = new GroupMemberMachine(settings)
    const { handlerTimeoutMs } = settings
    if (handlerTimeoutMs === undefined) return
    const time = { clock: options.clock, timeoutMs: handlerTimeoutMs }
    this.#watch = new HandlingWatch(consumer, time, (overdue) => this.#overdue(overdue))
  }

  /**
   * Begins with a membership. Settles once the first assignment has its positions; the rest is followed in the background.
   * @throws what the membership or a start failed with before
   */
  begin(membership: Membership): Promise<void> {
    this.#membership = membership
    this.#handle({ type: "joined" })
    return this.#first.promise
  }

  /** A caller waits for a message: a member that went away comes back. */
  wanted(): void {
    this.#handle(wanted)
  }

  /** Leaves for good. Settles when the group knows. */
  async leave(): Promise<void> {
    this.#handle({ type: "shutdown" })
    this.#rest?.cancel()
    this.#watch?.stop()
    this.#stopped.resolve()
    this.#first.reject(new ClosedError("the consumer was shut down before its first assignment"))
    this.#first.promise.catch(() => {})
    await Promise.all([this.#underWay, ...this.#handOvers])
    await this.#membership?.leave()
  }

  // ---- commands -------------------------------------------------------------------------------------------

  #handle(event: MemberEvent): void {
    for (const command of this.#machine.handle(event)) this.#execute(command)
  }

  #execute(command: MemberCommand): void {
    switch (command.type) {
      case "join":
        this.#underWay = this.#joinAgain()
        break
      case "follow":
        this.#watch?.start()
        this.#follow(this.#membership as Membership)
        break
      case "leave":
        this.#underWay = this.#depart()
        break
      case "drop":
        this.#watch?.stop()
        this.#membership = undefined
        this.#lose([...this.#consumer.lanes])
        break
      case "rest":
        this.#rest = this.#clock.setTimer(this.#settings.retryIntervalMs, () => this.#handle({ type: "rested" }))
        break
      case "tell":
        this.#consumer.fail(command.error)
        if (this.#consumer.waiting) this.wanted()
        break
      case "end":
        this.#consumer.failForGood(command.error)
        break
    }
  }

  async #joinAgain(): Promise<void> {
    let membership: Membership
    try {
      membership = await this.#join()
    } catch (error) {
      this.#handle({ type: "failed", error: asMillraceError(error) })
      return
    }
    this.#membership = membership
    this.#handle({ type: "joined" })
  }

  #overdue(overdue: OverdueHandling): void {
    if (this.#consumer.ended || this.#machine.phase !== "member") return
    this.#consumer.listeners.tell("handlerTimeout", overdue)
    if (!this.#consumer.ended) this.#handle({ type: "overdue" })
  }

  /** What was handled is stored, the rest is for others. */
  async #depart(): Promise<void> {
    const consumer = this.#consumer
    const membership = this.#membership as Membership
    this.#membership = undefined
    this.#watch?.stop()
    const staying = [...consumer.lanes].filter((lane) => !lane.draining)
    const claims = staying.map(({ claim }) => claim).filter((claim) => claim !== undefined)
    this.#departing.resolve()
    this.#departing = Promise.withResolvers()
    const [given] = await Promise.all([
      this.#giveUp(claims, { patienceMs: 0, limitMs: departureMs }),
      this.#within(departureMs, Promise.all(this.#handOvers)),
    ])
    this.#lose([...consumer.lanes])
    await this.#within(departureMs, membership.leave())
    this.#tellRevoked(given.map(placeOf))
    this.#handle({ type: "left" })
    if (consumer.waiting) this.wanted()
  }

  /** A group that does not answer finds out by itself that the member is gone. */
  async #within(ms: number, leaving: Promise<unknown>): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = this.#clock.setTimer(ms, resolve)
    await Promise.race([leaving.catch(() => {}), promise])
    timer.cancel()
  }

  // ---- the membership -------------------------------------------------------------------------------------

  #follow(membership: Membership): void {
    const follow = async (): Promise<void> => {
      for await (const change of membership.changes) {
        if (membership !== this.#membership) return
        const gained = this.#apply(membership, change)
        // After the first, a start that fails is handed out in its place by the partition itself.
        gained.then(this.#first.resolve, this.#first.reject)
      }
      this.#over(membership, undefined)
    }
    follow().catch((error) => this.#over(membership, asMillraceError(error)))
  }

  #over(membership: Membership, error: MillraceError | undefined): void {
    this.#first.reject(error ?? new ClosedError("the membership ended before its first assignment"))
    this.#first.promise.catch(() => {})
    if (membership !== this.#membership || this.#consumer.ended) return
    this.#handle(error === undefined ? { type: "ended" } : { type: "failed", error })
  }

  /** Settles when what was assigned has positions. Handing over goes on beside it. */
  #apply(membership: Membership, change: AssignmentChange): Promise<void> {
    const consumer = this.#consumer
    if (consumer.ended) return Promise.resolve()
    const { assigned, revoked, lost, deadlineMs } = change
    // Changes come in order: whatever is read of a partition now is what the claim speaks of.
    // One that is assigned although it is here was lost without a word.
    this.#lose([...lost, ...assigned].map((claim) => consumer.lane(claim)).filter((lane) => lane !== undefined))
    if (revoked.length > 0) this.#handOver(membership, revoked, deadlineMs)
    const later = this.#later
    this.#later = true
    if (assigned.length === 0) return Promise.resolve()
    this.#tellReleased(assigned)
    const gained = consumer.gain(assigned, { later })
    consumer.listeners.tell("assigned", assigned.map(placeOf))
    return gained
  }

  #lose(lanes: readonly Lane[]): void {
    if (lanes.length === 0) return
    this.#consumer.drop(lanes)
    this.#consumer.listeners.tell(
      "lost",
      lanes.map(({ partition }) => placeOf(partition)),
    )
  }

  #handOver(membership: Membership, claims: readonly Claim[], deadlineMs: number): void {
    const handOver = async (): Promise<void> => {
      const given = await this.#giveUp(claims, this.#times(deadlineMs))
      if (given.length === 0 || this.#consumer.ended) return
      const places = new Map(given.map((claim) => [laneKey(claim), placeOf(claim)]))
      this.#releases.add(places)
      try {
        // Who has left meanwhile has released everything, and who was thrown out has nothing to release.
        if (membership === this.#membership) await membership.release(given)
      } finally {
        this.#releases.delete(places)
        this.#tellRevoked([...places.values()])
      }
    }
    const handingOver = handOver().catch((error) => {
      // After the end, and for a partition that went meanwhile, there is nothing left to hand over.
      const known = asMillraceError(error)
      const moot =
        this.#consumer.ended ||
        membership !== this.#membership ||
        known.kind === "fenced" ||
        known.kind === "not-assigned" ||
        known.kind === "closed"
      if (!moot) this.#consumer.fail(known)
    })
    this.#handOvers.add(handingOver)
    void handingOver.then(() => this.#handOvers.delete(handingOver))
  }

  /** A partition that comes back before the answer to its release was handed over all the same, and before it came. */
  #tellReleased(assigned: readonly Claim[]): void {
    for (const places of this.#releases) {
      const keys = assigned.map(laneKey).filter((key) => places.has(key))
      this.#tellRevoked(keys.map((key) => places.get(key) as TopicPartition))
      for (const key of keys) places.delete(key)
    }
  }

  #tellRevoked(places: readonly TopicPartition[]): void {
    if (places.length > 0 && !this.#consumer.ended) this.#consumer.listeners.tell("revoked", places)
  }

  #giveUp(claims: readonly Claim[], times: ReleaseTimes): Promise<Claim[]> {
    const [hurried, stopped] = [this.#departing.promise, this.#stopped.promise]
    return giveUp(this.#consumer, claims, { clock: this.#clock, times, hurried, stopped })
  }

  #times(deadlineMs: number): ReleaseTimes {
    const { onRevoke, revokeTimeoutMs } = this.#settings
    const limitMs = deadlineMs * handOverShare
    if (onRevoke === "fence") return { patienceMs: 0, limitMs }
    return { patienceMs: revokeTimeoutMs ?? (this.#consumer.feeding ? limitMs : shortPatienceMs), limitMs }
  }
}
