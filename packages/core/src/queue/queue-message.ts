import type { AckPolicy, Lineage, Settlement } from "@millrace/contract"
import { InvalidError } from "@millrace/contract"
import { OptionReader, shown } from "../client/options.ts"
import type { AttemptContext } from "../handler/handler-context.ts"
import { BatchMessage, type Message, type MessageSource } from "../record/message.ts"

/**
 * A message of a work queue: one delivery of a record, to be settled once (seed 003; table 4.3). Of `ack`, `nak` and `terminate` the first
 * call decides: later ones answer `false` and ask nothing. Each answers `true` when it counts, and `false` when it comes too late: the wait
 * was over and the message is another delivery's by now, it was settled before, or it was purged. `false` is also the answer to a call
 * whose request had to be repeated because its first answer was lost.
 *
 * All of them reject with ClosedError once the consumer is shut down, NotFoundError when the queue or the topic is gone, or what the
 * request failed with: then the message is open again, and the call may be repeated. `copy()` is the record alone.
 */
export interface QueueMessage extends Message {
  /** How often the message was handed out, this time included; 1 at the first delivery. A hand-over counts even when no handler saw it. */
  readonly deliveries: number
  /**
   * It is done, and never comes again. Under `ackPolicy: "all"` this covers what was handed out of its partition before it; under `"none"`
   * handing out has settled it, and the answer is `true` without a request.
   * @param options.confirm Waits until the answer has the durability of the topic's offsets. Default false: a crash of the machine may
   *   undo it, and the message comes again.
   */
  ack(options?: { readonly confirm?: boolean }): Promise<boolean>
  /**
   * Hand it out again, to anybody.
   * @param options.delayMs Not before so long. From 0 to 2^31 − 1, default 0.
   */
  nak(options?: { readonly delayMs?: number }): Promise<boolean>
  /** Its wait begins anew, from now. May be called any number of times; `false` behind a call that has settled it. */
  inProgress(): Promise<boolean>
  /**
   * Never hand it out again, though it is not done. Where the queue has a dead-letter topic it is stored there first, with the reason.
   * @param reason For people.
   */
  terminate(reason?: string): Promise<boolean>
}

/** Who carries out what messages ask for. */
export interface MessageDesk {
  readonly ackPolicy: AckPolicy
  readonly what: string
  settle(message: QueuedMessage, verdict: Settlement["verdict"], options: SettleOptions): Promise<boolean>
  /** Dead letter first, where there is a topic for it. */
  terminate(message: QueuedMessage, reason: string | undefined): Promise<boolean>
}

export interface SettleOptions {
  readonly confirm?: boolean
  readonly delayMs?: number
  readonly reason?: string
}

/** What a delivery brings beside its record. */
export interface DeliveryTerms {
  /** Of the record within its batch. */
  readonly index: number
  readonly offset: bigint
  readonly token: unknown
  readonly deliveries: number
  /** How long the queue waits for it, in ms; infinite where handing out settles. */
  readonly waitMs: number
  /** When its wait began at the earliest, on the monotonic clock. */
  readonly sinceMs: number
  /** About what it takes in memory. */
  readonly bytes: number
}

/** One delivery. What it has beside `QueueMessage` is the consumer's own book about it. */
export class QueuedMessage extends BatchMessage implements QueueMessage {
  readonly deliveries: number
  readonly partition: number
  readonly offset: bigint
  readonly lineage: Lineage
  readonly token: unknown
  readonly waitMs: number
  readonly bytes: number
  /** When its present wait began at the earliest, on the monotonic clock. */
  sinceMs: number
  /** When it came. */
  readonly cameMs: number
  /** What has settled it, or is about to. */
  verdict: "ack" | "nak" | "terminate" | undefined
  /** A request to begin its wait anew is under way. */
  extending: boolean
  /** Its wait is over, as far as anybody can tell: it belongs to somebody else. */
  lost: boolean
  /** The handler that has it. */
  attempt: AttemptContext | undefined
  readonly #desk: MessageDesk

  constructor(desk: MessageDesk, source: MessageSource, place: DeliveryTerms) {
    super(source, place.index)
    this.partition = source.partition
    this.offset = place.offset
    this.lineage = source.lineage
    this.#desk = desk
    this.deliveries = place.deliveries
    this.token = place.token
    this.waitMs = place.waitMs
    this.bytes = place.bytes
    this.sinceMs = place.sinceMs
    this.cameMs = place.sinceMs
    this.verdict = undefined
    this.extending = false
    this.lost = false
    this.attempt = undefined
  }

  /** When its wait is over at the earliest, on the monotonic clock. */
  get deadlineMs(): number {
    return this.sinceMs + this.waitMs
  }

  ack(options?: { readonly confirm?: boolean }): Promise<boolean> {
    let confirm = false
    if (options !== undefined) {
      try {
        confirm = new OptionReader(`${this.#desk.what}: ack`, options, ["confirm"]).flag("confirm", false)
      } catch (error) {
        return Promise.reject(error)
      }
    }
    if (this.verdict !== undefined) return Promise.resolve(false)
    if (this.#desk.ackPolicy === "none") {
      this.verdict = "ack"
      return Promise.resolve(true)
    }
    return this.#settle("ack", { confirm })
  }

  nak(options?: { readonly delayMs?: number }): Promise<boolean> {
    let delayMs: number
    try {
      const reader = new OptionReader(`${this.#desk.what}: nak`, options, ["delayMs"])
      delayMs = reader.duration("delayMs", { zero: true, fallback: 0 })
    } catch (error) {
      return Promise.reject(error)
    }
    if (this.#over) return Promise.resolve(false)
    return this.#settle("nak", { delayMs })
  }

  inProgress(): Promise<boolean> {
    return this.#over ? Promise.resolve(false) : this.#desk.settle(this, "inProgress", {})
  }

  terminate(reason?: string): Promise<boolean> {
    if (reason !== undefined && typeof reason !== "string") {
      return Promise.reject(
        new InvalidError(`${this.#desk.what}: the reason of a termination must be a string, not ${shown(reason)}`),
      )
    }
    if (this.#over) return Promise.resolve(false)
    this.verdict = "terminate"
    return this.#desk.terminate(this, reason).catch((error) => this.#reopen(error))
  }

  get #over(): boolean {
    return this.verdict !== undefined || this.#desk.ackPolicy === "none"
  }

  #settle(verdict: "ack" | "nak", options: SettleOptions): Promise<boolean> {
    this.verdict = verdict
    return this.#desk.settle(this, verdict, options).catch((error) => this.#reopen(error))
  }

  #reopen(error: unknown): never {
    this.verdict = undefined
    throw error
  }
}
