import type { Burial } from "../handler/dead-letter-record.ts"
import type { Lane } from "../partition/lane.ts"
import type { Destination } from "../producer/lane.ts"
import type { TransactedOffsets } from "../progress/transacted-offsets.ts"
import type { BatchMessage } from "../record/message.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"

/** One record that a message has made; or the dead letter of the message. */
export interface BatchOutput {
  readonly lane: Lane
  readonly message: BatchMessage | undefined
  readonly record: SendableRecord | undefined
  readonly to: Destination | undefined
  readonly burial: Burial | undefined
}

/** How many messages of a partition are in a batch. */
interface Share {
  readonly lane: Lane
  messages: number
  /** Of these: counted as processed without being so, and with a dead letter in their place. */
  skipped: number
  deadLetters: number
}

/** Messages that were handled and what they made, to be stored in one transaction. */
export class ProcessBatch {
  outputs: BatchOutput[] = []
  /** Of the outputs. */
  bytes = 0
  /** When the first message came in, on the monotonic clock. */
  startedMs = 0
  /** What is stored of the consumer's progress. Set once no message joins any more. */
  offsets: TransactedOffsets | undefined
  readonly #shares = new Map<Lane, Share>()
  #last: Share | undefined
  #messages = 0

  get messages(): number {
    return this.#messages
  }

  /** Messages that count as processed without being so. */
  get skipped(): number {
    return this.#sum("skipped")
  }

  /** Messages in whose place a dead letter is among the outputs. */
  get deadLetters(): number {
    return this.#sum("deadLetters")
  }

  get isEmpty(): boolean {
    return this.#messages === 0
  }

  get lanes(): Iterable<Lane> {
    return this.#shares.keys()
  }

  has(lane: Lane): boolean {
    return this.#shares.has(lane)
  }

  /** A message of the partition is done; its outputs are in. @param failed What became of one whose last attempt failed */
  took(lane: Lane, failed?: "skipped" | "deadLetters"): void {
    let share = this.#last
    if (share?.lane !== lane) {
      share = this.#shares.get(lane)
      if (share === undefined) {
        share = { lane, messages: 0, skipped: 0, deadLetters: 0 }
        this.#shares.set(lane, share)
      }
      this.#last = share
    }
    share.messages++
    if (failed !== undefined) share[failed]++
    this.#messages++
  }

  /** Takes back what a message has made, from the `count`-th output on. */
  truncate(count: number, bytes: number): void {
    this.outputs.length = count
    this.bytes = bytes
  }

  /** The partition is not ours any more: nothing of it is stored. */
  drop(lane: Lane): void {
    const share = this.#shares.get(lane)
    if (share === undefined) return
    this.#shares.delete(lane)
    if (this.#last === share) this.#last = undefined
    this.#messages -= share.messages
    this.outputs = this.outputs.filter((output) => output.lane !== lane)
  }

  #sum(what: "skipped" | "deadLetters"): number {
    let sum = 0
    for (const share of this.#shares.values()) sum += share[what]
    return sum
  }
}
