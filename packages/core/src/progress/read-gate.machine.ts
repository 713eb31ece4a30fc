/**
 * The policy `onRead` for one partition: what was read is handed out only when the store that covers it has succeeded, so that a crash
 * repeats nothing. Pure: events in, commands out, the time inside the event.
 *
 *     phase      leaves by                          to
 *     idle       staged                             storing
 *     storing    stored                             idle, or storing what was read meanwhile
 *                storeFailed (may pass)             waiting
 *                storeFailed (another history)      waiting, unless the reader finds that history before
 *                storeFailed (will not)             failed
 *                storeFailed (outcome unknown)      uncertain
 *                storeFailed (ours no more)         stopped
 *     waiting    due                                storing
 *     failed     errorTaken                         waiting
 *     uncertain  found: it had happened             idle, or storing
 *                found: it had not                  storing
 *                abandoned                          stopped
 *     stopped    nothing but reset
 *     halted     resumed                            idle, or storing
 *     any        halted                             halted, unless it is stopped
 *                reset                              idle
 *
 * Stores are numbered. An answer to an older one than the present is dropped.
 */
import type { MillraceError } from "@millrace/contract"

export type ReadGatePhase = "idle" | "storing" | "waiting" | "failed" | "uncertain" | "stopped" | "halted"

export type ReadGateEvent =
  /** Everything before `next` was read, and waits for its store. */
  | { readonly type: "staged"; readonly next: bigint }
  | { readonly type: "stored"; readonly attempt: number }
  | { readonly type: "storeFailed"; readonly attempt: number; readonly error: MillraceError; readonly atMs: number }
  | { readonly type: "due" }
  /** The error was handed out. */
  | { readonly type: "errorTaken"; readonly atMs: number }
  /** What the backend holds as stored, asked for because nobody knew; `undefined`: nothing. */
  | { readonly type: "found"; readonly stored: bigint | undefined }
  /** Nobody wants to know any more. */
  | { readonly type: "abandoned" }
  /** Nothing more is to be stored: what was read is about to be thrown away. */
  | { readonly type: "halted" }
  /** It is not thrown away after all. */
  | { readonly type: "resumed" }
  /** What was read and not handed out is thrown away: reading goes on elsewhere. */
  | { readonly type: "reset" }

export type ReadGateCommand =
  /** Store `next`: answer `stored` or `storeFailed`. */
  | { readonly type: "store"; readonly attempt: number; readonly next: bigint }
  /** Everything before `next` may be handed out. */
  | { readonly type: "pass"; readonly next: bigint }
  /** The reader is to be told. `uncertain`: until `found` or `abandoned`, nothing more is stored or handed out. */
  | { readonly type: "tell"; readonly error: MillraceError; readonly uncertain: bigint | undefined }
  /** The history may be over: the reader is to look, and answers with `reset` if it is. */
  | { readonly type: "look" }
  /** Answer `due` at this monotonic time. */
  | { readonly type: "wake"; readonly atMs: number }

export interface ReadGateTimes {
  /** The wait before a store that failed is tried again, in ms. */
  readonly retryMs: number
  /** For how long failures that may pass are not told to the reader, in ms; and then again after as long. */
  readonly quietMs: number
}

const nothing: readonly ReadGateCommand[] = []

export class ReadGateMachine {
  readonly #times: ReadGateTimes
  #phase: ReadGatePhase = "idle"
  #attempt = 0
  /** What the present store covers. */
  #storing = 0n
  /** Everything that was read; `undefined`: nothing since the last reset. */
  #staged: bigint | undefined
  /** Everything before it was let through; `undefined`: nothing since the last reset. */
  #passedNext: bigint | undefined
  #failingSinceMs: number | undefined

  constructor(times: ReadGateTimes) {
    this.#times = times
  }

  get phase(): ReadGatePhase {
    return this.#phase
  }

  handle(event: ReadGateEvent): readonly ReadGateCommand[] {
    switch (event.type) {
      case "staged":
        this.#staged = event.next
        return this.#phase === "idle" ? this.#store() : nothing
      case "stored":
        return this.#phase === "storing" && event.attempt === this.#attempt ? this.#passed() : nothing
      case "storeFailed":
        return this.#phase === "storing" && event.attempt === this.#attempt
          ? this.#failed(event.error, event.atMs)
          : nothing
      case "due":
        return this.#phase === "waiting" ? this.#store() : nothing
      case "errorTaken":
        return this.#phase === "failed" ? this.#wait(event.atMs) : nothing
      case "found":
        if (this.#phase !== "uncertain") return nothing
        return event.stored !== undefined && event.stored >= this.#storing ? this.#passed() : this.#store()
      case "abandoned":
        if (this.#phase === "uncertain") this.#phase = "stopped"
        return nothing
      case "halted":
        if (this.#phase !== "stopped") this.#phase = "halted"
        return nothing
      case "resumed":
        if (this.#phase !== "halted") return nothing
        this.#phase = "idle"
        return this.#staged === undefined || this.#staged === this.#passedNext ? nothing : this.#store()
      case "reset":
        this.#phase = "idle"
        this.#staged = undefined
        this.#passedNext = undefined
        this.#failingSinceMs = undefined
        return nothing
    }
  }

  /** One store covers everything that was read by now. */
  #store(): readonly ReadGateCommand[] {
    this.#phase = "storing"
    this.#attempt++
    this.#storing = this.#staged as bigint
    return [{ type: "store", attempt: this.#attempt, next: this.#storing }]
  }

  #passed(): readonly ReadGateCommand[] {
    this.#failingSinceMs = undefined
    this.#phase = "idle"
    this.#passedNext = this.#storing
    const pass = { type: "pass", next: this.#storing } as const
    return (this.#staged as bigint) > this.#storing ? [pass, ...this.#store()] : [pass]
  }

  #failed(error: MillraceError, atMs: number): readonly ReadGateCommand[] {
    // A partition that went to another member: the membership tells of it.
    if (error.kind === "not-assigned") {
      this.#phase = "stopped"
      return nothing
    }
    // With what waits here the reader may have enough, and would never find out by itself.
    if (error.kind === "history-changed") return [...this.#wait(atMs), { type: "look" }]
    if (error.outcome === "unknown") {
      this.#phase = "uncertain"
      return [{ type: "tell", error, uncertain: this.#storing }]
    }
    if (!error.retryable) {
      this.#phase = "failed"
      return [{ type: "tell", error, uncertain: undefined }]
    }
    this.#failingSinceMs ??= atMs
    const waiting = this.#wait(atMs)
    if (atMs - this.#failingSinceMs < this.#times.quietMs) return waiting
    this.#failingSinceMs = atMs
    return [{ type: "tell", error, uncertain: undefined }, ...waiting]
  }

  #wait(atMs: number): readonly ReadGateCommand[] {
    this.#phase = "waiting"
    return [{ type: "wake", atMs: atMs + this.#times.retryMs }]
  }
}
