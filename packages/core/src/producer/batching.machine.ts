/**
 * When a batching producer flushes (seed 000, "Batching producers"; table 1.4 of the options). Pure: times come with the events.
 *
 *     state    | queued                 | expired               | drain, end            | landed
 *     ---------+------------------------+-----------------------+-----------------------+--------------------------------
 *     empty    | waiting: set the timer | (no timer is set)     | nothing to flush      | nothing
 *     waiting  | waiting, or a limit    | nothing in flight:    | empty: flush what     | nothing
 *              | trips: empty, flush    | empty, flush; else    | waits, cancel the     |
 *              | inline, cancel timer   | overdue               | timer                 |
 *     overdue  | overdue, or a limit    | (no timer is set)     | empty: flush          | nothing in flight: empty, flush;
 *              | trips: empty, flush    |                       |                       | else nothing
 *
 * The timer is a tick of a fixed interval that began when the producer was built: a record waits for the interval at most, and as
 * little as until the next tick. It is set only while records wait. Flushes that were cut go out one at a time, in their order.
 */

/** The limits of one flush. Checked and complete. */
export interface BatchingLimits {
  readonly maxRecords: number
  /** Of payload. */
  readonly maxBytes: number
  /** At least 1. */
  readonly lingerMs: number
}

/** What the owner has to do. `flush` cuts everything that waits into one batch behind those that were cut before. */
export type BatchingStep =
  | { readonly kind: "nothing" }
  | { readonly kind: "setTimer"; readonly delayMs: number }
  /** `cancelTimer`: one is set that must not fire any more. */
  | { readonly kind: "flush"; readonly cancelTimer: boolean }

const nothing: BatchingStep = { kind: "nothing" }
const flush: BatchingStep = { kind: "flush", cancelTimer: false }
const flushAndCancel: BatchingStep = { kind: "flush", cancelTimer: true }

export class BatchingMachine {
  readonly #limits: BatchingLimits
  readonly #startedMs: number
  #state: "empty" | "waiting" | "overdue" = "empty"
  #records = 0
  #bytes = 0
  /** Flushes that were cut and have not landed. */
  #underWay = 0

  constructor(limits: BatchingLimits, nowMs: number) {
    this.#limits = limits
    this.#startedMs = nowMs
  }

  /** Records that wait. */
  get records(): number {
    return this.#records
  }

  /** A record was put into the queue. @param nowMs Looked at for the first record that waits, and not for those behind it. */
  queued(payloadBytes: number, nowMs: number): BatchingStep {
    this.#records++
    this.#bytes += payloadBytes
    if (this.#records >= this.#limits.maxRecords || this.#bytes >= this.#limits.maxBytes) return this.#cut()
    if (this.#state !== "empty") return nothing
    this.#state = "waiting"
    return { kind: "setTimer", delayMs: this.#untilTick(nowMs) }
  }

  /** The timer fired. */
  expired(): BatchingStep {
    if (this.#state !== "waiting") return nothing
    this.#state = "overdue"
    return this.#underWay === 0 ? this.#cut() : nothing
  }

  /** All that waits is to go out: a flush, or the end. */
  drain(): BatchingStep {
    return this.#state === "empty" ? nothing : this.#cut()
  }

  /** A flush has ended, well or not. */
  landed(): BatchingStep {
    this.#underWay--
    return this.#state === "overdue" && this.#underWay === 0 ? this.#cut() : nothing
  }

  #cut(): BatchingStep {
    const hasTimer = this.#state === "waiting"
    this.#state = "empty"
    this.#records = 0
    this.#bytes = 0
    this.#underWay++
    return hasTimer ? flushAndCancel : flush
  }

  /** To the next tick behind now. */
  #untilTick(nowMs: number): number {
    const { lingerMs } = this.#limits
    const elapsed = nowMs - this.#startedMs
    return (Math.floor(elapsed / lingerMs) + 1) * lingerMs - elapsed
  }
}
