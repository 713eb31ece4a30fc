import type { MillraceError } from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import { asMillraceError } from "../partition/failure.ts"
import type { FilterLog } from "./filter-log.ts"

/** How soon a change of a filter is noticed by those who read under it, in ms (table 1.13: membership refresh). @internal */
export const refreshMs = 2000

/** The same on a backend where nobody has made a filter yet: there is hardly anything to notice. @internal */
export const sparseRefreshMs = 30_000

/** Who wants to know of changes. */
export interface FilterFollower {
  /** Filters of some group, perhaps not of this one, may be others now. */
  changed(): void
  /** The filters cannot be read, for a reason that time does not mend. Told once until they can. */
  failed(error: MillraceError): void
}

/**
 * Keeps the filters of one client up to date while somebody follows them: one small request each 2 s, whatever the number of consumers, and
 * each 30 s where there are no filters at all.
 */
export class FilterWatch {
  readonly log: FilterLog
  readonly #clock: Clock
  readonly #followers = new Set<FilterFollower>()
  #timer: Timer | undefined
  /** Whether the timer is the slow one. */
  #sparse = false
  #deafen: (() => void) | undefined
  #failing = false

  constructor(log: FilterLog, clock: Clock) {
    this.log = log
    this.#clock = clock
  }

  /** Starts telling. The answer ends it. */
  follow(follower: FilterFollower): () => void {
    this.#followers.add(follower)
    this.#deafen ??= this.log.listen(() => this.#tellChanged())
    this.#schedule()
    return () => {
      if (!this.#followers.delete(follower) || this.#followers.size > 0) return
      this.#timer?.cancel()
      this.#timer = undefined
      this.#deafen?.()
      this.#deafen = undefined
    }
  }

  /** Looks now, beside the regular times. */
  look(): void {
    this.log.refresh().then(
      () => {
        this.#failing = false
      },
      (error) => this.#failed(asMillraceError(error)),
    )
  }

  #schedule(): void {
    if (this.#timer !== undefined || this.#followers.size === 0) return
    this.#sparse = !this.log.exists
    this.#timer = this.#clock.setTimer(this.#sparse ? sparseRefreshMs : refreshMs, () => this.#due())
  }

  #due(): void {
    this.#timer = undefined
    this.log.refresh().then(
      () => this.#again(undefined),
      (error) => this.#again(asMillraceError(error)),
    )
  }

  #again(error: MillraceError | undefined): void {
    if (error === undefined) this.#failing = false
    else this.#failed(error)
    this.#schedule()
  }

  /** What may pass is tried again in silence: the filters that are known stay in force. */
  #failed(error: MillraceError): void {
    if (error.retryable || error.kind === "timeout" || error.kind === "closed" || this.#failing) return
    this.#failing = true
    for (const follower of [...this.#followers]) follower.failed(error)
  }

  #tellChanged(): void {
    if (this.#sparse && this.log.exists) {
      // The first filter of the backend: from now on there is something to notice.
      this.#timer?.cancel()
      this.#timer = undefined
      this.#schedule()
    }
    for (const follower of [...this.#followers]) follower.changed()
  }
}
