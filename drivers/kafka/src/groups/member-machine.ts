/** What the machines of both group protocols have in common: the events they take and the commands they give. */
import type { MillraceError } from "@millrace/contract"
import type { Fence } from "./claim-token.ts"
import type { ClaimChange } from "./member-claims.ts"

/** `nowMs`: monotonic time. */
export type MemberEvent<Answer> =
  /** The call under way was answered. */
  | { readonly type: "answered"; readonly nowMs: number; readonly answer: Answer }
  /** The call under way failed. */
  | { readonly type: "failed"; readonly nowMs: number; readonly error: MillraceError }
  /** The armed time has come. */
  | { readonly type: "due"; readonly nowMs: number }
  /** The owner is done with these claims, and waits under this ticket. */
  | { readonly type: "release"; readonly nowMs: number; readonly ticket: number; readonly claims: readonly number[] }
  /** The owner goes, and waits under this ticket. */
  | { readonly type: "leave"; readonly nowMs: number; readonly ticket: number }

export type MemberCommand<Call> =
  /** The next event of type `answered` or `failed` is its answer. At most one is under way. */
  | { readonly type: "call"; readonly call: Call }
  /** Sets the one timer, in place of the one set before. */
  | { readonly type: "arm"; readonly delayMs: number }
  /** `take` has something to tell. */
  | { readonly type: "offer" }
  /** The member is known to the others. */
  | { readonly type: "joined" }
  /** Those who wait under these tickets need wait no longer. */
  | { readonly type: "settle"; readonly tickets: readonly number[]; readonly error?: MillraceError }
  /** Nothing follows for the owner but what `take` still tells, and then the error, if there is one. */
  | { readonly type: "end"; readonly error?: MillraceError }

/** One group protocol, as the membership drives it. Pure. */
export interface MemberMachine<Call, Answer> {
  /** The first commands. */
  start(nowMs: number): readonly MemberCommand<Call>[]
  /** One event. The commands are to be carried out in order, before the next event. */
  handle(event: MemberEvent<Answer>): readonly MemberCommand<Call>[]
  /** What the owner has not heard yet; `undefined` when there is nothing. The first time also when nothing was assigned. */
  take(nowMs: number): ClaimChange | undefined
  /** How a commit under this claim proves itself now; `undefined` when the claim is void. */
  fence(claim: number): Fence | undefined
}

/** Sessions of a group with the same limits for both protocols. */
export interface MemberTimes {
  readonly sessionTimeoutMs: number
  readonly rebalanceTimeoutMs: number
}
