import type { Clock, Timer } from "@millrace/runtime"

/** No program that is simulated sets as many timers: one that does runs in circles. */
const mostTimers = 200_000

/** No timer is finer, in ms: who waits for a time that rounding has put a hair behind now gets there. */
const shortestMs = 0.001

interface Pending {
  readonly due: number
  readonly order: number
  readonly callback: () => void
  isLive: boolean
}

/**
 * A clock that jumps from timer to timer, letting every promise settle in between, so that hours take milliseconds and the same program
 * runs the same way each time. Timers fire in the order of their time, then of their setting. Beside the virtual clock of the runtime
 * it runs until something holds, and keeps its timers in a heap, for thousands of them.
 */
export class SimClock implements Clock {
  #wallMicros: bigint
  #monotonicMs = 0
  #order = 0
  #live = 0
  #fired = 0
  readonly #heap: Pending[] = []

  /** @param startMicros The wall time it begins at, in µs since 1970. */
  constructor(startMicros: bigint = 1_700_000_000_000_000n) {
    this.#wallMicros = startMicros
  }

  nowMicros(): bigint {
    return this.#wallMicros
  }

  monotonicMs(): number {
    return this.#monotonicMs
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    const due = this.#monotonicMs + (delayMs > 0 ? Math.max(shortestMs, delayMs) : 0)
    const pending: Pending = { due, order: this.#order++, callback, isLive: true }
    this.#push(pending)
    this.#live++
    return {
      cancel: () => {
        if (!pending.isLive) return
        pending.isLive = false
        this.#live--
      },
    }
  }

  /** How many timers wait: 0 after a clean shutdown. */
  get timers(): number {
    return this.#live
  }

  /** How many timers have fired. */
  get fired(): number {
    return this.#fired
  }

  /** Whether more have fired than any program needs: something runs in circles, and the time stands still. */
  get isExhausted(): boolean {
    return this.#fired > mostTimers
  }

  /** Moves the wall clock by so many ms, also back; the monotonic time stays. */
  jumpWall(ms: number): void {
    this.#wallMicros += BigInt(Math.round(ms * 1000))
  }

  /** Moves both times on by `ms` and fires what falls due, though no more timers than any program needs. */
  async advance(ms: number): Promise<void> {
    const target = this.#monotonicMs + ms
    await settle()
    while (!this.isExhausted && this.#fireNext(target)) await settle()
    this.#moveTo(target)
  }

  /**
   * Goes from timer to timer until `done` answers true. False when no timer is left, or the next one lies behind `limitMs` from now,
   * and it still does not; nor when more timers have fired than any program needs.
   */
  async runUntil(done: () => boolean, limitMs: number): Promise<boolean> {
    const target = this.#monotonicMs + limitMs
    await settle()
    while (!done()) {
      if (this.isExhausted || !this.#fireNext(target)) return false
      await settle()
    }
    return true
  }

  #fireNext(targetMs: number): boolean {
    for (;;) {
      const next = this.#heap[0]
      if (next === undefined || next.due > targetMs) return false
      this.#pop()
      if (!next.isLive) continue
      next.isLive = false
      this.#live--
      this.#fired++
      this.#moveTo(next.due)
      next.callback()
      return true
    }
  }

  #moveTo(ms: number): void {
    this.#wallMicros += BigInt(Math.round((ms - this.#monotonicMs) * 1000))
    this.#monotonicMs = ms
  }

  #push(pending: Pending): void {
    const heap = this.#heap
    let at = heap.length
    heap.push(pending)
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!before(pending, heap[parent] as Pending)) break
      heap[at] = heap[parent] as Pending
      at = parent
    }
    heap[at] = pending
  }

  #pop(): void {
    const heap = this.#heap
    const last = heap.pop() as Pending
    if (heap.length === 0) return
    let at = 0
    for (;;) {
      let child = at * 2 + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && before(heap[child + 1] as Pending, heap[child] as Pending)) child++
      if (!before(heap[child] as Pending, last)) break
      heap[at] = heap[child] as Pending
      at = child
    }
    heap[at] = last
  }
}

function before(a: Pending, b: Pending): boolean {
  return a.due < b.due || (a.due === b.due && a.order < b.order)
}

/** Lets every promise that is ready run, and those that these make ready. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
