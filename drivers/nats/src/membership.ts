/** A group's member: owns the machine, carries its commands out, and hands what changed to the one who iterates. */
import { type AssignmentChange, type Claim, type Membership, MillraceError, StorageError } from "@millrace/contract"
import { Signal, Tickets, type Timer } from "@millrace/runtime"
import type { Subscription } from "@nats-io/transport-node"
import { claimOf, GroupClaimToken, tokenOf } from "./groups-claim.ts"
import type { OwnClaim } from "./groups-view.ts"
import {
  type MembershipCall,
  type MembershipCommand,
  type MembershipEvent,
  MembershipMachine,
} from "./membership.machine.ts"
import { beatOf, MembershipCalls, type MembershipTarget, type MembershipTools } from "./membership-calls.ts"
import { beatKey, stirSubject } from "./offsets-key.ts"

/**
 * Joins, and settles once the member is known to the others. Its heartbeats keep the process alive until it leaves.
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
  readonly #tools: MembershipTools
  readonly #calls: MembershipCalls
  readonly #machine: MembershipMachine
  readonly #join = Promise.withResolvers<void>()
  readonly #over = Promise.withResolvers<void>()
  readonly #tickets: Tickets = new Tickets()
  /** Of the claims that the owner has heard of and not given back. */
  readonly #tokens = new Map<number, GroupClaimToken>()
  readonly #ears: Subscription[]
  #groupId = ""
  #timer: Timer | undefined
  #leave: Promise<void> | undefined
  #end: { readonly error?: MillraceError } | undefined
  readonly #changed: Signal = new Signal()

  constructor(target: MembershipTarget, tools: MembershipTools) {
    this.memberId = target.memberId
    this.changes = { [Symbol.asyncIterator]: () => ({ next: () => this.#nextChange(), return: endOfChanges }) }
    this.joined = this.#join.promise
    this.over = this.#over.promise
    this.#target = target
    this.#tools = tools
    this.#calls = new MembershipCalls(target, tools)
    this.#machine = new MembershipMachine(target)
    // Before the join, so that nothing said after it is missed.
    this.#ears = this.#listen()
    this.#carryOut(this.#machine.start(this.#nowMs))
  }

  release(claims: readonly Claim[]): Promise<void> {
    if (claims.length === 0) return Promise.resolve()
    const tokens = claims.flatMap((claim) => tokenOf(claim) ?? [])
    for (const token of tokens) this.#forget(token.mark.number)
    const { ticket, promise } = this.#tickets.issue()
    this.#handle({ type: "release", nowMs: this.#nowMs, ticket, claims: tokens.map(({ mark }) => mark.number) })
    return promise
  }

  leave(): Promise<void> {
    if (this.#leave === undefined) {
      const { ticket, promise } = this.#tickets.issue()
      this.#leave = promise
      this.#handle({ type: "leave", nowMs: this.#nowMs, ticket })
    }
    return this.#leave
  }

  async #nextChange(): Promise<IteratorResult<AssignmentChange>> {
    for (;;) {
      const news = this.#machine.take(this.#nowMs)
      if (news !== undefined) {
        const { assigned, revoked, lost, deadlineMs } = news
        const change = {
          lost: lost.map((claim) => this.#lose(claim)),
          revoked: revoked.map((claim) => claimOf(claim, this.#tokenFor(claim))),
          assigned: assigned.map((claim) => claimOf(claim, this.#tokenFor(claim))),
          deadlineMs,
        }
        return { done: false, value: change }
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
        case "beat":
          this.#calls.beat(command.member)
          break
        case "arm":
          this.#arm(command.delayMs)
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
      (error) => this.#handle({ type: "failed", nowMs: this.#nowMs, error: asMillraceError(error) }),
    )
  }

  async #ask(call: MembershipCall): Promise<MembershipEvent> {
    switch (call.name) {
      case "join": {
        const { member, view } = await this.#calls.join(call.returning)
        this.#groupId = view.group
        this.#join.resolve()
        return { type: "joined", nowMs: this.#nowMs, member, view }
      }
      case "report": {
        const { view, signs } = await this.#calls.report(call)
        return { type: "viewed", nowMs: this.#nowMs, view, signs }
      }
      case "leave":
        await this.#calls.leave(call.member)
        return { type: "left", nowMs: this.#nowMs }
    }
  }

  /** Hints only: what gets lost is noticed with the next heartbeat. */
  #listen(): Subscription[] {
    const { nc } = this.#tools.connection
    const { group } = this.#target
    const stirred = nc.subscribe(stirSubject(group), {
      callback: (error) => {
        if (error === null) this.#handle({ type: "stirred", nowMs: this.#nowMs })
      },
    })
    const beats = nc.subscribe(this.#tools.offsets.bucket.subject(beatKey(group, "*")), {
      callback: (error, message) => {
        if (error !== null) return
        const member = Number(message.subject.slice(message.subject.lastIndexOf(".") + 1))
        this.#handle({ type: "heard", nowMs: this.#nowMs, member, beat: beatOf(message.data) })
      },
    })
    return [stirred, beats]
  }

  #arm(delayMs: number): void {
    this.#timer?.cancel()
    this.#timer = this.#tools.connection.clock.setTimer(delayMs, () =>
      this.#handle({ type: "due", nowMs: this.#nowMs }),
    )
  }

  #finish(end: { readonly error?: MillraceError }): void {
    this.#end = end
    this.#timer?.cancel()
    for (const ear of this.#ears) if (!this.#tools.connection.nc.isClosed()) ear.unsubscribe()
    // What the owner was not told of yet it is told with the loss; to the store it is void from here on.
    for (const token of this.#tokens.values()) token.void()
    if (end.error !== undefined) this.#join.reject(end.error)
    this.#over.resolve()
    this.#changed.wake()
  }

  #tokenFor(claim: OwnClaim): GroupClaimToken {
    let token = this.#tokens.get(claim.number)
    if (token === undefined) {
      token = new GroupClaimToken(this.#target.group, claim.lineage, { group: this.#groupId, number: claim.number })
      this.#tokens.set(claim.number, token)
    }
    return token
  }

  #lose(claim: OwnClaim): Claim {
    const token = this.#tokenFor(claim)
    this.#forget(claim.number)
    this.#tools.offsets.drop(this.#target.group, claim)
    return claimOf(claim, token)
  }

  #forget(number: number): void {
    this.#tokens.get(number)?.void()
    this.#tokens.delete(number)
  }

  get #nowMs(): number {
    return this.#tools.connection.clock.monotonicMs()
  }
}

function endOfChanges(): Promise<IteratorResult<AssignmentChange>> {
  return Promise.resolve({ done: true, value: undefined })
}

function asMillraceError(error: unknown): MillraceError {
  return error instanceof MillraceError ? error : new StorageError(String(error), { cause: error })
}
