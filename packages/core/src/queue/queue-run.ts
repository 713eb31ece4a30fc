import { CancelledError, InvalidError, type MillraceError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { OptionReader, shown } from "../client/options.ts"
import { signalFired } from "../client/signal-fired.ts"
import type { DeadContent } from "../handler/dead-letter-record.ts"
import { contentOf } from "../handler/failure-handling.ts"
import { type ContextOwner, callersContext, type Handler, HandlerScope } from "../handler/handler-context.ts"
import { isThenable, tellObserved } from "../handler/observed.ts"
import type { AfterFailure, MessageHandling } from "./message-handling.ts"
import { failureDelay } from "./queue-burial.ts"
import type { QueueRunOptions } from "./queue-consumer.ts"
import type { QueueIntake } from "./queue-intake.ts"
import type { QueuedMessage } from "./queue-message.ts"

/** Run options after the checks. */
interface RunSettings {
  readonly concurrency: number
  readonly delay: typeof failureDelay
  readonly onError: QueueRunOptions["onError"]
  readonly drainTimeoutMs: number
  readonly signal: AbortSignal | undefined
}

export interface RunParts {
  readonly what: string
  readonly clock: Clock
  readonly intake: QueueIntake
  readonly handling: MessageHandling
  /** Of the consumer: ends the run as its own does. */
  readonly signal: AbortSignal | undefined
  /** Whose run it is. */
  readonly consumer: object
}

const mostHandlers = 10_000

/** @throws InvalidError for an unknown option, a value out of its range, or several handlers under `all` */
export function checkQueueRunOptions(
  what: string,
  options: QueueRunOptions | undefined,
  ordered: boolean,
): RunSettings {
  const owner = `${what}: run`
  const reader = new OptionReader<QueueRunOptions>(owner, options, [
    "concurrency",
    "backoffMs",
    "maxBackoffMs",
    "onError",
    "drainTimeoutMs",
    "signal",
  ])
  const signal = options?.signal
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new InvalidError(`${owner}: option "signal" is ${shown(signal)}; it must be an AbortSignal`)
  }
  const concurrency = reader.whole("concurrency", { min: 1, max: mostHandlers, fallback: 1 })
  if (ordered && concurrency > 1) {
    throw new InvalidError(
      `${owner}: option "concurrency" is ${concurrency}; with ackPolicy "all" it must be 1: an ack covers the messages before it`,
    )
  }
  return {
    concurrency,
    delay: {
      backoffMs: reader.duration("backoffMs", { zero: true, fallback: failureDelay.backoffMs }),
      maxBackoffMs: reader.duration("maxBackoffMs", { zero: true, fallback: failureDelay.maxBackoffMs }),
    },
    onError: reader.callback("onError"),
    drainTimeoutMs: reader.duration("drainTimeoutMs", { zero: true, fallback: 30_000 }),
    signal,
  }
}

/**
 * One `run`: as many handlers at a time as allowed, each with a message of its own. Nothing starts once it is ending; it is over when the
 * handlers that run have settled and their failures are dealt with.
 */
export class QueueRun implements ContextOwner {
  /** For a handler that shuts its own consumer down. */
  readonly consumer: object
  readonly #handler: Handler
  readonly #settings: RunSettings
  readonly #parts: RunParts
  /** Places of handlers that do not run. */
  readonly #idle: HandlerScope[]
  readonly #over = Promise.withResolvers<void>()
  /** Handlers that run, and failures that are dealt with. */
  #open = 0
  #ending = false
  #failure: { readonly error: unknown } | undefined
  #leave: (() => boolean) | undefined
  #drain: ReturnType<Clock["setTimer"]> | undefined
  readonly #running = new Set<QueuedMessage>()
  /** Under way: messages are started in one loop, whoever asks for more. */
  #filling = false

  constructor(handler: Handler, settings: RunSettings, parts: RunParts) {
    this.#handler = handler
    this.#settings = settings
    this.#parts = parts
    this.consumer = parts.consumer
    const callers = callersContext()
    this.#idle = Array.from({ length: settings.concurrency }, () => new HandlerScope(callers))
  }

