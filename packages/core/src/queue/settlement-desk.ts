import { ClosedError, type MillraceError, type QueueSession, type Settlement } from "@millrace/contract"
import { backoffMs, type Clock } from "@millrace/runtime"
import { asMillraceError } from "../partition/failure.ts"

/** Hears what became of one settlement. */
export interface SettlementSink {
  /** @param askedMs When the request began that was answered, on the monotonic clock. */
  settled(counts: boolean, askedMs: number): void
  failed(error: MillraceError): void
}

/** Settlements of one request. */
const mostTogether = 4096
/** Tries of a request whose failure may pass. */
const mostTries = 5
const firstWaitMs = 50
const longestWaitMs = 2000

/**
 * Sends settlements: those of one turn, and those that come while a request is under way, together. One request at a time for those that
 * are to be confirmed, and one for the others, so that they arrive in the order of the calls. A request whose failure may pass is tried
 * again, up to five times.
 */
export class SettlementDesk {
  readonly #session: QueueSession
  readonly #clock: Clock
  readonly #lanes: readonly [DeskLane, DeskLane]

  constructor(session: QueueSession, clock: Clock) {
    this.#session = session
    this.#clock = clock
    this.#lanes = [new DeskLane(), new DeskLane()]
  }

  /** Each sink hears once, in a later turn. */
  settle(settlement: Settlement, sink: SettlementSink, confirm: boolean): void {
    const lane = this.#lanes[confirm ? 1 : 0]
    lane.settlements.push(settlement)
    lane.sinks.push(sink)
    if (lane.flushing !== undefined) return
    lane.flushing = this.#flush(lane, confirm)
  }

  /** Settles when nothing is under way. Never rejects: sinks hear of failures. */
  async idle(): Promise<void> {
    for (;;) {
      const flushing = this.#lanes.map((lane) => lane.flushing).filter((one) => one !== undefined)
      if (flushing.length === 0) return
      await Promise.all(flushing)
    }
  }

  /** What is waiting, or waits to be tried again, fails with ClosedError; a request under way is still heard. */
  close(what: string): void {
    for (const lane of this.#lanes) {
      lane.closed = new ClosedError(`${what} was shut down before the settlement was sent`)
      lane.wake?.()
    }
  }

  async #flush(lane: DeskLane, confirm: boolean): Promise<void> {
    // What comes in the same turn comes along.
    await Promise.resolve()
    while (lane.settlements.length > 0) {
      const settlements = lane.settlements.splice(0, mostTogether)
      const sinks = lane.sinks.splice(0, mostTogether)
      await this.#send(lane, { settlements, sinks, confirm })
    }
    lane.flushing = undefined
  }

  async #send(lane: DeskLane, request: DeskRequest): Promise<void> {
    for (let tries = 1; ; tries++) {
      if (lane.closed !== undefined) return failAll(request, lane.closed)
      const askedMs = this.#clock.monotonicMs()
      try {
        const outcomes = await this.#session.settle(request.settlements, { confirm: request.confirm })
        return tell(request, outcomes, askedMs)
      } catch (thrown) {
        const error = asMillraceError(thrown)
        if (!error.retryable || tries >= mostTries) return failAll(request, error)
        await this.#rest(lane, backoffMs(tries - 1, firstWaitMs, longestWaitMs))
      }
    }
  }

  #rest(lane: DeskLane, ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        timer.cancel()
        lane.wake = undefined
        resolve()
      }
      const timer = this.#clock.setTimer(ms, end)
      lane.wake = end
    })
  }
}

class DeskLane {
  readonly settlements: Settlement[] = []
  readonly sinks: SettlementSink[] = []
  flushing: Promise<void> | undefined
  closed: ClosedError | undefined
  /** Ends a wait between two tries. */
  wake: (() => void) | undefined
}

interface DeskRequest {
  readonly settlements: readonly Settlement[]
  readonly sinks: readonly SettlementSink[]
  readonly confirm: boolean
}

function tell({ sinks }: DeskRequest, outcomes: readonly (boolean | MillraceError)[], askedMs: number): void {
  for (let i = 0; i < sinks.length; i++) {
    const sink = sinks[i] as SettlementSink
    const outcome = outcomes[i]
    if (typeof outcome === "boolean") sink.settled(outcome, askedMs)
    else sink.failed(asMillraceError(outcome ?? new Error("a settlement without an answer")))
  }
}

function failAll({ sinks }: DeskRequest, error: MillraceError): void {
  for (const sink of sinks) sink.failed(error)
}

/** A sink with a promise. */
export class PromisedSettlement implements SettlementSink {
  readonly promise: Promise<boolean>
  #resolve!: (counts: boolean) => void
  #reject!: (error: MillraceError) => void
  readonly #counted: ((askedMs: number) => void) | undefined

  /** @param counted Called before the promise resolves with true. */
  constructor(counted?: (askedMs: number) => void) {
    this.#counted = counted
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
  }

  settled(counts: boolean, askedMs: number): void {
    if (counts) this.#counted?.(askedMs)
    this.#resolve(counts)
  }

  failed(error: MillraceError): void {
    this.#reject(error)
  }
}
