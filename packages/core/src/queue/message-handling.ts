import type { MillraceError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { DeadContent } from "../handler/dead-letter-record.ts"
import { AttemptContext, type ContextOwner, type Handler, type HandlerScope } from "../handler/handler-context.ts"
import { handlerFailure } from "../handler/handler-failure.ts"
import { isThenable } from "../handler/observed.ts"
import { asMillraceError } from "../partition/failure.ts"
import type { DedupeWindow } from "./interval-set.ts"
import { failureDelay, type QueueBurials } from "./queue-burial.ts"
import type { QueueConsumerSettings } from "./queue-consumer-options.ts"
import type { QueueEvents } from "./queue-events.ts"
import type { QueueIntake } from "./queue-intake.ts"
import type { QueuedMessage } from "./queue-message.ts"
import type { SettlementDesk, SettlementSink } from "./settlement-desk.ts"

/** What comes of a delivery that failed. */
export type AfterFailure = "retry" | "deadLetter" | "terminate"

export interface HandlingParts {
  readonly what: string
  readonly clock: Clock
  readonly settings: QueueConsumerSettings
  readonly intake: QueueIntake
  readonly desk: SettlementDesk
  readonly burials: QueueBurials
  readonly events: QueueEvents
  readonly window: DedupeWindow
  /** Under `all` an ack covers those before it; under `none` there is none. */
  readonly ackPolicy: "none" | "all" | "explicit"
}

/** Hears of acks behind handlers. */
export interface AckListener {
  /** One less is under way; `error` when it failed. */
  acknowledged(error: MillraceError | undefined): void
}

/** What all verbs with a handler have in common: the call, the longer wait meanwhile, and what follows from how it went. */
export class MessageHandling {
  readonly parts: HandlingParts
  /** Who waits for the end of what is open. */
  readonly #waiting: (() => void)[] = []
  #open = 0
  #running = 0

  constructor(parts: HandlingParts) {
    this.parts = parts
  }

  /** Handlers that run. */
  get running(): number {
    return this.#running
  }

  /** A verb has a message: until `end` there is something that will be settled. */
  begin(): void {
    this.#open++
  }

  /** What follows from it is on its way. */
  end(): void {
    if (--this.#open > 0) return
    for (const tell of this.#waiting.splice(0)) tell()
  }

  /** Whether the message was processed by this consumer before: then it is acknowledged, and to be skipped. */
  isKnown(message: QueuedMessage): boolean {
    const { window, events } = this.parts
    if (!window.has(message.partition, message.offset, message.lineage)) return false
    events.counts.skipped++
    this.acknowledge(message)
    return true
  }

  /**
   * Calls the handler. A promise only where it gives one.
   * @throws what it throws, at once or by its promise
   */
  call(
    message: QueuedMessage,
    handler: Handler,
    place: { readonly scope: HandlerScope; readonly owner: ContextOwner },
  ): unknown {
    const attempt = new AttemptContext(place.owner, message, message.deliveries)
    message.attempt = attempt
    this.#running++
    let result: unknown
    try {
      result = place.scope.call(attempt, handler, message)
    } catch (thrown) {
      this.#ended(message, attempt)
      throw thrown
    }
    if (!isThenable(result)) {
      this.#ended(message, attempt)
      return result
    }
    // One that the handler has settled is nobody's to extend.
    if (message.verdict === undefined) this.parts.intake.hold(message)
    return this.#awaited(message, attempt, result)
  }

  /**
   * It was handled: marks it, and acknowledges it unless the handler has settled it.
   * @param listener Told once, also where there is nothing to acknowledge.
   */
  succeeded(message: QueuedMessage, listener?: AckListener): void {
    this.mark(message)
    if (message.verdict === undefined) this.acknowledge(message, listener)
    else listener?.acknowledged(undefined)
  }

  /** It was handled, as far as its handler does not say otherwise. */
  mark(message: QueuedMessage): void {
    const { verdict, partition, offset, lineage } = message
    if (verdict === undefined || verdict === "ack") this.parts.window.mark(partition, offset, lineage)
  }

  /** The same, with an answer. @returns what the ack failed with */
  async succeededWith(message: QueuedMessage): Promise<MillraceError | undefined> {
    const acks = new AckCount()
    acks.expect()
    this.succeeded(message, acks)
    return await acks.answered()
  }

  /**
   * Acknowledges a message that nobody has settled. Under `all` one that would cover what is not handled goes back instead, and is
   * acknowledged when it comes again, since the window has it.
   */
  acknowledge(message: QueuedMessage, listener?: AckListener): void {
    const { ackPolicy, desk, settings, intake } = this.parts
    const waiting = ackPolicy === "all" ? intake.lowestOffset(message.partition) : undefined
    if (waiting !== undefined && waiting < message.offset) {
      intake.defer(message)
      listener?.acknowledged(undefined)
      return
    }
    message.verdict = "ack"
    if (ackPolicy === "none") listener?.acknowledged(undefined)
    else
      desk.settle(
        { token: message.token, verdict: "ack" },
        new HandledAck(this, message, listener),
        settings.confirmAcks,
      )
  }

  /**
   * It was not: hands it back with a delay, or ends it when it was the last time. Nothing when the handler has settled it.
   * @param delay Of a nak, where it is not the queue's.
   * @throws why its dead letter could not be stored
   */
  async failed(message: QueuedMessage, failure: Failure): Promise<AfterFailure> {
    const { burials, desk, events, intake, settings, ackPolicy } = this.parts
    events.counts.failed++
    events.tell("failed", failure.error)
    // What does not decrypt here may decrypt elsewhere: only its deliveries end it.
    const last = burials.isLast(message, failure.content === "stored" ? undefined : failure.thrown)
    const next: AfterFailure = !last ? "retry" : burials.hasTopic ? "deadLetter" : "terminate"
    failure.told?.(next)
    if (message.verdict !== undefined || ackPolicy === "none") return next
    if (last) {
      message.verdict = "terminate"
      const { thrown, content } = failure
      await burials.bury(message, content === undefined ? { thrown } : { thrown, content })
      return next
    }
    if (!settings.nakOnError) return next
    message.verdict = "nak"
    const delayMs = failure.delayMs ?? burials.delayMs(message, failure.delay ?? failureDelay)
    await new Promise<void>((resolve) => {
      const unblock = ackPolicy === "all" ? intake.restart(message.waitMs) : undefined
      const sink: SettlementSink = {
        settled: () => {
          unblock?.(true)
          resolve()
        },
        failed: (error) => {
          unblock?.(false)
          // It comes again even so, when its wait is over.
          events.tell("failed", error)
          resolve()
        },
      }
      desk.settle({ token: message.token, verdict: "nak", delayMs }, sink, false)
    })
    return next
  }

  /** `failed` for a handler whose caller hears what it threw: what else goes wrong is told as `failed`, and to the next call. */
  async dealWith(message: QueuedMessage, thrown: unknown): Promise<void> {
    try {
      await this.failed(message, { thrown, error: this.handlerError(message, thrown) })
    } catch (error) {
      this.parts.events.tell("failed", asMillraceError(error))
      this.parts.intake.fail(error)
    }
  }

  /** The failure of a handler as events and `onError` are told it. */
  handlerError(message: QueuedMessage, thrown: unknown): MillraceError {
    const { stream, topic, deliveries } = message
    const place = { stream, topic, ...message.position }
    return handlerFailure(this.parts.what, place, { attempt: deliveries, attempts: 1, thrown })
  }

  /** Told of the ack behind a handler. */
  ackAnswered(message: QueuedMessage, counts: boolean): void {
    if (counts) return
    const { events } = this.parts
    events.counts.late++
    events.tell("late", message.position)
  }

  /** It may have arrived. If not the message comes again, and the window has it. */
  ackFailed(error: MillraceError): void {
    this.parts.events.tell("failed", error)
  }

  /** Settles once no verb has a message. */
  async idle(): Promise<void> {
    while (this.#open > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve))
  }

  async #awaited(message: QueuedMessage, attempt: AttemptContext, result: PromiseLike<unknown>): Promise<unknown> {
    try {
      return await result
    } finally {
      this.parts.intake.free(message)
      this.#ended(message, attempt)
    }
  }

  #ended(message: QueuedMessage, attempt: AttemptContext): void {
    attempt.running = false
    message.attempt = undefined
    this.#running--
  }
}

/** How a delivery failed. */
export interface Failure {
  readonly thrown: unknown
  /** As it is told. */
  readonly error: MillraceError
  /** What the payload is when it goes to a dead-letter topic; default as a handler saw it. */
  readonly content?: DeadContent
  readonly delay?: { readonly backoffMs: number; readonly maxBackoffMs: number }
  readonly delayMs?: number
  /** Called with what comes next, before it does. */
  readonly told?: (next: AfterFailure) => void
}

/** One ack behind a handler. */
class HandledAck implements SettlementSink {
  readonly #handling: MessageHandling
  readonly #message: QueuedMessage
  readonly #listener: AckListener | undefined

  constructor(handling: MessageHandling, message: QueuedMessage, listener: AckListener | undefined) {
    this.#handling = handling
    this.#message = message
    this.#listener = listener
  }

  settled(counts: boolean): void {
    this.#handling.ackAnswered(this.#message, counts)
    this.#listener?.acknowledged(undefined)
  }

  failed(error: MillraceError): void {
    this.#handling.ackFailed(error)
    this.#listener?.acknowledged(error)
  }
}

/** Counts acks down: settles with the first error when all are answered. */
export class AckCount implements AckListener {
  #open = 0
  #error: MillraceError | undefined
  #done: ((error: MillraceError | undefined) => void) | undefined

  /** One more is under way. */
  expect(): void {
    this.#open++
  }

  acknowledged(error: MillraceError | undefined): void {
    this.#open--
    this.#error ??= error
    if (this.#open === 0) this.#done?.(this.#error)
  }

  /** The first error, once all that were expected are answered. Called once, behind the last `expect`. */
  answered(): Promise<MillraceError | undefined> {
    return new Promise((resolve) => {
      if (this.#open === 0) resolve(this.#error)
      else this.#done = resolve
    })
  }
}
