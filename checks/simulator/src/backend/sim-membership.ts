import {
  type AssignmentChange,
  type Claim,
  FencedError,
  type JoinOptions,
  type Membership,
  MillraceError,
  type TopicName,
} from "@millrace/contract"
import { type Clock, Signal, type Timer } from "@millrace/runtime"
import type { MemberView, SimGroup, SimMember } from "./sim-group.ts"

/** How a membership reaches its group. */
export interface GroupLine {
  readonly clock: Clock
  readonly group: SimGroup
  readonly ask: <T>(work: () => T) => Promise<T>
  /** The process is there, and gets to run. */
  readonly isAwake: () => boolean
  /** Somebody gained or lost something: the memberships of the group look soon. */
  readonly changed: () => void
}

/** Sooner than this nobody asks again, in ms. */
const shortestBeatMs = 50

/** How often a leave or a release that failed is tried again. */
const moreTries = 3

/**
 * A member's side of a group, as a driver keeps it: it shows signs of life by itself, hears of changes by itself and, when it was taken
 * for dead, comes back by itself. One question is under way at a time, so that answers come in the order of the truth.
 */
export class SimMembership implements Membership {
  readonly memberId: string
  readonly changes: AsyncIterable<AssignmentChange>
  readonly #line: GroupLine
  readonly #topics: readonly TopicName[]
  readonly #options: JoinOptions
  readonly #told = new Map<unknown, Claim>()
  readonly #toldRevoked = new Set<unknown>()
  readonly #queue: AssignmentChange[] = []
  readonly #arrived = new Signal()
  #member: SimMember
  #timer: Timer | undefined
  #isAsking = false
  #looksAgain = false
  #isFirst = true
  #end: { readonly error: MillraceError | undefined } | undefined
  #leave: Promise<void> | undefined

  /** @param member What the join answered; `view` with what it owns at once. */
  constructor(
    line: GroupLine,
    who: { readonly topics: readonly TopicName[]; readonly options: JoinOptions; readonly member: SimMember },
    view: MemberView,
  ) {
    this.#line = line
    this.#topics = who.topics
    this.#options = who.options
    this.#member = who.member
    this.memberId = who.member.memberId
    this.changes = { [Symbol.asyncIterator]: () => ({ next: () => this.#next() }) }
    this.#hear(view)
    this.#arm()
  }

  async release(claims: readonly Claim[]): Promise<void> {
    for (const { token } of claims) this.#forget(token)
    await this.#insist(() => this.#line.group.release(this.#member, claims))
    this.#line.changed()
  }

  leave(): Promise<void> {
    this.#leave ??= this.#go()
    return this.#leave
  }

  /** Something has changed in the group. */
  look(): void {
    if (this.#end !== undefined) return
    if (this.#isAsking) this.#looksAgain = true
    else this.#beat()
  }

  /** The session is closed, or the process is gone. */
  close(): void {
    this.#finish(undefined)
  }

  async #go(): Promise<void> {
    this.#finish(undefined)
    await this.#insist(() => this.#line.group.leave(this.#member))
    this.#line.changed()
  }

  async #insist(work: () => void): Promise<void> {
    for (let tries = 0; ; tries++) {
      try {
        return await this.#line.ask(work)
      } catch (error) {
        if (tries >= moreTries || !(error instanceof MillraceError) || !error.retryable) throw error
      }
      await new Promise<void>((resolve) => void this.#line.clock.setTimer(shortestBeatMs, resolve))
    }
  }

  async #next(): Promise<IteratorResult<AssignmentChange, undefined>> {
    for (;;) {
      const value = this.#end?.error === undefined && this.#end !== undefined ? undefined : this.#queue.shift()
      if (value !== undefined) return { done: false, value }
      if (this.#end?.error !== undefined) throw this.#end.error
      if (this.#end !== undefined) return { done: true, value: undefined }
      await this.#arrived.next()
    }
  }

  #arm(): void {
    if (this.#end !== undefined) return
    this.#timer?.cancel()
    this.#timer = this.#line.clock.setTimer(Math.max(shortestBeatMs, this.#options.sessionTimeoutMs / 3), () => {
      // Whoever does not get to run shows no life, and hears nothing.
      if (this.#line.isAwake() && !this.#isAsking) this.#beat()
      this.#arm()
    })
  }

  #beat(): void {
    this.#isAsking = true
    const asked = this.#line.ask(() => {
      if (this.#member.state !== "member") return undefined
      return this.#line.group.beat(this.#member)
    })
    this.#follow(asked)
  }

  #follow(asked: Promise<MemberView | undefined>): void {
    asked
      .then(
        (view) => {
          this.#isAsking = false
          if (this.#end !== undefined) return
          if (view !== undefined) this.#hear(view)
          else this.#comeBack()
          const looksAgain = this.#looksAgain
          this.#looksAgain = false
          if (looksAgain) this.look()
        },
        (error: unknown) => {
          this.#isAsking = false
          this.#looksAgain = false
          if (error instanceof MillraceError && !error.retryable && error.kind !== "closed") this.#finish(error)
        },
      )
      .catch((error: unknown) => this.#finish(error as MillraceError))
  }

  /** Taken for dead: what it had is lost, and it joins again under its name, unless another one goes on under that. */
  #comeBack(): void {
    this.#looksAgain = false
    this.#hear({ owned: [], revoking: [] })
    if (this.#member.state === "fenced") {
      this.#finish(new FencedError(`another member goes on as "${this.memberId}"`))
      return
    }
    this.#isAsking = true
    this.#follow(
      this.#line.ask(() => {
        this.#member = this.#line.group.join(this.memberId, this.#topics, this.#options)
        this.#line.changed()
        return this.#line.group.beat(this.#member)
      }),
    )
  }

  #hear({ owned, revoking }: MemberView): void {
    const present = new Set(owned.map(({ token }) => token))
    const lost = [...this.#told.values()].filter(({ token }) => !present.has(token))
    const assigned = owned.filter(({ token }) => !this.#told.has(token) && !revoking.some((one) => one.token === token))
    const revoked = revoking.filter(({ token }) => this.#told.has(token) && !this.#toldRevoked.has(token))
    for (const { token } of lost) this.#forget(token)
    for (const claim of assigned) this.#told.set(claim.token, claim)
    for (const { token } of revoked) this.#toldRevoked.add(token)
    // What it never heard of it can give back at once.
    const unknown = revoking.filter(({ token }) => !this.#told.has(token))
    if (unknown.length > 0) this.release(unknown).catch(() => {})
    if (!this.#isFirst && lost.length + assigned.length + revoked.length === 0) return
    this.#isFirst = false
    this.#queue.push({ assigned, revoked, lost, deadlineMs: this.#options.rebalanceTimeoutMs })
    this.#arrived.wake()
  }

  #forget(token: unknown): void {
    this.#told.delete(token)
    this.#toldRevoked.delete(token)
  }

  #finish(error: MillraceError | undefined): void {
    this.#end ??= { error }
    this.#timer?.cancel()
    this.#arrived.wake()
  }
}
