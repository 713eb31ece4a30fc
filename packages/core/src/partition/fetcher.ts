import type { LogReader, MillraceError, PartitionRead, ReadPosition } from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import { asMillraceError } from "./failure.ts"
import type { Room } from "./read-ahead.ts"
import { Wakeup } from "./wakeup.ts"

interface FetchLimits {
  readonly maxWaitMs: number
  readonly minRecords: number
  readonly pollIntervalMs: number
  readonly retryIntervalMs: number
}

interface FetchHost {
  /** @returns whether anything came of it: a record, an error, a step of a position */
  read(answer: readonly PartitionRead[]): boolean
  /** The whole poll failed and will be tried again after `retryIntervalMs`, whatever the error. */
  pollFailed(error: MillraceError): void
  /** What the next poll may bring; absent while there is no room. `wake` when there may be some again. */
  readonly room: Room | undefined
}

/**
 * Answers that come before the wait is over and bring nothing are each followed by a pause, which doubles from the shortest to the
 * longest until something comes: nothing spins, whatever a backend does.
 */
const shortestPauseMs = 1
const longestPauseMs = 64

/** Keeps one poll of the log under way as long as there are partitions to poll. */
export class Fetcher {
  readonly #reader: LogReader
  readonly #limits: FetchLimits
  readonly #clock: Clock
  readonly #host: FetchHost
  readonly #wakeup = new Wakeup()
  #pause: Timer | undefined
  #polling = false
  #closed = false
  #positions = 0
  /** Early answers in a row that brought nothing. */
  #vain = 0
  #loop: Promise<void> | undefined

  constructor(reader: LogReader, limits: FetchLimits, clock: Clock, host: FetchHost) {
    this.#reader = reader
    this.#limits = limits
    this.#clock = clock
    this.#host = host
  }

  /** Whether a poll is under way. */
  get polling(): boolean {
    return this.#polling
  }

  /** Replaces the partitions to read; the first call starts the polling. */
  set(positions: readonly ReadPosition[]): void {
    if (this.#closed) return
    this.#positions = positions.length
    this.#reader.set(positions)
    if (positions.length === 0) return
    this.#loop ??= this.#run()
    this.#wakeup.wake()
  }

  /** There may be room again. */
  wake(): void {
    this.#wakeup.wake()
  }

  /** A pause that is under way ends: what is to be read has changed, and not only how much of it. */
  hurry(): void {
    this.#pause?.cancel()
    this.#pause = undefined
    this.#vain = 0
    this.#wakeup.wake()
  }

  /** Ends the polling. Settles when nothing is under way. */
  async close(): Promise<void> {
    this.#closed = true
    this.#pause?.cancel()
    this.#wakeup.wake()
    await this.#reader.close()
    await this.#loop
  }

  async #run(): Promise<void> {
    while (!this.#closed) {
      const room = this.#positions === 0 || this.#pause !== undefined ? undefined : this.#host.room
      if (room === undefined) await this.#wakeup.sleep()
      else await this.#poll(room)
    }
  }

  async #poll({ maxBytes, maxRecords }: Room): Promise<void> {
    const { maxWaitMs, pollIntervalMs } = this.#limits
    const minRecords = Math.min(this.#limits.minRecords, maxRecords)
    const began = this.#clock.monotonicMs()
    this.#polling = true
    let answer: readonly PartitionRead[]
    try {
      answer = await this.#reader.next({ maxBytes, maxRecords, minRecords, maxWaitMs })
      this.#polling = false
    } catch (error) {
      this.#polling = false
      this.#failed(error)
      return
    }
    if (this.#closed) return
    if (answer.length > 0 && this.#took(answer)) {
      this.#vain = 0
      return
    }
    const early = this.#clock.monotonicMs() - began < Math.max(maxWaitMs / 2, shortestPauseMs)
    const pauseMs = early ? Math.min(longestPauseMs, shortestPauseMs * 2 ** this.#vain) : 0
    this.#vain = early ? Math.min(this.#vain + 1, longestPauseMs) : 0
    if (Math.max(pauseMs, pollIntervalMs) > 0) this.#rest(Math.max(pauseMs, pollIntervalMs))
  }

  /** What goes wrong while an answer is taken is no reason to stop reading. */
  #took(answer: readonly PartitionRead[]): boolean {
    try {
      return this.#host.read(answer)
    } catch (error) {
      this.#failed(error)
      return true
    }
  }

  #failed(error: unknown): void {
    if (this.#closed) return
    this.#rest(this.#limits.retryIntervalMs)
    this.#host.pollFailed(asMillraceError(error))
  }

  #rest(ms: number): void {
    this.#pause?.cancel()
    this.#pause = this.#clock.setTimer(ms, () => {
      this.#pause = undefined
      this.#wakeup.wake()
    })
  }
}
