import type { LogReader, MillraceError, PartitionRead, ReadPosition } from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import { asMillraceError } from "./failure.ts"
import type { Slice } from "./lane.ts"
import { Wakeup } from "./wakeup.ts"

interface FetchLimits {
  readonly maxWaitMs: number
  readonly minRecords: number
  readonly maxBytes: number
  readonly prefetchBytes: number
  readonly prefetchRecords: number
  readonly pollIntervalMs: number
  readonly retryIntervalMs: number
}

interface FetchHost {
  read(answer: readonly PartitionRead[]): void
  /** The whole poll failed and will be tried again after `retryIntervalMs`, whatever the error. */
  pollFailed(error: MillraceError): void
}

/** An empty answer that comes before the wait is over is followed by at least this pause, so that nothing spins. */
const shortestPauseMs = 1

/**
 * Keeps one poll of the log under way as long as the read-ahead has room. A poll is asked for only when a good part of the budget is
 * free, so that a slow caller does not cause many small ones.
 */
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
  #bytes = 0
  #records = 0
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
    this.#pause?.cancel()
    this.#pause = undefined
    this.#loop ??= this.#run()
    this.#wakeup.wake()
  }

  took(slice: Slice): void {
    this.#bytes += slice.source.batch.bytes
    this.#records += slice.count
  }

  gaveBack(slice: Slice): void {
    this.#bytes -= slice.source.batch.bytes
    this.#records -= slice.count
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
      const bytes = this.#limits.prefetchBytes - this.#bytes
      const records = this.#limits.prefetchRecords - this.#records
      if (this.#positions === 0 || this.#pause !== undefined || !this.#roomFor(bytes, records)) {
        await this.#wakeup.sleep()
        continue
      }
      await this.#poll(Math.max(1, Math.min(bytes, this.#limits.maxBytes)), Math.max(1, records))
    }
  }

  async #poll(maxBytes: number, maxRecords: number): Promise<void> {
    const { maxWaitMs, minRecords, pollIntervalMs, retryIntervalMs } = this.#limits
    const began = this.#clock.monotonicMs()
    this.#polling = true
    let answer: readonly PartitionRead[]
    try {
      answer = await this.#reader.next({
        maxBytes,
        maxRecords,
        minRecords: Math.min(minRecords, maxRecords),
        maxWaitMs,
      })
      this.#polling = false
    } catch (error) {
      this.#polling = false
      if (this.#closed) return
      this.#rest(retryIntervalMs)
      this.#host.pollFailed(asMillraceError(error))
      return
    }
    if (this.#closed) return
    if (answer.length > 0) {
      this.#host.read(answer)
      return
    }
    const early = this.#clock.monotonicMs() - began < maxWaitMs / 2
    const pauseMs = early ? Math.max(shortestPauseMs, pollIntervalMs) : pollIntervalMs
    if (pauseMs > 0) this.#rest(pauseMs)
  }

  #rest(ms: number): void {
    this.#pause = this.#clock.setTimer(ms, () => {
      this.#pause = undefined
      this.#wakeup.wake()
    })
  }

  #roomFor(bytes: number, records: number): boolean {
    if (this.#records === 0) return true
    const { maxBytes, prefetchBytes, prefetchRecords } = this.#limits
    return bytes >= Math.min(maxBytes, prefetchBytes / 2) && records >= prefetchRecords / 2
  }
}
