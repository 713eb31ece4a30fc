import { ClosedError, type MillraceError } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { OptionReader } from "../client/options.ts"
import { signalFired } from "../client/signal-fired.ts"
import type { ConsumerEvents } from "../consumer/consumer-events.ts"
import type { LogConsumer } from "../consumer/log-consumer.ts"
import { openGroupLog } from "../group/group-consumer.ts"
import { callingAttempt, type Handler, outside } from "../handler/handler-context.ts"
import { tellObserved } from "../handler/observed.ts"
import type { ShutdownOptions } from "../producer/sending-end.ts"
import { decodingOf } from "../typed/decoding.ts"
import { BatchSettler } from "./batch-settler.ts"
import { ProcessLoop } from "./process-loop.ts"
import type { ProcessSettings } from "./process-options.ts"
import { OutputEncoder } from "./process-output.ts"

/** What a processor did, as counted in memory since it began. */
export interface ProcessorStatistics {
  /** Messages whose outputs and progress are committed, those without outputs and those that were skipped too. */
  readonly messages: number
  /** Records that were committed, dead letters too. */
  readonly outputs: number
  /** Transactions that were committed. */
  readonly batches: number
  /** Transactions that were not: their messages came again. */
  readonly aborted: number
  /** Messages that counted as processed without being so (`onFailure: "skip"`). */
  readonly skipped: number
  /** Messages in whose place a dead letter was sent. */
  readonly deadLetters: number
}

/** The same, as it is counted. */
export type ProcessorCounts = { -readonly [K in keyof ProcessorStatistics]: ProcessorStatistics[K] }

/** A transaction that was aborted, whose messages come again. */
export interface Abort {
  readonly error: MillraceError
  readonly messages: number
}

/** What a processor tells: what happens to its partitions, and its transactions. */
export interface ProcessorEvents extends ConsumerEvents {
  aborted(abort: Abort): void
}

/**
 * A member of a consumer group that turns messages into records, exactly once: see `client.process`. It runs by itself until it is shut down, or
 * fails.
 */
export interface Processor extends AsyncDisposable {
  /** Settles when it reads: what is published from then on is processed. Rejects as `done` when it comes to nothing. */
  readonly ready: Promise<void>
  /**
   * Settles when it has ended: well after `shutdown` and `context.stop()`, and else with what it ended with. A rejection that nobody looks at
   * is not unhandled.
   * @throws MillraceError of kind `handler` for a message whose last attempt failed (`onFailure: "stop"`); CancelledError for the signal;
   *   FencedError when another processor has the same `transactionalId`; what the topics, the group or the backend fail with
   */
  readonly done: Promise<void>
  readonly statistics: ProcessorStatistics
  /** Tells what happens to its partitions and transactions. Disposing the answer ends it. */
  on(listener: Partial<ProcessorEvents>): Disposable
  /**
   * Begins nothing more, commits what was handled, leaves the group. A second call awaits the first. Called by a handler it does not wait
   * for it.
   * @param options.timeoutMs For a handler that is running and its commit. Default 30,000.
   * @throws TimeoutError when that takes longer: what is not committed then is processed by whoever reads next
   */
  shutdown(options?: ShutdownOptions): Promise<void>
}

const defaultShutdownMs = 30_000

/** The processor over a consumer, a loop and a settler. */
export class GroupProcessor implements Processor {
  readonly ready: Promise<void>
  readonly done: Promise<void>
  readonly #client: ClientContext
  readonly #settings: ProcessSettings
  readonly #handler: Handler
  readonly #settler: BatchSettler
  readonly #counts: ProcessorCounts = { messages: 0, outputs: 0, batches: 0, aborted: 0, skipped: 0, deadLetters: 0 }
  readonly #listeners = new Map<Partial<ProcessorEvents>, Disposable | undefined>()
  readonly #begun = Promise.withResolvers<void>()
  readonly #disown: () => void
  /** Settles when it is to end. */
  readonly #halted = Promise.withResolvers<undefined>()
  #consumer: LogConsumer | undefined
  #loop: ProcessLoop | undefined
  #stopped: { readonly error: unknown } | undefined
  #shutdown: Promise<void> | undefined
  #shutdownMs = defaultShutdownMs

  /** Made by `client.process`. @throws ClosedError */
  constructor(client: ClientContext, settings: ProcessSettings, handler: Handler) {
    this.#client = client
    this.#settings = settings
    this.#handler = handler
    this.#settler = new BatchSettler(client, settings)
    this.#disown = client.own({ shutdown: (options) => this.#clientCloses(options) })
    this.ready = this.#begun.promise
    this.ready.catch(() => {})
    this.done = this.#run()
    this.done.catch(() => {})
  }

