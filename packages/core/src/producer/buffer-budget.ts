import { BufferFullError, type MillraceError, TimeoutError } from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"

export type FailureMode = "block" | "blockWithTimeout" | "failImmediately"

export interface BudgetSettings {
  /** How errors call it: `the buffer of the producer of topic "s/t"`. */
  readonly owner: string
  /** How errors call the limit: `maxBufferBytes`. */
  readonly option: string
  /** 0: no limit. */
  readonly limitBytes: number
  readonly failureMode: FailureMode
  /** Of `blockWithTimeout`. */
  readonly blockTimeoutMs: number
  /** Told when something finds no room, before it waits or is refused. */
  readonly onFull?: (outcome: "waits" | "refused") => void
  /** Told whenever somebody is left waiting for room, so that what holds it for the company of others lets it go. */
  readonly onShort?: () => void
}

interface Waiter {
  readonly bytes: number
  readonly enter: () => void
  readonly refuse: (error: MillraceError) => void
  timer: Timer | undefined
  readonly ordinal: number
  older: Waiter | undefined
  newer: Waiter | undefined
}

interface Mark {
  readonly ordinal: number
  readonly reached: () => void
}

/**
 * Bytes that may be on their way at once, and the sends that wait for room, first come first served: nobody overtakes, however small.
 * A send enters in the very moment in which its room is given, so that order of calls is order of entering.
 */
export class BufferBudget {
  readonly #settings: BudgetSettings
  readonly #clock: Clock
  #usedBytes = 0
  #isAdmitting = false
  /** The longest wait first. A list of links: a set whose first member leaves each time takes longer the more have left. */
  #oldest: Waiter | undefined
  #newest: Waiter | undefined
  #waiting = 0
  #nextOrdinal = 0
  /** In the order of their ordinals. */
  readonly #marks: Mark[] = []

  constructor(clock: Clock, settings: BudgetSettings) {
    this.#clock = clock
    this.#settings = settings
  }

  get usedBytes(): number {
    return this.#usedBytes
  }

  /** Sends that wait for room. */
  get waiting(): number {
    return this.#waiting
  }

  /** Takes room if there is some and nobody waits for it. */
  tryTake(bytes: number): boolean {
    if (this.#waiting > 0 || !this.#fits(bytes)) return false
    this.#usedBytes += bytes
    return true
  }

  /**
   * Takes room, waiting for it as the failure mode says, and calls `enter` when it was taken; an `enter` that throws gives its room back. Settles
   * with what `enter` answers.
   * @throws BufferFullError for what never fits, and at once with `failImmediately`; TimeoutError; what `enter` throws
   */
  take<T>(bytes: number, enter: () => T | Promise<T>): Promise<T> {
    const { limitBytes, failureMode, blockTimeoutMs, owner, option, onFull } = this.#settings
    if (limitBytes !== 0 && bytes > limitBytes) {
      onFull?.("refused")
      const message = `a send of ${bytes} bytes is larger than ${owner}, which takes ${limitBytes} (${option})`
      return Promise.reject(
        new BufferFullError(message, { retryable: false, context: { sizeBytes: bytes, limitBytes } }),
      )
    }
    if (failureMode === "failImmediately" && !this.#fits(bytes)) {
      onFull?.("refused")
      return Promise.reject(this.#full(bytes))
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        bytes,
        enter: () => {
          try {
            resolve(enter())
          } catch (error) {
            this.release(bytes)
            reject(error)
          }
        },
        refuse: reject,
        timer: undefined,
        ordinal: this.#nextOrdinal++,
        older: undefined,
        newer: undefined,
      }
      if (failureMode === "blockWithTimeout") {
        waiter.timer = this.#clock.setTimer(blockTimeoutMs, () => {
          const message = `${owner} had no room for ${bytes} bytes within ${blockTimeoutMs} ms (blockTimeoutMs): ${this.#usedBytes} of ${limitBytes} are taken`
          this.#leave(waiter)
          onFull?.("refused")
          reject(new TimeoutError(message, { outcome: "rejected" }))
          this.#admit()
        })
      }
      this.#join(waiter)
      this.#admit()
      if (this.#newest === waiter) onFull?.("waits")
    })
  }

  release(bytes: number): void {
    this.#usedBytes -= bytes
    if (this.#waiting > 0) this.#admit()
  }

  /** Settles when none of those that wait now waits any more. */
  entered(): Promise<void> {
    if (this.#waiting === 0) return Promise.resolve()
    return new Promise((reached) => {
      this.#marks.push({ ordinal: this.#nextOrdinal, reached })
    })
  }

  /** Sends those who wait away. */
  refuse(error: MillraceError): void {
    for (let waiter = this.#oldest; waiter !== undefined; waiter = this.#oldest) {
      this.#leave(waiter)
      waiter.refuse(error)
    }
  }

  #fits(bytes: number): boolean {
    const { limitBytes } = this.#settings
    return limitBytes === 0 || this.#usedBytes + bytes <= limitBytes
  }

  /** One after the other: who enters may settle what gives room back, and must be in before the next one enters. */
  #admit(): void {
    if (this.#isAdmitting) return
    this.#isAdmitting = true
    for (let waiter = this.#oldest; waiter !== undefined; waiter = this.#oldest) {
      if (!this.#fits(waiter.bytes)) break
      this.#usedBytes += waiter.bytes
      this.#leave(waiter)
      waiter.enter()
    }
    this.#isAdmitting = false
    if (this.#waiting > 0) this.#settings.onShort?.()
  }

  #join(waiter: Waiter): void {
    waiter.older = this.#newest
    if (this.#newest === undefined) this.#oldest = waiter
    else this.#newest.newer = waiter
    this.#newest = waiter
    this.#waiting++
  }

  #leave(waiter: Waiter): void {
    waiter.timer?.cancel()
    const { older, newer } = waiter
    if (older === undefined) this.#oldest = newer
    else older.newer = newer
    if (newer === undefined) this.#newest = older
    else newer.older = older
    this.#waiting--
    if (this.#marks.length === 0) return
    const oldest = this.#oldest
    const passed = this.#marks.filter(({ ordinal }) => oldest === undefined || ordinal <= oldest.ordinal)
    this.#marks.splice(0, passed.length)
    for (const { reached } of passed) reached()
  }

  #full(bytes: number): BufferFullError {
    const { owner, option, limitBytes } = this.#settings
    return new BufferFullError(
      `${owner} has no room for ${bytes} bytes: ${this.#usedBytes} of ${limitBytes} (${option}) are taken`,
      { context: { sizeBytes: bytes, limitBytes } },
    )
  }
}
