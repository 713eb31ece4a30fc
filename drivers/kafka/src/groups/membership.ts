/** A group's member: owns the machine of its protocol, carries the commands out, and hands what changed to the one who iterates. */
import type { AssignmentChange, Claim, Membership, MillraceError } from "@millrace/contract"
import { type Clock, Signal, Tickets, type Timer } from "@millrace/runtime"
import { asMillraceError } from "../fetch/slot-lookup.ts"
import { type ClaimHolder, ClaimToken, type Fence } from "./claim-token.ts"
import type { NumberedSeat } from "./member-claims.ts"
import type { MemberCommand, MemberEvent, MemberMachine } from "./member-machine.ts"

/** A group protocol as it is spoken: the machine, and the requests behind its calls. */
export interface MemberProtocol<Call, Answer> {
  readonly machine: MemberMachine<Call, Answer>
  /** The name by which the others and the owner know the member. */
  readonly memberId: string
  /** Makes one call. @throws MillraceError */
  perform(call: Call): Promise<Answer>
  /** Frees what it holds. Pending calls fail. */
  close(): void
}

/** Joins, and settles once the member is known to the others. Its heartbeats keep the process alive until it leaves. */
export async function openMembership<Call, Answer>(
  group: string,
  protocol: MemberProtocol<Call, Answer>,
  clock: Clock,
): Promise<GroupMembership> {
  const membership = new ProtocolMembership(group, protocol, clock)
  await membership.joined
  return membership
}

/** A membership whose end can be awaited. */
export interface GroupMembership extends Membership, ClaimHolder {
  /** Resolves when nothing follows: the member has left, or is gone for good. */
  readonly over: Promise<void>
}

class ProtocolMembership<Call, Answer> implements GroupMembership {
  readonly group: string
  readonly changes: AsyncIterable<AssignmentChange>
  /** Settles with the first join. */
  readonly joined: Promise<void>
  readonly over: Promise<void>

  readonly #protocol: MemberProtocol<Call, Answer>
  readonly #machine: MemberMachine<Call, Answer>
  readonly #clock: Clock
  readonly #join = Promise.withResolvers<void>()
  readonly #over = Promise.withResolvers<void>()
  readonly #tickets: Tickets = new Tickets()
  /** The claims as the owner has them: one object for each number. */
  readonly #claims = new Map<number, Claim>()
  #timer: Timer | undefined
  #leave: Promise<void> | undefined
  #end: { readonly error?: MillraceError } | undefined
  readonly #changed: Signal = new Signal()

  constructor(group: string, protocol: MemberProtocol<Call, Answer>, clock: Clock) {
    this.group = group
    this.changes = { [Symbol.asyncIterator]: () => ({ next: () => this.#nextChange(), return: endOfChanges }) }
    this.joined = this.#join.promise
    this.over = this.#over.promise
    this.#protocol = protocol
    this.#machine = protocol.machine
    this.#clock = clock
    this.#carryOut(this.#machine.start(clock.monotonicMs()))
  }

  get memberId(): string {
    return this.#protocol.memberId
  }

  fence(claim: number): Fence | undefined {
    return this.#machine.fence(claim)
  }

  release(claims: readonly Claim[]): Promise<void> {
    const numbers: number[] = []
    for (const { token } of claims) {
      if (!(token instanceof ClaimToken) || token.holder !== this) continue
      numbers.push(token.number)
      this.#claims.delete(token.number)
    }
    if (numbers.length === 0) return Promise.resolve()
    const { ticket, promise } = this.#tickets.issue()
    this.#handle({ type: "release", nowMs: this.#clock.monotonicMs(), ticket, claims: numbers })
    return promise
  }

  leave(): Promise<void> {
    if (this.#leave === undefined) {
      const { ticket, promise } = this.#tickets.issue()
      this.#leave = promise.finally(() => this.#close())
      this.#handle({ type: "leave", nowMs: this.#clock.monotonicMs(), ticket })
    }
    return this.#leave
  }

  async #nextChange(): Promise<IteratorResult<AssignmentChange>> {
    for (;;) {
      const change = this.#machine.take(this.#clock.monotonicMs())
      if (change !== undefined) {
        const lost = this.#toClaims(change.lost)
        for (const { claim } of change.lost) this.#claims.delete(claim)
        const revoked = this.#toClaims(change.revoked)
        const assigned = this.#toClaims(change.assigned)
        return { done: false, value: { assigned, revoked, lost, deadlineMs: change.deadlineMs } }
      }
      if (this.#end?.error !== undefined) throw this.#end.error
      if (this.#end !== undefined) return endOfChanges()
      await this.#changed.next()
    }
  }

  #toClaims(seats: readonly NumberedSeat[]): Claim[] {
    return seats.map(({ stream, topic, partition, topicId, claim }) => {
      let known = this.#claims.get(claim)
      if (known === undefined) {
        known = { stream, topic, partition, token: new ClaimToken(this, claim, topicId) }
        this.#claims.set(claim, known)
      }
      return known
    })
  }

  #handle(event: MemberEvent<Answer>): void {
    this.#carryOut(this.#machine.handle(event))
  }

  #carryOut(commands: readonly MemberCommand<Call>[]): void {
    for (const command of commands) {
      switch (command.type) {
        case "call":
          this.#call(command.call)
          break
        case "arm":
          this.#arm(command.delayMs)
          break
        case "offer":
          this.#changed.wake()
          break
        case "joined":
          this.#join.resolve()
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

  #call(call: Call): void {
    this.#protocol.perform(call).then(
      (answer) => this.#handle({ type: "answered", nowMs: this.#clock.monotonicMs(), answer }),
      (error) => this.#handle({ type: "failed", nowMs: this.#clock.monotonicMs(), error: asMillraceError(error) }),
    )
  }

  #arm(delayMs: number): void {
    this.#timer?.cancel()
    this.#timer = this.#clock.setTimer(delayMs, () => this.#handle({ type: "due", nowMs: this.#clock.monotonicMs() }))
  }

  #finish(end: { readonly error?: MillraceError }): void {
    this.#end = end
    this.#timer?.cancel()
    if (end.error !== undefined) {
      this.#join.reject(end.error)
      this.#close()
    }
    this.#changed.wake()
  }

  #close(): void {
    this.#protocol.close()
    this.#over.resolve()
  }
}

function endOfChanges(): Promise<IteratorResult<AssignmentChange>> {
  return Promise.resolve({ done: true, value: undefined })
}