  get statistics(): ProcessorStatistics {
    return { ...this.#counts }
  }

  on(listener: Partial<ProcessorEvents>): Disposable {
    this.#listeners.set(listener, this.#consumer?.on(listener))
    return {
      [Symbol.dispose]: () => {
        this.#listeners.get(listener)?.[Symbol.dispose]()
        this.#listeners.delete(listener)
      },
    }
  }

  shutdown(options?: ShutdownOptions): Promise<void> {
    try {
      const read = new OptionReader<ShutdownOptions>(`${this.#settings.what}: shutdown`, options, ["timeoutMs"])
      const timeoutMs = read.duration("timeoutMs", { zero: true, fallback: defaultShutdownMs })
      const end = (): Promise<void> => {
        this.#shutdown ??= this.#end(timeoutMs)
        return this.#shutdown
      }
      const caller = callingAttempt()?.owner
      if (caller === undefined || caller !== this.#loop) return end()
      outside(end).catch(() => {})
      return Promise.resolve()
    } catch (error) {
      return Promise.reject(error)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.shutdown()
  }

  /** A handler that closes the client waits for all of it, and so for itself: it is left behind. */
  #clientCloses(options: ShutdownOptions | undefined): Promise<void> {
    const caller = callingAttempt()?.owner
    const own = caller !== undefined && caller === this.#loop ? this.#loop : undefined
    const ended = outside(() => this.shutdown(options))
    own?.leave().catch((error) => own.fail(error))
    return ended
  }

  /** How it ended is told by `done`, but for what was not done in time. */
  async #end(timeoutMs: number): Promise<void> {
    this.#shutdownMs = timeoutMs
    this.#stop(undefined)
    if (this.#loop === undefined) {
      // It has not come to reading, and is not to wait for a backend that does not answer.
      this.#settler.giveUp(new ClosedError(`${this.#settings.what} was shut down`))
    }
    const late = await this.#consumer?.shutdown({ timeoutMs }).then(
      () => undefined,
      (error: unknown) => ({ error }),
    )
    await this.done.catch(() => {})
    if (late !== undefined) throw late.error
  }

  #stop(error: unknown): void {
    this.#stopped ??= { error }
    this.#halted.resolve(undefined)
    if (error === undefined) this.#loop?.stop()
    else this.#loop?.fail(error)
  }

  async #run(): Promise<void> {
    const { signal, what } = this.#settings
    const cancel = (): void => this.#stop(signalFired(what, signal))
    signal?.addEventListener("abort", cancel, { once: true })
    if (signal?.aborted) cancel()
    let failure: { readonly error: unknown } | undefined
    try {
      await this.#open()
      this.#begun.resolve()
      await this.#loop?.run()
    } catch (error) {
      failure = this.#stopped?.error === undefined ? { error } : { error: this.#stopped.error }
    }
    signal?.removeEventListener("abort", cancel)
    try {
      await this.#consumer?.shutdown({ timeoutMs: this.#shutdownMs })
      await this.#settler.close()
    } catch (error) {
      // Why it ended counts for more than what its end fails with.
      failure ??= this.#stopped === undefined ? { error } : undefined
    }
    this.#disown()
    this.#begun.reject(failure?.error ?? new ClosedError(`${what} was shut down before it began`))
    if (failure !== undefined && !(this.#isOrderly && failure.error instanceof ClosedError)) throw failure.error
  }

  /** Whether it was asked to end. */
  get #isOrderly(): boolean {
    return this.#stopped !== undefined && this.#stopped.error === undefined
  }

  async #open(): Promise<void> {
    const { topic, group, what, typed, consumer: options } = this.#settings
    this.#assertGoing()
    await this.#settler.open()
    this.#assertGoing()
    const decoding = typed === undefined ? undefined : decodingOf(what, typed.codec)
    const opening = openGroupLog(this.#client, { topic, group, what, decoding }, options)
    // A group that gives no assignment does not hold up the end; whoever comes after it is shut down.
    const consumer = await Promise.race([opening, this.#halted.promise])
    if (consumer === undefined) {
      opening.then((late) => late.shutdown()).catch(() => {})
      this.#assertGoing()
      return
    }
    this.#consumer = consumer
    for (const listener of this.#listeners.keys()) this.#listeners.set(listener, consumer.on(listener))
    this.#assertGoing()
    const { to, producer } = this.#settings
    this.#loop = new ProcessLoop(this.#settings, {
      client: this.#client,
      consumer,
      settler: this.#settler,
      outputs: new OutputEncoder(this.#client, { to, route: producer.route, encryptor: producer.encryptor }),
      handler: this.#handler,
      counts: this.#counts,
      aborted: (error, messages) => this.#tellAborted({ error, messages }),
    })
  }

  #tellAborted(abort: Abort): void {
    for (const listener of this.#listeners.keys()) {
      tellObserved(
        () => listener.aborted?.(abort),
        (error) => this.#loop?.fail(error),
      )
    }
  }

  #assertGoing(): void {
    if (this.#stopped === undefined) return
    throw this.#stopped.error ?? new ClosedError(`${this.#settings.what} was shut down`)
  }
}
