/**
 * The states of a transactional producer (seed 004; table 5.2 of the options). Pure: calls and their outcomes go in, and a call that the
 * state does not allow is refused before anything is asked of the backend.
 *
 *     state                  call                      outcome                 next state
 *     Uninitialized          init                                              Initializing
 *     Initializing                                     initialized             Ready, or Prepared when a prepared transaction was kept
 *                                                      refused                 Uninitialized, or RecoveryRequired when it was ready before
 *     Ready                  init                                              Initializing
 *                            begin                                             InTransaction
 *     InTransaction          send, sendOffsets                                 InTransaction
 *                            prepare                                           Preparing
 *                            commit, abort                                     CommittingOrAborting
 *                                                      refused (of begin)      Ready
 *     Preparing                                        prepared                Prepared
 *                                                      refused                 InTransaction
 *     Prepared               commit, abort, complete                           CommittingOrAborting
 *     CommittingOrAborting                             ended                   Ready
 *                                                      refused                 InTransaction or Prepared, as before
 *     RecoveryRequired       init                                              Initializing
 *     any but the last two                             doubtful                RecoveryRequired
 *                                                      fenced                  Fenced
 *                                                      fatal                   FatalError
 *     Fenced, FatalError     none                      none                    for good
 */
import { type MillraceError, TransactionStateError } from "@millrace/contract"

/** Where a transactional producer stands. */
export type TransactionState =
  | "Uninitialized"
  | "Initializing"
  | "Ready"
  | "InTransaction"
  | "Preparing"
  | "Prepared"
  | "CommittingOrAborting"
  | "RecoveryRequired"
  | "Fenced"
  | "FatalError"

/** What a caller asks for. */
export type TransactionCall = "init" | "begin" | "send" | "sendOffsets" | "prepare" | "commit" | "abort" | "complete"

/** What came of it. */
export type TransactionOutcome =
  | { readonly kind: "initialized"; readonly prepared: boolean }
  | { readonly kind: "prepared" | "ended" | "refused" }
  /** Nobody knows whether it happened, or what a guard has left behind. */
  | { readonly kind: "doubtful" }
  /** A newer incarnation has taken over; or nothing can be done with this producer any more. */
  | { readonly kind: "fenced" | "fatal"; readonly error: MillraceError }

const calls: Readonly<Record<TransactionState, Partial<Readonly<Record<TransactionCall, TransactionState>>>>> = {
  Uninitialized: { init: "Initializing" },
  Initializing: {},
  Ready: { init: "Initializing", begin: "InTransaction" },
  InTransaction: {
    send: "InTransaction",
    sendOffsets: "InTransaction",
    prepare: "Preparing",
    commit: "CommittingOrAborting",
    abort: "CommittingOrAborting",
  },
  Preparing: {},
  Prepared: { commit: "CommittingOrAborting", abort: "CommittingOrAborting", complete: "CommittingOrAborting" },
  CommittingOrAborting: {},
  RecoveryRequired: { init: "Initializing" },
  Fenced: {},
  FatalError: {},
}

const all: readonly TransactionCall[] = [
  "init",
  "begin",
  "send",
  "sendOffsets",
  "prepare",
  "commit",
  "abort",
  "complete",
]

/** Why a state allows nothing, or what to do in it, as errors say it. */
const advice: Partial<Readonly<Record<TransactionState, string>>> = {
  Uninitialized: "call init() first",
  Initializing: "wait for init()",
  Preparing: "wait for prepare()",
  Prepared: "a prepared transaction takes nothing more",
  CommittingOrAborting: "wait for the call that ends the transaction",
  InTransaction: "one transaction at a time: end the open one",
  Ready: "call begin() first",
  RecoveryRequired: "what became of the last transaction is not known here: call init(), which ends it",
  Fenced: "a newer incarnation of the transactional id has taken over: close this producer",
  FatalError: "close this producer",
}

export class TransactionMachine {
  readonly #what: string
  #state: TransactionState = "Uninitialized"
  /** Where a refused call leads back to. */
  #before: TransactionState = "Uninitialized"
  #terminal: MillraceError | undefined
  #held: MillraceError | undefined

  /** @param what How errors call the producer. */
  constructor(what: string) {
    this.#what = what
  }

  get state(): TransactionState {
    return this.#state
  }

  /** What the transaction holds against it: it can only be aborted. */
  get held(): MillraceError | undefined {
    return this.#held
  }

  /** @throws FencedError or the fatal error, once there was one */
  assertLiving(): void {
    if (this.#terminal !== undefined) throw this.#terminal
  }

  /** @throws TransactionStateError that names the state and what is allowed in it; FencedError and the fatal error, once there was one */
  assert(call: TransactionCall): void {
    if (this.#terminal !== undefined) throw this.#terminal
    if (calls[this.#state][call] === undefined) throw this.#refusal(call)
  }

  /** @throws as `assert` */
  call(call: TransactionCall): void {
    this.assert(call)
    const next = calls[this.#state][call] as TransactionState
    if (next === this.#state) return
    // Who was ready has a session that a failed init may have fenced.
    if (call === "init") this.#before = this.#state === "Uninitialized" ? "Uninitialized" : "RecoveryRequired"
    else this.#before = this.#state
    this.#state = next
  }

  /** The transaction must be aborted. The first reason counts, unless a later one leaves more open. */
  hold(error: MillraceError): void {
    this.#held ??= error
  }

  /** What came of the last call; some things come by themselves, and what is over stays so. */
  outcome(outcome: TransactionOutcome): void {
    if (this.#terminal !== undefined) return
    switch (outcome.kind) {
      case "initialized":
        this.#from("Initializing", outcome.kind)
        this.#enter(outcome.prepared ? "Prepared" : "Ready")
        break
      case "prepared":
        this.#from("Preparing", outcome.kind)
        this.#enter("Prepared")
        break
      case "ended":
        this.#from("CommittingOrAborting", outcome.kind)
        this.#enter("Ready")
        break
      case "refused":
        this.#enter(this.#before)
        break
      case "doubtful":
        this.#enter("RecoveryRequired")
        break
      case "fenced":
      case "fatal":
        this.#terminal = outcome.error
        this.#enter(outcome.kind === "fenced" ? "Fenced" : "FatalError")
        break
    }
  }

  #enter(state: TransactionState): void {
    this.#state = state
    if (state !== "InTransaction" && state !== "Preparing" && state !== "CommittingOrAborting") this.#held = undefined
  }

  #from(state: TransactionState, outcome: string): void {
    if (this.#state !== state) throw new Error(`transaction: ${outcome} does not come in ${this.#state}`)
  }

  #refusal(call: TransactionCall): TransactionStateError {
    const state = this.#state
    const allowed = all.filter((name) => calls[state][name] !== undefined)
    const may = allowed.length === 0 ? "nothing is" : `${allowed.join(", ")} ${allowed.length === 1 ? "is" : "are"}`
    return new TransactionStateError(
      `${this.#what}: ${call} is not possible in state ${state}, in which ${may} allowed: ${advice[state]}`,
      { context: { state, call, allowed } },
    )
  }
}
