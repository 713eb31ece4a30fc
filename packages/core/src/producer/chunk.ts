/**
 * One request of a call that is larger than a request: up to `batchLength` records, alone in their batches. The next one goes out
 * when this one is confirmed, and never when it failed. On one partition of a backend that refuses gaps it may follow at once: there
 * it cannot be stored without this one.
 */
export class Chunk {
  #before: Chunk | undefined
  readonly #pipelined: boolean
  #open = 0
  #isComplete = false
  #hasFailed = false
  /** The one partition of all its batches; −1 none yet, −2 several. */
  #partition = -1
  readonly #waiting = new Set<() => void>()

  /** @param pipelined Whether batches of one partition may be in flight together. */
  constructor(before: Chunk | undefined, pipelined: boolean) {
    this.#before = before
    this.#pipelined = pipelined
  }

  /** Calls `wake` when it may be the turn of this chunk, or when it is clear that it never will be. */
  onTurn(wake: () => void): void {
    if (this.#before !== undefined) this.#before.#waiting.add(wake)
  }

  /** A batch of this chunk exists. */
  opened(partition: number): void {
    this.#open++
    this.#partition = this.#partition === -1 || this.#partition === partition ? partition : -2
  }

  /** No more batches will be opened for it. */
  completed(): void {
    this.#isComplete = true
  }

  /** One of its batches has settled. */
  settled(failed: boolean): void {
    this.#open--
    if (failed) this.#hasFailed = true
    if (!this.#isDone && !this.#hasFailed) return
    for (const wake of this.#waiting) wake()
    if (this.#isDone) this.#waiting.clear()
  }

  gate(partition: number): "open" | "held" | "dropped" {
    const before = this.#before
    if (before === undefined) return "open"
    if (before.#hasFailed) return "dropped"
    if (before.#isDone) {
      this.#before = undefined
      return "open"
    }
    return this.#pipelined && before.#partition === partition ? "open" : "held"
  }

  get #isDone(): boolean {
    return this.#isComplete && this.#open === 0
  }
}
