/** Children of one kind, one after the other, each killed with SIGKILL at an instant that a seed decides. */
import type { Random } from "@millrace/runtime"
import type { CrashChild } from "./child.ts"

export interface LineOptions {
  readonly random: Random
  /** Starts the child of a life, counted from 0: it loads its code, and waits for its word. */
  readonly spawn: (life: number) => CrashChild
  /** A child is killed after so many reports: its life is measured in work, so that a slow machine proves as much. */
  readonly reports: { readonly least: number; readonly most: number }
  /** One that has nothing to report is killed after so long, in ms. */
  readonly longestLifeMs: number
  /** The kill comes within less than so many ms of the report that it was due at. */
  readonly jitterMs: number
}

/** The next child loads its code while the one before it lives. */
export class Line {
  readonly #options: LineOptions
  #life = 0
  #next: CrashChild
  #ended = false

  constructor(options: LineOptions) {
    this.#options = options
    this.#next = options.spawn(0)
  }

  /** One life: from the word to the kill. @throws Error when the child complained, or died by itself */
  async live(): Promise<void> {
    const { random, reports, longestLifeMs, jitterMs } = this.#options
    const due = reports.least + (random.uint32() % (1 + reports.most - reports.least))
    const jitter = random.uint32() % jitterMs
    const child = this.#next
    child.go()
    await child.atWork()
    await child.reported(due, longestLifeMs)
    await new Promise((resolve) => setTimeout(resolve, jitter))
    await child.kill()
    if (child.complaints !== "") throw new Error(`life ${this.#life}: ${child.complaints}`)
    this.#life++
    if (!this.#ended) this.#next = this.#options.spawn(this.#life)
  }

  /** No child outlives the line, nor is one started any more, whatever its life under way comes to. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended = true
    await this.#next.kill()
  }
}
