import type { Clock, Timer } from "./clock.ts"

interface Pending {
  readonly due: number
  readonly order: number
  readonly callback: () => void
}

/** A clock that stands still until it is told to move. Timers fire in the order of their time, then of their setting. */
export class VirtualClock implements Clock {
  #wallMicros: bigint
  #monotonicMs = 0
  #order = 0
  readonly #pending = new Set<Pending>()

  constructor(startMicros = 1_700_000_000_000_000n) {
    this.#wallMicros = startMicros
  }

  nowMicros(): bigint {
    return this.#wallMicros
  }

  monotonicMs(): number {
    return this.#monotonicMs
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    const pending: Pending = { due: this.#monotonicMs + Math.max(0, delayMs), order: this.#order++, callback }
    this.#pending.add(pending)
    return { cancel: () => void this.#pending.delete(pending) }
  }

  /** How many timers wait: 0 after a clean shutdown. */
  get timers(): number {
    return this.#pending.size
  }

  /** Moves both times on and fires what falls due, letting promises settle after each timer. */
  async advance(ms: number): Promise<void> {
    const target = this.#monotonicMs + ms
    await settle()
    for (;;) {
      const next = [...this.#pending].sort((a, b) => a.due - b.due || a.order - b.order)[0]
      if (next === undefined || next.due > target) break
      this.#pending.delete(next)
      this.#moveTo(next.due)
      next.callback()
      await settle()
    }
    this.#moveTo(target)
  }

  /** Sets the wall clock, also back, without touching the monotonic time. */
  setWall(micros: bigint): void {
    this.#wallMicros = micros
  }

  #moveTo(ms: number): void {
    this.#wallMicros += BigInt(Math.round((ms - this.#monotonicMs) * 1000))
    this.#monotonicMs = ms
  }
}

/** Lets every promise that is ready run, and those that these make ready. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
