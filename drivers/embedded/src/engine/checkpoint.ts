/**
 * When the write-ahead log is copied into the database. Large batches do not pass through it, so it fills slowly; a checkpoint takes a
 * few milliseconds for each megabyte. The log begins anew only when all of it was copied and nobody reads or writes just then, so
 * above the upper bound the writer holds the others off for the short rest.
 */
import type { Clock } from "@millrace/runtime"
import type { LockTurns } from "./lock-turns.ts"
import { sqliteCode } from "./storage-error.ts"
import type { Store } from "./store.ts"

/** Copied when the engine has nothing else to do. */
const whenIdleBytes = 256 << 10

/**
 * Copied by the writer itself, between two commits: soon, where a commit is a few pages, since a log that begins anew overwrites
 * itself, and that is quicker to sync than a log that grows; later, where whole batches pass through it.
 */
const byWriterBytes = 1 << 20
const byWriterInlineBytes = 8 << 20

/** Above this the writer holds the others off until all is copied, so that the next commit, whoever's it is, begins the log anew. */
const finishBytes = 24 << 20

/** Above this nobody writes on while somebody copies. */
const holdBytes = 40 << 20

/** How long it waits for the lock before it leaves that to a later turn. */
const lockBoundMs = 500
const mostLockTries = 2000

const pageBytes = 4096

/** What a commit writes beside the bytes of its batches, about: the pages that its commands share, and the rows of each. */
const bytesPerCommit = 4 * pageBytes
const bytesPerCommand = 256

/** Counts what this engine has written, and checkpoints by it. */
export class Checkpoints {
  readonly #store: Store
  readonly #turns: LockTurns
  readonly #clock: Clock
  #bytes = 0
  #inlineBytes = 0

  constructor(store: Store, turns: LockTurns, clock: Clock) {
    this.#store = store
    this.#turns = turns
    this.#clock = clock
  }

  /** After a commit. */
  written(commands: number, inlineBytes: number): void {
    this.#bytes += bytesPerCommit + commands * bytesPerCommand
    this.#inlineBytes += inlineBytes
    if (this.#bytes >= byWriterBytes || this.#inlineBytes >= byWriterInlineBytes) this.#run()
  }

  /** When nothing else is to be done. */
  idle(): void {
    if (this.#bytes + this.#inlineBytes >= whenIdleBytes) this.#run()
  }

  /**
   * One that fails (a full disk, a lock) leaves the log as it is: nothing is lost, it is tried again after more writes, and a write that
   * needs the room fails by itself.
   */
  #run(): void {
    try {
      this.#copy()
    } catch (error) {
      if (sqliteCode(error) === undefined) throw error
    }
  }

  #copy(): void {
    this.#bytes /= 2
    this.#inlineBytes /= 2
    const walPages = this.#store.checkpoint()
    if (walPages === undefined) {
      // Somebody else is copying just now: look again soon. But it must not be outrun.
      if (this.#store.walBytes >= holdBytes) this.#finish()
      return
    }
    this.#bytes = 0
    this.#inlineBytes = 0
    // All being copied is not enough: a writer that had begun before goes on behind it, and the log begins anew with none.
    if (walPages * pageBytes >= finishBytes) this.#finish()
  }

  /** The bulk is copied; the rest is copied while this writer holds the lock, for which it waits its turn as for a commit. */
  #finish(): void {
    const start = this.#clock.monotonicMs()
    for (let tries = 0; tries < mostLockTries; tries++) {
      if (this.#store.tryBegin()) {
        this.#store.checkpointHeld()
        return
      }
      const waited = this.#clock.monotonicMs() - start
      if (waited > lockBoundMs) return
      this.#turns.waiting(waited)
      this.#store.locks.pause()
    }
  }
}
