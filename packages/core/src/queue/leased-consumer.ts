import {
  CancelledError,
  InvalidError,
  type MillraceError,
  type QueueSession,
  type QueueSpec,
  type Settlement,
  TimeoutError,
  type TopicName,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { ClientContext } from "../client/context.ts"
import { longestDurationMs, OptionReader, shown } from "../client/options.ts"
import { openerOf } from "../encryption/sealing.ts"
import type { DeadLetterPolicy } from "../handler/dead-letter.ts"
import { contentOf } from "../handler/failure-handling.ts"
import { type ContextOwner, callersContext, callingAttempt, HandlerScope, outside } from "../handler/handler-context.ts"
import { asMillraceError } from "../partition/failure.ts"
import type { RecordDecoder } from "../typed/record-decoder.ts"
import { type BatchHost, type BatchUnderWay, handleBatch } from "./batch-handling.ts"
import { DedupeWindow, type IntervalSet } from "./interval-set.ts"
import { MessageHandling } from "./message-handling.ts"
import { QueueBurials, terminated, usedUp } from "./queue-burial.ts"
import type {
  PullOptions,
  QueueConsumer,
  QueueConsumerEvents,
  QueueConsumerStatistics,
  QueueHandler,
  QueueRunOptions,
} from "./queue-consumer.ts"
import type { QueueConsumerSettings } from "./queue-consumer-options.ts"
import { QueueEvents } from "./queue-events.ts"
import { type IntakeHost, QueueIntake } from "./queue-intake.ts"
import type { QueuedMessage, QueueMessage, SettleOptions } from "./queue-message.ts"
import { checkQueueRunOptions, QueueRun } from "./queue-run.ts"
import { noMessage, QueueTaker } from "./queue-taker.ts"
import { shortestWaitMs } from "./queue-waits.ts"
import { PromisedSettlement, SettlementDesk } from "./settlement-desk.ts"

/** How long a shutdown waits for handlers and requests where nothing else is said, in ms. */
const shutdownTimeoutMs = 5000

/** What a consumer stands over. */
export interface LeasedConsumerParts {
  readonly what: string
  readonly queue: string
  readonly topic: TopicName
  readonly session: QueueSession
  readonly deadLetter: DeadLetterPolicy | undefined
  readonly settings: QueueConsumerSettings
  /** What decodes the payloads; absent where messages are bytes. */
  readonly decoder: RecordDecoder | undefined
}

/** The consumer over a queue session. */
export class LeasedConsumer implements QueueConsumer, IntakeHost {
  readonly what: string
  readonly #session: QueueSession
  readonly #clock: Clock
  readonly #desk: SettlementDesk
  readonly #events: QueueEvents
  readonly #burials: QueueBurials
  readonly #intake: QueueIntake
  readonly #handling: MessageHandling
  readonly #window = new DedupeWindow()
  readonly #taker: QueueTaker
  readonly #settings: QueueConsumerSettings
  /** Failures and burials that nobody waits for. */
  readonly #tasks = new Set<Promise<void>>()
  readonly #runs = new Set<QueueRun>()
  readonly #batches = new Set<BatchUnderWay>()
  readonly #disown: () => void
  #shutdown: Promise<void> | undefined

  /** @throws ClosedError when the client was closed */
  constructor(context: ClientContext, parts: LeasedConsumerParts) {
    const { what, queue, topic, session, deadLetter, settings, decoder } = parts
    const { clock, random } = context
    this.what = what
    this.#session = session
    this.#clock = clock
    this.#settings = settings
    this.#events = new QueueEvents((error) => this.#intake.fail(error))
    this.#desk = new SettlementDesk(session, clock)
    const opener = openerOf(context, settings.encryptor)
    const desk = this.#desk
    const events = this.#events
    this.#intake = new QueueIntake({
      session,
      clock,
      random,
      topic,
      opener,
      decoder,
      settings,
      desk,
      events,
      host: this,
    })
    this.#burials = new QueueBurials({
      ...{ what, queue, policy: deadLetter, spec: session.spec, clock, random, desk, events },
      limits: context.session.manifest.limits,
      encryptor: settings.encryptor ?? context.encryptor,
      hold: (message) => this.#intake.hold(message),
      free: (message) => this.#intake.free(message),
      restart: (waitMs) => this.#intake.restart(waitMs),
    })
    this.#handling = new MessageHandling({
      ...{ what, clock, settings, desk, events, window: this.#window, ackPolicy: session.spec.ackPolicy },
      intake: this.#intake,
      burials: this.#burials,
    })
    this.#taker = new QueueTaker({
      ...{ what, clock, intake: this.#intake, signal: settings.signal },
      unreadable: (message, error) => this.#unreadable(message, error),
    })
    this.#disown = context.own({ shutdown: (options) => this.shutdown(options) })
  }

  get spec(): QueueSpec {
    return this.#session.spec
  }

  get ackPolicy(): QueueSpec["ackPolicy"] {
    return this.#session.spec.ackPolicy
  }

  get burying(): number {
    return this.#burials.under
  }

  get dedupeWindow(): IntervalSet {
    return this.#window
  }

  get statistics(): QueueConsumerStatistics {
    const { buffer, prefetch } = this.#intake
    const now = { buffered: buffer.count, prefetch: prefetch.ahead, running: this.#handling.running }
    return Object.freeze({ ...this.#events.counts, ...now })
  }

  on(listener: Partial<QueueConsumerEvents>): Disposable {
    return this.#events.add(listener)
  }

  async pull(options?: PullOptions): Promise<QueueMessage[]> {
    return await this.#taker.pull(options)
  }

  [Symbol.asyncIterator](): AsyncIterator<QueueMessage, undefined> {
    return this.#taker.iterator()
  }

  async process<R>(handler: QueueHandler<R>): Promise<Awaited<R>> {
    this.#checkHandler("process", handler)
    return await this.#processOne(handler, undefined)
  }

  async processWithin<R>(timeoutMs: number, handler: QueueHandler<R>): Promise<Awaited<R>> {
    this.#checkHandler("processWithin", handler)
    if (typeof timeoutMs !== "number" || !(timeoutMs >= 0) || timeoutMs > longestDurationMs) {
      throw new InvalidError(
        `${this.what}: processWithin takes a number of milliseconds from 0 to ${longestDurationMs}, not ${shown(timeoutMs)}`,
      )
    }
    return await this.#processOne(handler, timeoutMs)
  }

  async processBatch<R>(size: number, handler: QueueHandler<R>): Promise<PromiseSettledResult<Awaited<R>>[]> {
    this.#checkHandler("processBatch", handler)
    if (!Number.isInteger(size) || size < 1 || size > mostInBatch) {
      throw new InvalidError(
        `${this.what}: processBatch takes a whole number of messages from 1 to ${mostInBatch}, not ${shown(size)}`,
      )
    }
    const host: BatchHost = {
      consumer: this,
      clock: this.#clock,
      taker: this.#taker,
      intake: this.#intake,
      handling: this.#handling,
      batchTimeoutMs: this.#settings.batchTimeoutMs,
      ackEveryMs: shortestWaitMs(this.spec) / 3,
      underWay: this.#batches,
    }
    const results = await handleBatch(host, { size, handler })
    return results as PromiseSettledResult<Awaited<R>>[]
  }

  async run(handler: QueueHandler<unknown>, options?: QueueRunOptions): Promise<void> {
    this.#checkHandler("run", handler)
    const settings = checkQueueRunOptions(this.what, options, this.ackPolicy === "all")
    this.#taker.assertOpen()
    const { what } = this
    const run = new QueueRun(handler as never, settings, {
      ...{ what, clock: this.#clock, intake: this.#intake, handling: this.#handling },
      signal: this.#settings.signal,
      consumer: this,
    })
    this.#runs.add(run)
    try {
      await run.over()
    } finally {
      this.#runs.delete(run)
    }
  }

  shutdown(options?: { readonly timeoutMs?: number }): Promise<void> {
    const end = (): Promise<void> => this.#end(options?.timeoutMs)
    const caller = callingAttempt()?.owner as (ContextOwner & { readonly consumer?: unknown }) | undefined
    if (caller?.consumer !== this) return end()
    // It waits for the handler that calls, which is why that one gets its answer at once.
    const closing = outside(end)
    closing.catch((error: unknown) => this.#events.tell("failed", asMillraceError(error)))
    return Promise.resolve()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.shutdown()
  }

  // ---- for its messages and its intake ----------------------------------------------------------------------

  async settle(message: QueuedMessage, verdict: Settlement["verdict"], options: SettleOptions): Promise<boolean> {
    const { delayMs, confirm = false } = options
    const counted = (askedMs: number): void => this.#intake.buffer.extended(message, askedMs, true)
    const settlement = new PromisedSettlement(verdict === "inProgress" ? counted : undefined)
    const asked: Settlement =
      delayMs === undefined ? { token: message.token, verdict } : { token: message.token, verdict, delayMs }
    // Its wait is not extended any more.
    if (verdict !== "inProgress") this.#intake.free(message)
    this.#desk.settle(asked, settlement, confirm)
    try {
      return await settlement.promise
    } catch (error) {
      if (message.attempt !== undefined) this.#intake.hold(message)
      throw error
    }
  }

  async terminate(message: QueuedMessage, reason: string | undefined): Promise<boolean> {
    const burial = this.#burials.bury(message, { thrown: terminated(reason) })
    this.#track(burial)
    return await burial
  }

  exhausted(message: QueuedMessage): void {
    message.verdict = "terminate"
    const thrown = usedUp(this.what, message, this.spec.maxDeliver as number)
    this.#inBackground(this.#burials.bury(message, { thrown }))
  }

  // ---- helpers ---------------------------------------------------------------------------------------------

  #checkHandler(verb: string, handler: unknown): void {
    if (typeof handler === "function") return
    throw new InvalidError(`${this.what}: ${verb} takes a function that handles a message, not ${shown(handler)}`)
  }

  /** @param timeoutMs For the message to come; absent: for ever. */
  async #processOne<R>(handler: QueueHandler<R>, timeoutMs: number | undefined): Promise<Awaited<R>> {
    const deadlineMs = timeoutMs === undefined ? undefined : this.#clock.monotonicMs() + timeoutMs
    for (;;) {
      const message = await (timeoutMs === 0 ? this.#taker.nextNow() : this.#taker.next(deadlineMs))
      if (message === undefined) throw noMessage(this.what, timeoutMs ?? 0)
      if (this.#handling.isKnown(message)) continue
      this.#handling.begin()
      try {
        return await this.#handle(message, handler)
      } finally {
        this.#handling.end()
      }
    }
  }

  async #handle<R>(message: QueuedMessage, handler: QueueHandler<R>): Promise<Awaited<R>> {
    const owner = { consumer: this, stop: (): void => {}, shutdownCalled: (): void => {} }
    const place = { scope: new HandlerScope(callersContext()), owner }
    const startedMs = this.#clock.monotonicMs()
    let value: Awaited<R>
    try {
      value = (await this.#handling.call(message, handler as never, place)) as Awaited<R>
    } catch (thrown) {
      await this.#handling.dealWith(message, thrown)
      throw thrown
    }
    this.#intake.prefetch.handled(1, this.#clock.monotonicMs() - startedMs)
    const error = await this.#handling.succeededWith(message)
    if (error !== undefined) throw error
    return value
  }

  /** A message that does not decrypt, or not decode: its caller has the error. */
  #unreadable(message: QueuedMessage, error: MillraceError): void {
    this.#inBackground(this.#handling.failed(message, { thrown: error, error, content: contentOf(0, error) }))
  }

  /** What fails is told as `failed`, and to the next call. */
  #inBackground(work: Promise<unknown>): void {
    const observed = work.catch((error: unknown) => {
      this.#events.tell("failed", asMillraceError(error))
      this.#intake.fail(error)
    })
    this.#track(observed)
  }

  /** A shutdown waits for it. */
  #track(work: Promise<unknown>): void {
    const gone = (): void => void this.#tasks.delete(task)
    const task: Promise<void> = work.then(gone, gone)
    this.#tasks.add(task)
  }

  #end(timeoutMs: number | undefined): Promise<void> {
    try {
      const reader = new OptionReader(`${this.what}: shutdown`, { timeoutMs }, ["timeoutMs"])
      const limitMs = reader.duration("timeoutMs", { zero: true, fallback: shutdownTimeoutMs })
      this.#shutdown ??= this.#close(limitMs)
    } catch (error) {
      return Promise.reject(error)
    }
    return this.#shutdown
  }

  async #close(timeoutMs: number): Promise<void> {
    this.#intake.end()
    const inTime = await this.#within(timeoutMs, this.#settled())
    if (!inTime) {
      const error = new CancelledError(`${this.what} was shut down`)
      for (const message of this.#intake.buffer.held()) message.attempt?.abort(error)
      for (const run of this.#runs) run.abandon(error)
      for (const batch of this.#batches) batch.abandon()
    }
    this.#burials.close()
    this.#desk.close(this.what)
    try {
      await this.#session.close()
      await this.#intake.close()
    } finally {
      this.#disown()
    }
    if (inTime) return
    throw new TimeoutError(`${this.what}: shutdown waited ${timeoutMs} ms for handlers and requests`, {
      outcome: "unknown",
    })
  }

  /** Settles when no handler, burial or request is under way. */
  async #settled(): Promise<void> {
    await this.#handling.idle()
    while (this.#tasks.size > 0) await Promise.all(this.#tasks)
    await this.#desk.idle()
  }

  /** Whether work was done in time. It does not reject. */
  #within(ms: number, work: Promise<void>): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = this.#clock.setTimer(ms, () => resolve(false))
      void work.then(() => {
        timer.cancel()
        resolve(true)
      })
    })
  }
}

const mostInBatch = 100_000
