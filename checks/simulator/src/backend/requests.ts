import { ClosedError, ConnectionError, MillraceError, PermissionError } from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import type { Fate } from "./fate.ts"

/** Less than this is the rounding of sums, in ms. */
const shortestMs = 0.001

/** A request under way. */
interface Request {
  /** Until the backend handles it; then until the caller hears of it. */
  timer: Timer
  isHandled: boolean
  readonly handle: () => void
  readonly reject: (error: MillraceError) => void
}

/**
 * The requests of one connection: each takes its time, is handled or not, and is answered or not, as its fate says. Nothing stays
 * unanswered when the connection is closed.
 */
export class Requests {
  readonly #clock: Clock
  readonly #open = new Set<Request>()
  #closed = false
  #isAbandoned = false
  #down = false
  #stalledUntilMs = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get isClosed(): boolean {
    return this.#closed
  }

  get isDown(): boolean {
    return this.#down
  }

  /** How many have not been answered. */
  get open(): number {
    return this.#open.size
  }

  /**
   * @param work What the backend does; what it throws is the answer.
   * @param skip Called in its place when the request comes to nothing, at the time at which it would have been handled.
   */
  run<T>(fate: Fate, work: () => T, skip?: () => void): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#isAbandoned) return
      if (this.#closed) return reject(new ClosedError("the session was closed"))
      if (this.#down) return reject(new ConnectionError("the backend cannot be reached"))
      const handle = (): void => {
        request.isHandled = true
        if (isSkipped(fate)) skip?.()
        const answer = handled(fate, work, { resolve, reject })
        if (answer === undefined || !this.#open.has(request)) return
        request.timer = this.#hearAfter(fate.answerMs, request, answer)
      }
      const timer = this.#clock.setTimer(fate.arriveMs, handle)
      const request: Request = { timer, isHandled: false, handle, reject }
      this.#open.add(request)
    })
  }

  /** The process does not get to run until then: what is answered meanwhile is heard at the end of it. */
  stallUntil(ms: number): void {
    this.#stalledUntilMs = Math.max(this.#stalledUntilMs, ms)
  }

  get isStalled(): boolean {
    return this.#stalledUntilMs > this.#clock.monotonicMs()
  }

  /**
   * A request that goes its own way: it fails with the connection, as all others do. The answer tells the caller after so many ms, unless
   * that has happened before.
   */
  begin(reject: (error: MillraceError) => void): ((answerMs: number, answer: () => void) => void) | undefined {
    if (this.#isAbandoned) return () => {}
    if (this.#closed) reject(new ClosedError("the session was closed"))
    else if (this.#down) reject(new ConnectionError("the backend cannot be reached"))
    if (this.#closed || this.#down) return undefined
    const request: Request = { timer: noTimer, isHandled: true, handle: () => {}, reject }
    this.#open.add(request)
    return (answerMs, answer) => {
      if (this.#open.has(request)) request.timer = this.#hearAfter(answerMs, request, answer)
    }
  }

  #hearAfter(ms: number, request: Request, hear: () => void): Timer {
    return this.#clock.setTimer(ms, () => {
      const leftMs = this.#stalledUntilMs - this.#clock.monotonicMs()
      if (leftMs > shortestMs) {
        request.timer = this.#hearAfter(leftMs, request, hear)
        return
      }
      this.#open.delete(request)
      hear()
    })
  }

  /**
   * The connection ends: what is under way has an unknown outcome. Later requests are refused until `restore`.
   * @param straggles After how many ms a request that the backend has not seen arrives all the same; `undefined`: never.
   */
  cut(straggles: () => number | undefined): void {
    this.#down = true
    for (const request of this.#drop(straggles)) {
      request.reject(new ConnectionError("the connection was lost", { outcome: "unknown" }))
    }
  }

  restore(): void {
    this.#down = false
  }

  /** The process is gone: nobody hears of anything any more. */
  abandon(straggles: () => number | undefined): void {
    this.#closed = true
    this.#isAbandoned = true
    this.#drop(straggles)
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    for (const request of this.#drop(() => undefined)) {
      request.reject(new ClosedError("the session was closed", { outcome: "unknown" }))
    }
  }

  #drop(straggles: () => number | undefined): Request[] {
    const open = [...this.#open]
    this.#open.clear()
    for (const request of open) {
      request.timer.cancel()
      const laterMs = request.isHandled ? undefined : straggles()
      if (laterMs !== undefined) this.#clock.setTimer(laterMs, request.handle)
    }
    return open
  }
}

const noTimer: Timer = { cancel: () => {} }

/** Does what the fate says; answers how the caller is told, `undefined` when it never hears of it. */
function handled<T>(
  fate: Fate,
  work: () => T,
  caller: { readonly resolve: (value: T) => void; readonly reject: (error: unknown) => void },
): (() => void) | undefined {
  if (fate.kind === "hole") return undefined
  if (fate.kind === "refuse") return () => caller.reject(fate.error ?? new PermissionError("refused"))
  if (fate.kind === "vanish") return () => caller.reject(fate.error ?? lost())
  let result: T
  try {
    result = work()
  } catch (error) {
    if (!(error instanceof MillraceError)) throw error
    return fate.kind === "silence" ? undefined : () => caller.reject(error)
  }
  if (fate.kind === "silence") return undefined
  return fate.kind === "lose" ? () => caller.reject(fate.error ?? lost()) : () => caller.resolve(result)
}

function lost(): ConnectionError {
  return new ConnectionError("the connection was lost", { outcome: "unknown" })
}

function isSkipped({ kind }: Fate): boolean {
  return kind === "refuse" || kind === "vanish" || kind === "hole"
}