  /** @throws as `QueueConsumer.run` */
  async over(): Promise<void> {
    const signals = [this.#settings.signal, this.#parts.signal].filter((signal) => signal !== undefined)
    const abort = (): void => {
      const fired = signals.find(({ aborted }) => aborted)
      this.#end({ error: signalFired(this.#parts.what, fired) })
    }
    for (const signal of signals) signal.addEventListener("abort", abort, { once: true })
    if (signals.some(({ aborted }) => aborted)) abort()
    this.#fill()
    try {
      await this.#over.promise
    } finally {
      for (const signal of signals) signal.removeEventListener("abort", abort)
      this.#drain?.cancel()
    }
    if (this.#failure !== undefined) throw this.#failure.error
  }

  stop(): void {
    this.#end(undefined)
  }

  /** The consumer that is shut down ends the run itself. */
  shutdownCalled(): void {}

  /** Handlers that do not finish are not waited for: their messages are still theirs until their waits are over. */
  abandon(error: CancelledError): void {
    this.#ending = true
    this.#drain?.cancel()
    for (const message of this.#running) message.attempt?.abort(error)
    this.#over.resolve()
  }

  /** Nothing more starts. The first reason counts. */
  #end(failure: { readonly error: unknown } | undefined): void {
    this.#failure ??= failure
    if (!this.#ending) {
      this.#ending = true
      this.#leave?.()
      const { clock } = this.#parts
      // A shutdown has a time of its own.
      if (!this.#parts.intake.callers.ended && this.#open > 0) {
        const { drainTimeoutMs } = this.#settings
        const error = new CancelledError(`${this.#parts.what}: the run ended ${drainTimeoutMs} ms ago`)
        this.#drain = clock.setTimer(drainTimeoutMs, () => this.abandon(error))
      }
    }
    this.#check()
  }

  #check(): void {
    if (this.#ending && this.#open === 0) this.#over.resolve()
  }

  /** Starts handlers as far as there are messages and places. */
  #fill(): void {
    if (this.#filling || this.#ending) return
    this.#filling = true
    try {
      while (!this.#ending && this.#idle.length > 0) {
        const message = this.#parts.intake.take()
        if (message === undefined) break
        this.#begin(message)
      }
    } catch (error) {
      this.#end({ error })
    }
    this.#filling = false
    if (!this.#ending && this.#idle.length > 0 && this.#leave === undefined) this.#wait()
  }

  #wait(): void {
    const { intake } = this.#parts
    if (intake.callers.ended) {
      this.#end(undefined)
      return
    }
    const gone = (): void => {
      this.#leave = undefined
    }
    this.#leave = intake.wait({
      want: this.#idle.length,
      serve: () => {
        if (intake.buffer.count === 0) {
          // Somebody has to hear of a failure, and this is who waits.
          intake.callers.assertNone()
          return false
        }
        gone()
        // Behind the others who wait: they are served first.
        queueMicrotask(() => this.#fill())
        return true
      },
      failed: (error) => {
        gone()
        this.#end({ error })
      },
      ended: () => {
        gone()
        this.#end(undefined)
      },
    })
  }

  #begin(message: QueuedMessage): void {
    const { handling, clock } = this.#parts
    try {
      message.open()
    } catch (thrown) {
      this.#opened()
      void this.#fail(message, { thrown, content: contentOf(0, thrown) })
      return
    }
    if (handling.isKnown(message)) return
    const scope = this.#idle.pop() as HandlerScope
    const startedMs = clock.monotonicMs()
    this.#opened()
    let result: unknown
    try {
      result = handling.call(message, this.#handler, { scope, owner: this })
    } catch (thrown) {
      this.#idle.push(scope)
      void this.#fail(message, { thrown })
      return
    }
    if (!isThenable(result)) {
      this.#idle.push(scope)
      this.#done(message, startedMs)
      return
    }
    this.#running.add(message)
    result.then(
      () => {
        this.#returned(message, scope)
        this.#done(message, startedMs)
        this.#fill()
      },
      (thrown) => {
        this.#returned(message, scope)
        void this.#fail(message, { thrown })
        this.#fill()
      },
    )
  }

  #returned(message: QueuedMessage, scope: HandlerScope): void {
    this.#running.delete(message)
    this.#idle.push(scope)
  }

  #done(message: QueuedMessage, startedMs: number): void {
    const { handling, intake, clock } = this.#parts
    intake.prefetch.handled(this.#settings.concurrency, clock.monotonicMs() - startedMs)
    handling.succeeded(message)
    this.#closed()
  }

  #opened(): void {
    this.#open++
    this.#parts.handling.begin()
  }

  /** What follows from a message is on its way. */
  #closed(): void {
    this.#open--
    this.#parts.handling.end()
    this.#check()
  }

  /** Never rejects: what fails ends the run. */
  async #fail(
    message: QueuedMessage,
    failure: { readonly thrown: unknown; readonly content?: DeadContent },
  ): Promise<void> {
    const { handling } = this.#parts
    const { delay, onError } = this.#settings
    const { thrown } = failure
    const error = failure.content === undefined ? handling.handlerError(message, thrown) : (thrown as MillraceError)
    const told = (next: AfterFailure): void => {
      tellObserved(
        () => onError?.(error, next),
        (given) => this.#end({ error: given }),
      )
    }
    try {
      await handling.failed(message, { ...failure, error, delay, told })
    } catch (given) {
      this.#end({ error: given })
    }
    this.#closed()
    this.#fill()
  }
}
