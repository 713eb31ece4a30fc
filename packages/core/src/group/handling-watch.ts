import type { Clock, Timer } from "@millrace/runtime"
import type { OverdueHandling } from "../consumer/consumer-events.ts"
import type { Lane } from "../partition/lane.ts"
import { HandlingWatchMachine, type WorkSight } from "./handling-watch.machine.ts"

/** The consumer as the watch sees it. */
export interface Handling {
  readonly lanes: Iterable<Lane>
  /** Handlers of `run` or the pages of a group reader work on several messages at a time. */
  readonly feeding: boolean
  /** Whether one of those is of this partition. */
  working(lane: Lane): boolean
  /** The caller has something that it was handed, and has not asked for more. */
  readonly inHand: boolean
  /** Another number whenever something was handed out or asked for. */
  readonly turns: number
}

/**
 * Tells when something that was handed out is not handled within `handlerTimeoutMs`. With handlers of `run` each partition's
 * oldest unhandled message counts, while a handler is at work on the partition: what waits for its turn, or is paused, is in nobody's hands. Else the caller does: it has asked for nothing more, whatever it was given.
 */
export class HandlingWatch {
  readonly #handling: Handling
  readonly #clock: Clock
  readonly #machine: HandlingWatchMachine
  readonly #overdue: (overdue: OverdueHandling) => void
  #timer: Timer | undefined

  constructor(
    handling: Handling,
    { clock, timeoutMs }: { readonly clock: Clock; readonly timeoutMs: number },
    overdue: (overdue: OverdueHandling) => void,
  ) {
    this.#handling = handling
    this.#clock = clock
    this.#machine = new HandlingWatchMachine(timeoutMs)
    this.#overdue = overdue
  }

  start(): void {
    if (this.#timer === undefined) this.#arm()
  }

  /** Stops looking, until `start`. */
  stop(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#machine.forget()
  }

  #arm(): void {
    this.#timer = this.#clock.setTimer(this.#machine.intervalMs, () => this.#look(), { background: true })
  }

  #look(): void {
    const overdue = this.#machine.look(this.#clock.monotonicMs(), this.#work())
    this.#arm()
    if (overdue === undefined) return
    const { key, forMs } = overdue
    if (key === this.#handling) {
      this.#overdue({ forMs })
      return
    }
    const { partition, oldestOpen: offset } = key as Lane
    this.#overdue(offset === undefined ? { partition, forMs } : { partition, offset, forMs })
  }

  #work(): WorkSight[] {
    const { feeding, inHand, turns, lanes } = this.#handling
    if (!feeding) return inHand ? [{ key: this.#handling, mark: turns }] : []
    const work: WorkSight[] = []
    for (const lane of lanes) {
      const oldest = lane.oldestOpen
      if (oldest !== undefined && this.#handling.working(lane)) work.push({ key: lane, mark: oldest })
    }
    return work
  }
}
