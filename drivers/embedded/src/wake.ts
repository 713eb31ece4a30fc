/**
 * Wake-ups across sessions and processes: one file in the store's directory, touched after commits and watched while somebody waits.
 * They are hints: whoever waits also looks from time to time.
 */
import { type FSWatcher, watch } from "node:fs"
import type { Clock, Timer } from "@millrace/runtime"
import { HintFile } from "./engine/hint-file.ts"

/** Touches are at least so far apart: under load, one touch stands for many commits. */
const touchEveryMs = 3

/** The watch outlives the last waiter by this, since most readers wait again and again. */
const watchLingersMs = 5000

/** One session's use of the wake file: it touches, and it watches. */
export class WakeFile {
  readonly #clock: Clock
  readonly #file: HintFile
  readonly #woken: () => void
  #touches: number
  #watcher: FSWatcher | undefined
  #touchedMs = Number.NEGATIVE_INFINITY
  #touchLater: Timer | undefined
  #watchUntilMs = 0
  #watchEnd: Timer | undefined

  /** @param woken Called when another session, or this one, has touched the file while it is watched. */
  constructor(path: string, clock: Clock, woken: () => void) {
    this.#clock = clock
    this.#woken = woken
    this.#file = new HintFile(path)
    this.#touches = this.#file.read()
  }

  /** Tells all who watch. At once, or together with what follows within a few milliseconds. */
  touch(): void {
    if (this.#touchLater !== undefined) return
    const now = this.#clock.monotonicMs()
    const wait = this.#touchedMs + touchEveryMs - now
    if (wait <= 0) this.#touchNow(now)
    else this.#touchLater = this.#clock.setTimer(wait, () => this.#touchNow(this.#clock.monotonicMs()))
  }

  /** Watches for some time. */
  watch(): void {
    this.#watchUntilMs = this.#clock.monotonicMs() + watchLingersMs
    this.#watcher ??= this.#startWatch()
    if (this.#watcher === undefined) return
    this.#watchEnd ??= this.#clock.setTimer(watchLingersMs, () => this.#considerEnd(), { background: true })
  }

  /** Whether somebody still waits: asked when the watch could end. */
  stillNeeded: () => boolean = () => false

  close(): void {
    this.#touchLater?.cancel()
    if (this.#touchLater !== undefined) this.#touchNow(this.#clock.monotonicMs())
    this.#endWatch()
    this.#file.close()
  }

  /** The system can run out of watches: then the slow look of those who wait is all there is. */
  #startWatch(): FSWatcher | undefined {
    try {
      const watcher = watch(this.#file.path, { persistent: false }, () => this.#woken())
      watcher.on("error", () => this.#endWatch())
      return watcher
    } catch {
      return undefined
    }
  }

  #touchNow(nowMs: number): void {
    this.#touchLater = undefined
    this.#touchedMs = nowMs
    this.#file.write(++this.#touches >>> 0)
  }

  #considerEnd(): void {
    this.#watchEnd = undefined
    if (this.stillNeeded()) {
      this.watch()
      return
    }
    const left = this.#watchUntilMs - this.#clock.monotonicMs()
    if (left <= 0) this.#endWatch()
    else this.#watchEnd = this.#clock.setTimer(left, () => this.#considerEnd(), { background: true })
  }

  #endWatch(): void {
    this.#watchEnd?.cancel()
    this.#watchEnd = undefined
    this.#watcher?.close()
    this.#watcher = undefined
  }
}
