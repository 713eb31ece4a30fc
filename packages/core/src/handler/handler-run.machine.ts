/**
 * The life of one `run`, as a pure state machine.
 *
 *     state      end, busy          end, idle        idle             deadline
 *     running    draining: drain    over: settle     -                -
 *     draining   (failure kept)     (failure kept)   over: settle     over: abandon
 *     over       -                  -                -                -
 *
 * While it drains, nothing more starts. The first failure is what the run ends with, also when it comes while a run drains that ended well.
 */
export type RunEnding =
  /** The consumer was shut down, or somebody called `stop`. */
  { readonly kind: "well" } | { readonly kind: "failed"; readonly error: unknown }

export type RunEvent =
  | { readonly type: "end"; readonly ending: RunEnding; readonly busy: boolean }
  | { readonly type: "idle" }
  | { readonly type: "deadline" }

/**
 * `drain`: start nothing more, and tell when nothing runs, or when the time is up. `settle`: the run is over. `abandon`: over, and what
 * still runs counts no more.
 */
export type RunCommand = "none" | "drain" | "settle" | "abandon"

export class HandlerRunMachine {
  phase: "running" | "draining" | "over" = "running"
  /** How it ends; absent while it runs. */
  ending: RunEnding | undefined

  step(event: RunEvent): RunCommand {
    if (this.phase === "over") return "none"
    if (event.type === "end") {
      if (this.ending === undefined || (this.ending.kind === "well" && event.ending.kind === "failed")) {
        this.ending = event.ending
      }
      if (this.phase === "draining") return "none"
      this.phase = event.busy ? "draining" : "over"
      return event.busy ? "drain" : "settle"
    }
    if (this.phase === "running") return "none"
    this.phase = "over"
    return event.type === "idle" ? "settle" : "abandon"
  }
}
