/**
 * When reports of statistics are made, as a pure machine.
 *
 *     state     | producers       | due             | reported             | lost            | shutdown
 *     idle      | any: waiting    | –               | –                    | –               | ended
 *     waiting   | none: idle      | busy            | –                    | waiting, closed | ended
 *     busy      | noted           | –               | waiting, or idle     | noted           | ended
 *     ended     | –               | –               | –                    | –               | –
 *
 * Leaving for `idle` or `ended` closes the connection, and so does a failure or a loss: the next report that is due opens another. After
 * failures reports are made at longer intervals, so that a backend which is down is not dialled more often for their sake.
 */

/** What happens to the reporter. */
export type ReporterEvent =
  /** Producers came or went; so many are live. */
  | { readonly kind: "producers"; readonly live: number }
  /** The timer fired. */
  | { readonly kind: "due" }
  /** A report has ended. `nothing`: there was nothing to tell. */
  | { readonly kind: "reported"; readonly outcome: "sent" | "nothing" | "failed" }
  /** The observer's connection was lost. */
  | { readonly kind: "lost" }
  | { readonly kind: "shutdown" }

/** What the owner has to do, in order. `report` is answered by `reported`; the others never are. */
export type ReporterCommand =
  | { readonly kind: "setTimer"; readonly ms: number }
  | { readonly kind: "cancelTimer" }
  | { readonly kind: "report" }
  | { readonly kind: "disconnect" }

/** Where the reporter stands. */
export type ReporterState = "idle" | "waiting" | "busy" | "ended"

/** The interval grows with each failure in a row: so many times at the most. */
const longestPauseIntervals = 8

const nothingToDo: readonly ReporterCommand[] = []

/** Decides when to report, and when the observer's connection is closed. */
export class ReporterMachine {
  readonly #intervalMs: number
  #state: ReporterState = "idle"
  #live = 0
  #failures = 0
  #isLost = false

  /** @param intervalMs From one report's end to the next. */
  constructor(intervalMs: number) {
    this.#intervalMs = intervalMs
  }

  get state(): ReporterState {
    return this.#state
  }

  step(event: ReporterEvent): readonly ReporterCommand[] {
    if (this.#state === "ended") return nothingToDo
    switch (event.kind) {
      case "producers":
        return this.#counted(event.live)
      case "due":
        if (this.#state !== "waiting") return nothingToDo
        this.#state = "busy"
        this.#isLost = false
        return [{ kind: "report" }]
      case "reported":
        return this.#state === "busy" ? this.#reported(event.outcome) : nothingToDo
      case "lost":
        if (this.#state === "busy") this.#isLost = true
        return this.#state === "waiting" ? [{ kind: "disconnect" }] : nothingToDo
      case "shutdown":
        this.#state = "ended"
        return [{ kind: "cancelTimer" }, { kind: "disconnect" }]
    }
  }

  #counted(live: number): readonly ReporterCommand[] {
    this.#live = live
    if (this.#state === "idle" && live > 0) return this.#wait()
    if (this.#state === "waiting" && live === 0) {
      this.#state = "idle"
      return [{ kind: "cancelTimer" }, { kind: "disconnect" }]
    }
    return nothingToDo
  }

  #reported(outcome: "sent" | "nothing" | "failed"): readonly ReporterCommand[] {
    this.#failures = outcome === "failed" ? this.#failures + 1 : 0
    const isClosing = outcome === "failed" || this.#isLost
    if (this.#live === 0) {
      this.#state = "idle"
      return [{ kind: "disconnect" }]
    }
    return isClosing ? [{ kind: "disconnect" }, ...this.#wait()] : this.#wait()
  }

  #wait(): readonly ReporterCommand[] {
    this.#state = "waiting"
    const intervals = Math.min(longestPauseIntervals, 2 ** Math.min(this.#failures, 10))
    return [{ kind: "setTimer", ms: this.#intervalMs * intervals }]
  }
}
