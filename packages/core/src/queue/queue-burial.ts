import { type Manifest, MillraceError, type QueueSpec } from "@millrace/contract"
import { backoffMs, type Clock, type Random } from "@millrace/runtime"
import type { Encryptor } from "../encryption/encryptor.ts"
import type { DeadLetterPolicy } from "../handler/dead-letter.ts"
import type { DeadContent } from "../handler/dead-letter-record.ts"
import { DeadLetterSender } from "../handler/dead-letter-sender.ts"
import { thrownText } from "../handler/handler-failure.ts"
import { jittered } from "../handler/retry.ts"
import type { QueueEvents } from "./queue-events.ts"
import type { QueuedMessage } from "./queue-message.ts"
import { PromisedSettlement, type SettlementDesk } from "./settlement-desk.ts"

/** What burials need of their consumer. */
export interface BurialParts {
  readonly what: string
  readonly queue: string
  readonly policy: DeadLetterPolicy | undefined
  readonly spec: QueueSpec
  readonly clock: Clock
  readonly random: Random
  readonly limits: Manifest["limits"]
  readonly encryptor: Encryptor | false | undefined
  readonly desk: SettlementDesk
  readonly events: QueueEvents
  /** Its wait is extended from here on, or no longer. */
  hold(message: QueuedMessage): void
  free(message: QueuedMessage): void
  /** Under `all`: nothing behind it is handed out before it is gone. @returns to be called when it is, or with false when it may not be */
  restart(waitMs: number): (known: boolean) => void
}

/** Why a message ends. */
export interface Ending {
  /** What a handler threw, or an error that says why. */
  readonly thrown: unknown
  /** What the payload is. Default: as a handler saw it. */
  readonly content?: DeadContent
}

/** The first delay of a message whose handler failed, and the longest, in ms, where nothing else is said. */
export const failureDelay: { readonly backoffMs: number; readonly maxBackoffMs: number } = Object.freeze({
  backoffMs: 100,
  maxBackoffMs: 30_000,
})
/** When a message comes again whose dead letter could not be stored, in ms; earlier when its wait is shorter. */
const unburiedDelayMs = 30_000

/** Ends messages that are not done: dead letter first, then terminated. */
export class QueueBurials {
  readonly #parts: BurialParts
  readonly #sender: DeadLetterSender | undefined
  #under = 0

  constructor(parts: BurialParts) {
    this.#parts = parts
    const { policy, what, clock, random, limits, encryptor } = parts
    if (policy !== undefined) this.#sender = new DeadLetterSender(policy, { what, clock, random, limits, encryptor })
  }

  /** How many are on their way. */
  get under(): number {
    return this.#under
  }

  get hasTopic(): boolean {
    return this.#sender !== undefined
  }

  /** Whether a message whose handler failed like this is not tried again. */
  isLast(message: QueuedMessage, thrown: unknown): boolean {
    const { maxDeliver } = this.#parts.spec
    if (maxDeliver !== undefined && message.deliveries >= maxDeliver) return true
    return this.hasTopic && (thrown as { readonly retryable?: unknown } | undefined | null)?.retryable === false
  }

  /** The delay of the nak behind a delivery that failed, in ms. */
  delayMs(message: QueuedMessage, own: typeof failureDelay = failureDelay): number {
    const { spec, random } = this.#parts
    // Those that come behind it would overtake it, and their acks would cover it.
    if (spec.ackPolicy === "all") return 0
    const { backoffMs: waits } = spec
    if (waits.length > 0) return waits[Math.min(message.deliveries, waits.length) - 1] as number
    return jittered(backoffMs(message.deliveries - 1, own.backoffMs, own.maxBackoffMs), random)
  }

  /**
   * Stores the dead letter, where there is a topic for it, then terminates the message, whose `verdict` is set already.
   * @returns whether the termination counted
   * @throws why the dead letter could not be stored; the message then comes again after a while. What the termination failed with
   */
  async bury(message: QueuedMessage, ending: Ending): Promise<boolean> {
    const { desk, events, hold, free } = this.#parts
    this.#under++
    hold(message)
    const unblock = this.#parts.spec.ackPolicy === "all" ? this.#parts.restart(message.waitMs) : undefined
    let gone = false
    try {
      if (this.#sender !== undefined) await this.#store(this.#sender, message, ending)
      const reason = thrownText(ending.thrown)
      const settlement = new PromisedSettlement()
      desk.settle({ token: message.token, verdict: "terminate", reason }, settlement, false)
      const counts = await settlement.promise
      if (counts) {
        const { position, deliveries } = message
        events.counts.exhausted++
        events.tell("exhausted", { position, deliveries, deadLetter: this.hasTopic, reason })
      }
      gone = true
      return counts
    } finally {
      unblock?.(gone)
      this.#under--
      free(message)
    }
  }

  /** What waits to be tried again is given up. */
  close(): void {
    this.#sender?.close()
  }

  async #store(
    sender: DeadLetterSender,
    message: QueuedMessage,
    { thrown, content = "message" }: Ending,
  ): Promise<void> {
    const { clock, queue, spec, desk } = this.#parts
    const { stream, topic } = message
    try {
      await sender.send({
        place: { stream, topic, ...message.position },
        message,
        content,
        thrown,
        attempts: Math.min(message.deliveries, spec.maxDeliver ?? Number.POSITIVE_INFINITY),
        timeMicros: clock.nowMicros(),
        consumer: undefined,
        group: undefined,
        queue,
      })
    } catch (error) {
      const delayMs = spec.ackPolicy === "all" ? 0 : Math.min(unburiedDelayMs, message.waitMs)
      desk.settle({ token: message.token, verdict: "nak", delayMs }, unheard, false)
      throw error
    }
  }
}

/** When the nak fails the message comes again at the end of its wait. */
const unheard = { settled: (): void => {}, failed: (): void => {} }

/** Why a message ends that nobody has failed in this process. */
export function usedUp(what: string, message: QueuedMessage, maxDeliver: number): MillraceError {
  const { partition, offset } = message.position
  return new MillraceError(
    "handler",
    `${what}: offset ${offset} of partition ${partition} was handed out ${maxDeliver} times and not acknowledged`,
    { context: { stream: message.stream, topic: message.topic, partition, offset } },
  )
}

/** Why a message ends that its holder gave up. */
export function terminated(reason: string | undefined): MillraceError {
  return new MillraceError("handler", reason === undefined || reason === "" ? "it was terminated" : reason)
}
