import { CancelledError, type MillraceError } from "@millrace/contract"
import type { Timer } from "@millrace/runtime"
import type { ClientContext } from "../client/context.ts"
import type { Burial, DeadContent } from "../handler/dead-letter-record.ts"
import {
  AttemptContext,
  type ContextOwner,
  callersContext,
  type Handler,
  HandlerScope,
} from "../handler/handler-context.ts"
import { handlerFailure } from "../handler/handler-failure.ts"
import { isThenable, tellObserved } from "../handler/observed.ts"
import { jittered, retryDelayMs } from "../handler/retry.ts"
import type { Lane } from "../partition/lane.ts"
import type { BatchMessage } from "../record/message.ts"
import type { ProcessBatch } from "./process-batch.ts"
import type { ProcessSettings } from "./process-options.ts"
import type { OutputEncoder } from "./process-output.ts"

/** The loop that messages are handled for. */
export interface HandlingHost extends ContextOwner {
  /** Where what is made goes. */
  readonly batch: ProcessBatch
  /** Whether no attempt more is to begin. */
  readonly isStopping: boolean
  /** Whether what is made now is void, because the batch before was not stored. */
  readonly isAborted: boolean
  /** The processor ends with this. */
  fail(error: unknown): void
  /** The batch has waited for long enough while a handler runs. */
  overdue(): void
  /** A handler that was given up has ended. */
  left(): void
  /** Nothing more of the partition is taken until it is freed. */
  hold(lane: Lane): void
  free(lane: Lane): void
}

/** A message that had its last attempt, or none. */
export interface LastFailure {
  readonly attempts: number
  readonly thrown: unknown
  readonly error: MillraceError
  readonly content: DeadContent
}

/** A message whose next attempt is still to come. */
interface Retry {
  readonly message: BatchMessage
  readonly offset: bigint
  /** How many it has had. */
  readonly attempts: number
  readonly dueMs: number
}

/** What is known of a message that will be read again. */
interface Past {
  readonly offset: bigint
  readonly attempts: number
  /** Why it cannot be stored. */
  readonly error: MillraceError | undefined
}

/** A handler that is running. */
interface Attempt {
  readonly lane: Lane
  readonly context: AttemptContext
  /** Until what came before does not wait for it any longer; absent when nothing did. */
  readonly timer: Timer | undefined
  /** Its partition went, or its batch was aborted: nothing of it counts. */
  void: boolean
}

/** Hands messages to the handler, one at a time, and puts what it answers into the batch; and what becomes of one that fails. */
export class MessageHandling {
  readonly #settings: ProcessSettings
  readonly #client: ClientContext
  readonly #outputs: OutputEncoder
  readonly #handler: Handler
  readonly #host: HandlingHost
  readonly #scope = new HandlerScope(callersContext())
  #attempt: Attempt | undefined
  readonly #retries = new Map<Lane, Retry>()
  /** The offset of a message that is not done, and behind which nothing of its partition was taken. */
  readonly #limits = new Map<Lane, bigint>()
  /** Of partitions that are read again. */
  readonly #past = new Map<Lane, Past>()

  constructor(
    settings: ProcessSettings,
    parts: {
      readonly client: ClientContext
      readonly outputs: OutputEncoder
      readonly handler: Handler
    },
    host: HandlingHost,
  ) {
    this.#settings = settings
    this.#client = parts.client
    this.#outputs = parts.outputs
    this.#handler = parts.handler
    this.#host = host
  }

  /** Where progress of the partition has to stop, because the message there is not done. */
  readonly limitOf = (lane: Lane): bigint | undefined => this.#limits.get(lane)

  /** The handler that runs. */
  get running(): { readonly lane: Lane; readonly offset: bigint } | undefined {
    const running = this.#attempt
    return running && { lane: running.lane, offset: running.context.position.offset }
  }

