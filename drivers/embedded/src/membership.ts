/** A group's member: owns the machine, carries its commands out, and hands what changed to the one who iterates. */
import {
  type AssignmentChange,
  type Claim,
  errorFromWire,
  errorToWire,
  type JoinOptions,
  type Membership,
  MillraceError,
  type TopicName,
} from "@millrace/contract"
import { type Clock, Signal, Tickets, type Timer } from "@millrace/runtime"
import type { Channel } from "./channel.ts"
import type { Joined, JoinGroup } from "./engine/group-join.ts"
import type { OwnClaim, ViewAnswer, WatchGroup } from "./engine/group-view.ts"
import {
  type MembershipCall,
  type MembershipCommand,
  type MembershipEvent,
  MembershipMachine,
} from "./membership.machine.ts"

/** A watch that heard nothing for this long is set anew; it costs one message. */
const longestWatchMs = 60_000

/** Who joins what. */
export interface MembershipTarget {
  readonly group: string
  readonly topics: readonly TopicName[]
  readonly options: JoinOptions & { readonly memberId: string }
}

/** What a membership works with. */
export interface MembershipTools {
  readonly channel: Channel
  readonly clock: Clock
}

/**
 * Joins, and settles once the member is known to the others. The member's heartbeats keep the process alive until it leaves.
 * @throws NotFoundError when the group or a topic does not exist
 */
export async function openMembership(target: MembershipTarget, tools: MembershipTools): Promise<GroupMembership> {
  const membership = new GroupMembership(target, tools)
  await membership.joined
  return membership
}

/** One member of one group, over one or more topics. */
export class GroupMembership implements Membership {
  readonly memberId: string
  readonly changes: AsyncIterable<AssignmentChange>
  /** Settles with the first join. */
  readonly joined: Promise<void>
  /** Resolves when nothing follows for the owner. */
  readonly over: Promise<void>

  readonly #target: MembershipTarget
  readonly #channel: Channel
  readonly #clock: Clock
  readonly #machine: MembershipMachine
  readonly #join = Promise.withResolvers<void>()
  readonly #over = Promise.withResolvers<void>()
  readonly #tickets: Tickets = new Tickets()
  readonly #watch = new AbortController()
  #timer: Timer | undefined
  #leave: Promise<void> | undefined
  #end: { readonly error?: MillraceError } | undefined
  readonly #changed: Signal = new Signal()

  constructor(target: MembershipTarget, { channel, clock }: MembershipTools) {
    this.memberId = target.options.memberId
    this.changes = { [Symbol.asyncIterator]: () => ({ next: () => this.#nextChange(), return: endOfChanges }) }
    this.joined = this.#join.promise
    this.over = this.#over.promise
    this.#target = target
    this.#channel = channel
    this.#clock = clock
    this.#machine = new MembershipMachine(target.options)
    this.#carryOut(this.#machine.start(clock.monotonicMs()))
  }

  release(claims: readonly Claim[]): Promise<void> {
    if (claims.length === 0) return Promise.resolve()
    const { ticket, promise } = this.#tickets.issue()
    const nowMs = this.#clock.monotonicMs()
    this.#handle({ type: "release", nowMs, ticket, claims: claims.map(({ token }) => token as number) })
    return promise
  }

  leave(): Promise<void> {
    if (this.#leave === undefined) {
      const { ticket, promise } = this.#tickets.issue()
      this.#leave = promise
      this.#handle({ type: "leave", nowMs: this.#clock.monotonicMs(), ticket })
    }
    return this.#leave
  }

  async #nextChange(): Promise<IteratorResult<AssignmentChange>> {
    for (;;) {
      const change = this.#machine.take(this.#clock.monotonicMs())
      if (change !== undefined) {
        const { assigned, revoked, lost, deadlineMs } = change
        const value = { assigned: toClaims(assigned), revoked: toClaims(revoked), lost: toClaims(lost), deadlineMs }
        return { done: false, value }
      }
      if (this.#end?.error !== undefined) throw this.#end.error
      if (this.#end !== undefined) return endOfChanges()
      await this.#changed.next()
    }
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
          this.#arm(command.delayMs)
          break
        case "watch":
          this.#watchFor(command.member, command.version)
          break
        case "offer":
          this.#changed.wake()
          break
        case "settle":
          this.#tickets.settle(command.tickets, command.error)
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
      (error) => this.#handle({ type: "failed", nowMs: this.#clock.monotonicMs(), error: asMillraceError(error) }),
    )
  }

  async #ask(call: MembershipCall): Promise<MembershipEvent> {
    const { name, ...args } = call
    switch (call.name) {
      case "join": {
        const { member, view } = await this.#channel.call<Joined>("groups.join", this.#joinArguments(call.returning))
        this.#join.resolve()
        return { type: "joined", nowMs: this.#clock.monotonicMs(), member, view }
      }
      case "leave":
        await this.#channel.call<void>("groups.leave", args)
        return { type: "left", nowMs: this.#clock.monotonicMs() }
      default: {
        const view = await this.#channel.call<ViewAnswer>(`groups.${name}`, args)
        return { type: "viewed", nowMs: this.#clock.monotonicMs(), view }
      }
    }
  }

  #joinArguments(returning: readonly number[] | undefined): JoinGroup {
    const { group, topics, options } = this.#target
    return {
      group,
      topics,
      memberId: options.memberId,
      sessionTimeoutMs: Math.ceil(options.sessionTimeoutMs),
      rebalanceTimeoutMs: Math.ceil(options.rebalanceTimeoutMs),
      ...(returning === undefined ? {} : { returning }),
    }
  }

  #arm(delayMs: number): void {
    this.#timer?.cancel()
    this.#timer = this.#clock.setTimer(delayMs, () => this.#handle({ type: "due", nowMs: this.#clock.monotonicMs() }))
  }

  /** A watch that fails is not reported by itself: heartbeats go on, and tell what is wrong if it lasts. */
  #watchFor(member: number, version: string): void {
    const args: WatchGroup = { member, version, maxWaitMs: longestWatchMs }
    const tell = (outcome: "changed" | "over" | "failed"): void =>
      this.#handle({ type: "watched", nowMs: this.#clock.monotonicMs(), outcome })
    this.#channel.call<boolean>("groups.watch", args, { signal: this.#watch.signal, background: true }).then(
      (changed) => tell(changed ? "changed" : "over"),
      () => tell("failed"),
    )
  }

  #finish(end: { readonly error?: MillraceError }): void {
    this.#end = end
    this.#timer?.cancel()
    this.#watch.abort()
    if (end.error !== undefined) this.#join.reject(end.error)
    this.#over.resolve()
    this.#changed.wake()
  }
}

function toClaims(claims: readonly OwnClaim[]): Claim[] {
  return claims.map(({ stream, topic, partition, claim }) => ({ stream, topic, partition, token: claim }))
}

function endOfChanges(): Promise<IteratorResult<AssignmentChange>> {
  return Promise.resolve({ done: true, value: undefined })
}

function asMillraceError(error: unknown): MillraceError {
  return error instanceof MillraceError ? error : errorFromWire(errorToWire(error))
}
