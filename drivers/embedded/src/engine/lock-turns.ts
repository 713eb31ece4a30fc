/**
 * Fairness between writers of several processes. Whoever has waited for a while writes a new number into a small file; whoever holds
 * the lock looks there before it takes it again, and lets go for a moment when the number has changed. Nothing in the file lasts: a
 * waiter that died or was stopped changes it no more.
 */
import type { Random } from "@millrace/runtime"
import { HintFile } from "./hint-file.ts"

/** A waiter speaks up after so long, and again each time. */
const speakEveryMs = 3

/** Waiters speak more rarely than this, so looking more often finds nothing new. */
const lookEveryMs = 1

/** How long the lock is left alone for a waiter: about as long as its longest pause between two tries. */
export const letGoMs: number = 0.5

/** One engine's view of who waits. */
export class LockTurns {
  readonly #random: Random
  readonly #file: HintFile
  #seen: number
  #spokeMs = 0
  #lookedMs = 0

  constructor(path: string, random: Random) {
    this.#random = random
    this.#file = new HintFile(path)
    this.#seen = this.#file.read()
  }

  /** Called while waiting; `waitedMs` since the first try. */
  waiting(waitedMs: number): void {
    if (waitedMs < speakEveryMs) this.#spokeMs = 0
    if (waitedMs - this.#spokeMs < speakEveryMs) return
    this.#spokeMs = waitedMs
    this.#seen = this.#random.uint32()
    this.#file.write(this.#seen)
  }

  /** Whether somebody else has waited since the last look. Looks at most once a millisecond, since a look costs a system call. */
  othersWait(nowMs: number): boolean {
    if (nowMs - this.#lookedMs < lookEveryMs) return false
    this.#lookedMs = nowMs
    const number = this.#file.read()
    if (number === this.#seen) return false
    this.#seen = number
    return true
  }

  close(): void {
    this.#file.close()
  }
}