  /** When the next attempt of some message is due, on the monotonic clock. */
  get dueMs(): number | undefined {
    let dueMs: number | undefined
    for (const retry of this.#retries.values()) dueMs = Math.min(dueMs ?? retry.dueMs, retry.dueMs)
    return dueMs
  }

  /** Tries a message again whose time has come; `undefined` when there is none. */
  retry(): Promise<void> | "done" | undefined {
    if (this.#retries.size === 0) return undefined
    const nowMs = this.#client.clock.monotonicMs()
    for (const [lane, { message, attempts, dueMs }] of this.#retries) {
      if (dueMs > nowMs) continue
      this.#forget(lane)
      return this.#handle(message, lane, attempts + 1) ?? "done"
    }
    return undefined
  }

  /** Handles a message that was just read. @returns a promise when the handler has not answered at once */
  take(message: BatchMessage, lane: Lane): Promise<void> | undefined {
    const past = this.#past.size === 0 ? undefined : this.#pastOf(lane, message)
    if (past?.error === undefined) return this.#handle(message, lane, (past?.attempts ?? 0) + 1)
    const { error } = past
    this.last(message, lane, { attempts: past.attempts, thrown: error, error, content: "message" })
    return undefined
  }

  /** The message had its last attempt, or none, because it cannot be read. */
  last(message: BatchMessage, lane: Lane, { attempts, thrown, error, content }: LastFailure): void {
    const next = this.#next
    const { offset } = message.position
    const told = this.reported(error)
    if (next === "stop" || !told) {
      this.#limits.set(lane, offset)
      if (next === "stop") this.#host.fail(error)
      return
    }
    const batch = this.#begun()
    if (next === "deadLetter") {
      const burial = this.burial({ place: { ...lane.partition, offset }, message, content, thrown, attempts })
      batch.outputs.push({ lane, message, record: undefined, to: undefined, burial })
    }
    batch.took(lane, next === "deadLetter" ? "deadLetters" : "skipped")
  }

  /** What is known of a message that cannot be handled, for its dead letter. */
  burial(of: Omit<Burial, "timeMicros" | "consumer" | "group">): Burial {
    return { ...of, timeMicros: this.#client.clock.nowMicros(), consumer: undefined, group: this.#settings.group }
  }

  /** Tells `onError` of a last failure; false when that itself failed, which ends the processor. */
  reported(error: MillraceError): boolean {
    return this.#report(error, this.#next)
  }

  /** The partition is about to go: no attempt more, and progress stops before a message that waits for one. */
  draining(lane: Lane): void {
    this.#retries.delete(lane)
  }

  /** The partition has another history, or is gone: what was known of its messages is of others. */
  dropped(lane: Lane): void {
    this.#forget(lane)
    this.#past.delete(lane)
    if (this.#attempt?.lane === lane) this.void("its partition is not read from there any more")
  }

  /** Everything that is not stored is read again. @param culprit Of whose outputs the backend has refused one */
  startAgain(
    culprit: { readonly lane: Lane; readonly message: BatchMessage; readonly error: MillraceError } | undefined,
  ): void {
    for (const [lane, { offset, attempts }] of this.#retries)
      this.#past.set(lane, { offset, attempts, error: undefined })
    this.#retries.clear()
    this.#limits.clear()
    if (culprit === undefined) return
    const { lane, message, error } = culprit
    this.#past.set(lane, { offset: message.position.offset, attempts: 1, error })
  }

  /** What the running handler answers counts no more. */
  void(why: string): void {
    const running = this.#attempt
    if (running === undefined || running.void) return
    running.void = true
    running.context.abort(new CancelledError(`${this.#settings.what}: ${why}`))
  }

  /** The running handler is left to itself. */
  giveUp(why: string): void {
    this.#attempt?.timer?.cancel()
    this.void(why)
  }

  get #next(): "stop" | "skip" | "deadLetter" {
    const { onFailure } = this.#settings
    return typeof onFailure === "string" ? onFailure : "deadLetter"
  }

  #handle(message: BatchMessage, lane: Lane, attempt: number): Promise<void> | undefined {
    const context = new AttemptContext(this.#host, message, attempt)
    let answer: unknown
    try {
      answer = this.#scope.call(context, this.#handler, message)
      if (isThenable(answer)) return this.#awaited(answer, { message, lane, context })
    } catch (thrown) {
      context.running = false
      this.#attemptFailed(message, lane, { attempt, thrown })
      return undefined
    }
    context.running = false
    this.#answered(message, lane, { attempt, answer })
    return undefined
  }

  async #awaited(
    answer: PromiseLike<unknown>,
    of: { readonly message: BatchMessage; readonly lane: Lane; readonly context: AttemptContext },
  ): Promise<void> {
    const { message, lane, context } = of
    this.#limits.set(lane, message.position.offset)
    const { batch } = this.#host
    const { clock } = this.#client
    // What came before does not wait for it for longer than it may.
    const leftMs = batch.startedMs + this.#settings.maxTransactionMs - clock.monotonicMs()
    const timer = batch.isEmpty ? undefined : clock.setTimer(Math.max(0, leftMs), () => this.#host.overdue())
    const running: Attempt = { lane, context, timer, void: false }
    this.#attempt = running
    let value: unknown
    let failed: { readonly thrown: unknown } | undefined
    try {
      value = await answer
    } catch (thrown) {
      failed = { thrown }
    }
    timer?.cancel()
    context.running = false
    this.#attempt = undefined
    this.#limits.delete(lane)
    if (running.void || this.#host.isAborted) {
      this.#host.left()
      return
    }
    const { attempt } = context
    if (failed === undefined) this.#answered(message, lane, { attempt, answer: value })
    else this.#attemptFailed(message, lane, { attempt, thrown: failed.thrown })
  }

  #answered(message: BatchMessage, lane: Lane, of: { readonly attempt: number; readonly answer: unknown }): void {
    const { answer, attempt } = of
    const batch = this.#begun()
    if (answer !== undefined) {
      const { length } = batch.outputs
      const { bytes } = batch
      try {
        if (Array.isArray(answer)) for (const one of answer) this.#put(one, message, lane)
        else this.#put(answer, message, lane)
      } catch (thrown) {
        batch.truncate(length, bytes)
        this.#attemptFailed(message, lane, { attempt, thrown })
        return
      }
    }
    batch.took(lane)
  }

  #put(answer: unknown, message: BatchMessage, lane: Lane): void {
    const { record, to } = this.#outputs.prepare(answer)
    const { batch } = this.#host
    batch.outputs.push({ lane, message, record, to, burial: undefined })
    batch.bytes += record instanceof Uint8Array ? record.length : (record.payload?.length ?? 0)
  }

  /** The batch; its time begins with its first message. */
  #begun(): ProcessBatch {
    const { batch } = this.#host
    if (batch.isEmpty) batch.startedMs = this.#client.clock.monotonicMs()
    return batch
  }

  #attemptFailed(message: BatchMessage, lane: Lane, of: { readonly attempt: number; readonly thrown: unknown }): void {
    const { attempt, thrown } = of
    const { retry, what } = this.#settings
    const { offset } = message.position
    const place = { ...lane.partition, offset }
    const error = handlerFailure(what, place, { attempt, attempts: retry.attempts, thrown })
    const delayMs = retryDelayMs(retry, attempt, thrown)
    if (delayMs === undefined) {
      this.last(message, lane, { attempts: attempt, thrown, error, content: "message" })
      return
    }
    this.#limits.set(lane, offset)
    // No attempt more where another member reads on: that gets the message again.
    const again = !this.#host.isStopping && !lane.draining
    if (!this.#report(error, again ? "retry" : "stop") || !again) return
    const { clock, random } = this.#client
    const dueMs = clock.monotonicMs() + jittered(delayMs, random)
    this.#host.hold(lane)
    this.#retries.set(lane, { message, offset, attempts: attempt, dueMs })
  }

  #report(error: MillraceError, next: "retry" | "skip" | "deadLetter" | "stop"): boolean {
    return tellObserved(
      () => this.#settings.onError?.(error, next),
      (thrown) => this.#host.fail(thrown),
    )
  }

  #forget(lane: Lane): void {
    if (this.#retries.delete(lane)) this.#host.free(lane)
    if (this.#attempt?.lane !== lane) this.#limits.delete(lane)
  }

  #pastOf(lane: Lane, message: BatchMessage): Past | undefined {
    const past = this.#past.get(lane)
    if (past === undefined) return undefined
    const { offset } = message.position
    if (offset >= past.offset) this.#past.delete(lane)
    return offset === past.offset ? past : undefined
  }
}
