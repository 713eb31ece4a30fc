import { backoffMs, type Random } from "@millrace/runtime"
import { jittered } from "../handler/retry.ts"
import type { SettleFailure } from "./batch-settler.ts"
import type { ProcessBatch } from "./process-batch.ts"

/** Batches that may be aborted in a row, before the processor gives up. */
const mostAborts = 20
const firstWaitMs = 20
const longestWaitMs = 5000
/** Refusals of what a record is, which may be one among many. */
const ofRecords: ReadonlySet<string> = new Set(["record-too-large", "invalid"])

/** Batches that were not stored: whether their messages are handled again, when, and how many in one batch. */
export class BatchAborts {
  /** Messages of a batch, while the one is looked for that makes what the backend does not take. */
  mostMessages: number = Number.POSITIVE_INFINITY
  readonly #random: Random
  #inARow = 0
  #isSearching = false

  constructor(random: Random) {
    this.#random = random
  }

  /** A batch is stored. */
  stored(): void {
    this.#inARow = 0
    this.mostMessages *= 2
  }

  /** What the backend does not take in a batch of several messages is looked for in halves: its message alone has failed then. */
  examined(failure: SettleFailure, batch: ProcessBatch): SettleFailure {
    if (failure.mayPass || failure.culprit !== undefined || !ofRecords.has(failure.error.kind)) return failure
    if (batch.messages === 1) return { ...failure, culprit: batch.outputs[0] }
    this.mostMessages = batch.messages >> 1
    this.#isSearching = true
    return { ...failure, mayPass: true }
  }

  /** The wait before another try, in ms; `undefined`: there is none. A search does not wait: nothing is down. */
  waitMs(mayPass: boolean): number | undefined {
    const isSearching = this.#isSearching
    this.#isSearching = false
    if (isSearching) return 0
    if (!mayPass || ++this.#inARow > mostAborts) return undefined
    return this.#inARow < 2 ? 0 : jittered(backoffMs(this.#inARow - 2, firstWaitMs, longestWaitMs), this.#random)
  }
}
