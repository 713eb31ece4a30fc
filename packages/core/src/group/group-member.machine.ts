/**
 * The life of a consumer in its group. Pure: events in, commands out.
 *
 *     phase     event                          to        commands
 *     joining   joined                         member    follow
 *     joining   failed, may pass               resting   rest
 *     joining   failed, missing                resting   tell, rest
 *     joining   failed for good                over      end
 *     member    overdue                        leaving   leave
 *     member    failed, may pass               resting   drop, rest
 *     member    failed, missing                resting   drop, tell, rest
 *     member    failed for good, ended         over      drop, end
 *     leaving   left                           away      (join, when somebody came back meanwhile)
 *     away      wanted                         joining   join
 *     resting   rested                         joining   join (away, when the failure was told and nobody came back since)
 *     any       shutdown                       over
 *
 * What may pass: errors that are retryable, and with `onMissing: "wait"` a group or topic that is not there. Missing, with
 * `onMissing: "fail"`: the error is told once, and who asks again makes the consumer look again, as for a single partition. For good are
 * a name that another member took, a wrong call, and a client that was closed. An event that the phase does not expect came too late,
 * and is dropped.
 */
import { ClosedError, type MillraceError, NotFoundError } from "@millrace/contract"

export type MemberPhase = "joining" | "member" | "leaving" | "away" | "resting" | "over"

export type MemberEvent =
  | { readonly type: "joined" }
  /** The join, or the membership, failed. */
  | { readonly type: "failed"; readonly error: MillraceError }
  /** The membership ended without being asked to. */
  | { readonly type: "ended" }
  /** What was handed out was not handled in time. */
  | { readonly type: "overdue" }
  /** The group was left; failures of that are told elsewhere. */
  | { readonly type: "left" }
  /** A caller waits for a message. */
  | { readonly type: "wanted" }
  | { readonly type: "rested" }
  | { readonly type: "shutdown" }

export type MemberCommand =
  | { readonly type: "join" }
  /** Follow the changes of the membership. */
  | { readonly type: "follow" }
  /** Leave the group; answer `left`. */
  | { readonly type: "leave" }
  /** Whatever partitions there are, they are lost. */
  | { readonly type: "drop" }
  /** Answer `rested` after a while. */
  | { readonly type: "rest" }
  /** The next read fails with this. */
  | { readonly type: "tell"; readonly error: MillraceError }
  /** Every read fails with this from now on. */
  | { readonly type: "end"; readonly error: MillraceError }

const nothing: readonly MemberCommand[] = []

export class GroupMemberMachine {
  readonly #waits: boolean
  #phase: MemberPhase = "joining"
  /** Somebody asked for a message since the member left, or since the failure was told. */
  #wanted = false
  /** Who is told of a failure decides whether it is worth another try. */
  #told = false

  /** @param policy.onMissing What to do when the group or a topic does not exist. */
  constructor(policy: { readonly onMissing: "fail" | "wait" }) {
    this.#waits = policy.onMissing === "wait"
  }

  get phase(): MemberPhase {
    return this.#phase
  }

  handle(event: MemberEvent): readonly MemberCommand[] {
    if (this.#phase === "over") return nothing
    switch (event.type) {
      case "joined":
        return this.#phase === "joining" ? this.#go("member", { type: "follow" }) : nothing
      case "failed":
        return this.#failed(event.error)
      case "ended":
        return this.#phase === "member"
          ? this.#end(new ClosedError("the membership of the group has ended"), { type: "drop" })
          : nothing
      case "overdue":
        this.#wanted = false
        return this.#phase === "member" ? this.#go("leaving", { type: "leave" }) : nothing
      case "left":
        if (this.#phase !== "leaving") return nothing
        return this.#wanted ? this.#go("joining", { type: "join" }) : this.#go("away")
      case "wanted":
        if (this.#phase === "away") return this.#go("joining", { type: "join" })
        this.#wanted = true
        return nothing
      case "rested":
        if (this.#phase !== "resting") return nothing
        return this.#told && !this.#wanted ? this.#go("away") : this.#go("joining", { type: "join" })
      case "shutdown":
        return this.#go("over")
    }
  }

  #failed(error: MillraceError): readonly MemberCommand[] {
    if (this.#phase !== "joining" && this.#phase !== "member") return nothing
    const before: MemberCommand[] = this.#phase === "member" ? [{ type: "drop" }] : []
    const missing = error instanceof NotFoundError
    this.#told = missing && !this.#waits
    this.#wanted = false
    if (this.#told) return this.#go("resting", ...before, { type: "tell", error }, { type: "rest" })
    return error.retryable || missing ? this.#go("resting", ...before, { type: "rest" }) : this.#end(error, ...before)
  }

  #end(error: MillraceError, ...before: readonly MemberCommand[]): readonly MemberCommand[] {
    return this.#go("over", ...before, { type: "end", error })
  }

  #go(phase: MemberPhase, ...commands: readonly MemberCommand[]): readonly MemberCommand[] {
    this.#phase = phase
    return commands
  }
}
