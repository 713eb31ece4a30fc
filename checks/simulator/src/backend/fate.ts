import type { MillraceError } from "@millrace/contract"

/**
 * What becomes of one request.
 *
 *     kind      the backend does it   the caller hears
 *     answer    yes                   the answer
 *     refuse    no                    `error`, of outcome `rejected`
 *     lose      yes                   `error`, of outcome `unknown`
 *     vanish    no                    `error`, of outcome `unknown`
 *     silence   yes                   nothing, until the connection ends
 *     hole      no                    nothing, until the connection ends
 */
export interface Fate {
  readonly kind: "answer" | "refuse" | "lose" | "vanish" | "silence" | "hole"
  /** Until the backend handles it, in ms. Requests of one partition are handled in their order all the same. */
  readonly arriveMs: number
  /** From there until the caller hears of it, in ms. */
  readonly answerMs: number
  /** Only for `refuse`, `lose` and `vanish`; each has a default. */
  readonly error?: MillraceError
}

/** What is asked of work queues. */
export type QueueRequest = "queue" | "pull" | "settle"

/** What is asked of a coordinator of transactions. */
export type TransactionRequest = "init" | "begin" | "enlist" | "prepare" | "commit" | "abort" | "complete" | "prepared"

/** Requests that are not appends, by what they ask for. */
export type ControlRequest =
  | "describe"
  | "create"
  | "change"
  | "identify"
  | "read"
  | "offsets"
  | "locate"
  | "group"
  | QueueRequest
  | TransactionRequest
  | "state"

/**
 * What is odd about the answer of one poll. All of it is allowed by the contract.
 *
 * - `early`: nothing, before the wait is over, though there may be something.
 * - `partial`: one batch, of one partition.
 * - `stale`: what it answers may be of positions that were replaced meanwhile.
 */
export type ReadOddity = "none" | "early" | "partial" | "stale"

/** Decides on each request when it is made. */
export interface FaultPlan {
  append(place: { readonly topic: string; readonly partition: number; readonly count: number }): Fate
  control(request: ControlRequest): Fate
  /** How the answer of a poll is odd. Absent: never. */
  oddity?(): ReadOddity
  /** Whether a request that was on its way when its connection ended arrives all the same, later by this many ms; else it is lost. */
  straggles(): number | undefined
}

/** Everything is answered, at once. */
export const noFaults: FaultPlan = {
  append: () => prompt,
  control: () => prompt,
  straggles: () => undefined,
}

const prompt: Fate = { kind: "answer", arriveMs: 0, answerMs: 0 }
