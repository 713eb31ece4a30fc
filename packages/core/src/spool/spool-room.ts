import type { MillraceError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { BackgroundSettings } from "../producer/background-options.ts"
import { BufferBudget } from "../producer/buffer-budget.ts"

/** What a room is made with. */
export interface SpoolRoomSettings
  extends Pick<BackgroundSettings, "failureMode" | "blockTimeoutMs" | "maxBufferBytes"> {
  /** How errors call the producer. */
  readonly owner: string
  readonly directory: string
  readonly maxSpoolBytes: number
  /** A send met a full buffer, or a full spool. */
  readonly onFull: (what: "memory" | "disk", outcome: "waits" | "refused") => void
}

/**
 * The room that a send needs: in memory until its record is synced, and on the disk until it is delivered. First come, first served, in
 * both together.
 */
export class SpoolRoom {
  readonly #memory: BufferBudget
  readonly #disk: BufferBudget
  /** What lies in the spool beyond its limit, and in memory beyond the buffer's: freed before anything else. */
  #excessBytes = 0
  #memoryExcessBytes = 0

  constructor(clock: Clock, settings: SpoolRoomSettings) {
    const { owner, directory, failureMode, blockTimeoutMs, onFull } = settings
    this.#memory = new BufferBudget(clock, {
      owner: `the buffer of the ${owner}`,
      option: "maxBufferBytes",
      limitBytes: settings.maxBufferBytes,
      failureMode,
      blockTimeoutMs,
      onFull: (outcome) => onFull("memory", outcome),
    })
    this.#disk = new BufferBudget(clock, {
      owner: `the spool "${directory}" of the ${owner}`,
      option: "maxSpoolBytes",
      limitBytes: settings.maxSpoolBytes,
      failureMode,
      blockTimeoutMs,
      onFull: (outcome) => onFull("disk", outcome),
    })
  }

  /** Of records that are not synced yet. */
  get memoryBytes(): number {
    return this.#memory.usedBytes
  }

  /** So much lies in the spool when it is opened, whatever its limit. */
  begin(bytes: number, maxSpoolBytes: number): void {
    this.#excessBytes = Math.max(0, bytes - maxSpoolBytes)
    this.#disk.tryTake(bytes - this.#excessBytes)
  }

  /** Takes room if there is some and nobody waits for it. */
  tryTake(bytes: number): boolean {
    if (!this.#memory.tryTake(bytes)) return false
    if (this.#disk.tryTake(bytes)) return true
    this.#memory.release(bytes)
    return false
  }

  /**
   * Waits for room as the failure mode says, and calls `enter` when it was taken: in memory first, then on the disk; whoever has the one
   * waits for the other before those behind. An `enter` that throws gives its room back.
   * @throws BufferFullError, TimeoutError, what `enter` throws
   */
  async take(bytes: number, enter: () => void): Promise<void> {
    if (this.#memory.tryTake(bytes)) {
      try {
        return await this.#disk.take(bytes, enter)
      } catch (error) {
        this.leftMemory(bytes)
        throw error
      }
    }
    let onDisk: Promise<void> | undefined
    await this.#memory.take(bytes, () => {
      if (this.#disk.tryTake(bytes)) {
        try {
          enter()
        } catch (error) {
          this.#disk.release(bytes)
          throw error
        }
      } else {
        onDisk = this.#disk.take(bytes, enter)
        onDisk.catch(() => this.leftMemory(bytes))
      }
    })
    await onDisk
  }

  /** Takes room beyond both limits, for what must not wait. */
  exceed(bytes: number): void {
    this.#excessBytes += bytes
    this.#memoryExcessBytes += bytes
  }

  /** A send takes its room back. */
  giveBack(bytes: number): void {
    this.freed(bytes)
    this.leftMemory(bytes)
  }

  /** Records are synced, or refused by the disk: they are not in memory any more. */
  leftMemory(bytes: number): void {
    const excess = Math.min(this.#memoryExcessBytes, bytes)
    this.#memoryExcessBytes -= excess
    this.#memory.release(bytes - excess)
  }

  /** Records have left the spool. */
  freed(bytes: number): void {
    const excess = Math.min(this.#excessBytes, bytes)
    this.#excessBytes -= excess
    this.#disk.release(bytes - excess)
  }

  /** Settles when none of those that wait now waits any more. */
  async entered(): Promise<void> {
    await this.#memory.entered()
    await this.#disk.entered()
  }

  /** Sends those who wait away. */
  refuse(error: MillraceError): void {
    this.#memory.refuse(error)
    this.#disk.refuse(error)
  }
}
