import type { MillraceError, QueueSpec } from "@millrace/contract"
import type { HandlerContext } from "../handler/handler-context.ts"
import type { Position } from "../record/message.ts"
import type { IntervalSet } from "./interval-set.ts"
import type { QueueMessage } from "./queue-message.ts"

/**
 * What `process` and its relatives call. May be async; what it throws or rejects with is the failure.
 * @typeParam M The messages: of a typed topic's queue they have values.
 */
export type QueueHandler<R, M extends QueueMessage = QueueMessage> = (message: M, context: HandlerContext) => R

/** Options of `pull`. */
export interface PullOptions {
  /** The most messages, 1 to 10,000. Default 1. */
  readonly max?: number
  /** How long it waits for the first, in ms; 0 takes what has come already or answers at once. Default: for ever. */
  readonly maxWaitMs?: number
  /** A call that waits rejects with CancelledError when it fires. */
  readonly signal?: AbortSignal
}

/** Options of `run` on a queue. How often a message is tried is the queue's `maxDeliver`. */
export interface QueueRunOptions {
  /** The most handlers that run at the same time, 1 to 10,000; 1 under `ackPolicy: "all"`. Default 1. */
  readonly concurrency?: number
  /**
   * The delay of the nak behind a first delivery that failed, in ms; it doubles with each. Half of each is random. Default 100. A queue with
   * `backoffMs` has its waits instead.
   */
  readonly backoffMs?: number
  /** The longest delay, in ms. Default 30,000. */
  readonly maxBackoffMs?: number
  /**
   * Told of each delivery that failed, and of what comes next: `retry` it is handed out again, `deadLetter`, or `terminate` where there is
   * no dead-letter topic. When it throws, the run stops with what it threw.
   */
  readonly onError?: (error: MillraceError, next: "retry" | "deadLetter" | "terminate") => void
  /** How long running handlers get to finish once the signal fired, in ms. Default 30,000. */
  readonly drainTimeoutMs?: number
  /** Ends the run with CancelledError once the running handlers have finished. */
  readonly signal?: AbortSignal
}

/** What a queue consumer tells. A listener that throws fails the next call. */
export interface QueueConsumerEvents {
  /** The deliveries of a message were used up, or it was terminated: it is in the dead-letter topic, or given up where there is none. */
  exhausted(end: Exhaustion): void
  /**
   * A message was not handed over, because its wait was over, or nearly, while it lay in the buffer: it comes again, here or elsewhere.
   */
  dropped(drop: QueueDrop): void
  /** A handler failed, a record did not decrypt, or a request of the consumer's own failed: an ack behind a handler, a longer wait. */
  failed(error: MillraceError): void
  /** A handler was done, and its ack came too late: the message was another delivery's by then. It may be handled twice. */
  late(position: Position): void
}

/** A message that comes no more though it is not done. */
export interface Exhaustion {
  readonly position: Position
  readonly deliveries: number
  /** Whether it is in the dead-letter topic. */
  readonly deadLetter: boolean
  /** Why: the reason of a termination, what a handler failed with, or that its deliveries are used up. */
  readonly reason: string
}

export interface QueueDrop {
  readonly position: Position
  readonly deliveries: number
}

/** What a queue consumer has done since it was opened. */
export interface QueueConsumerStatistics {
  /** Deliveries that came from the queue. */
  readonly received: number
  /** Lie in the buffer. */
  readonly buffered: number
  /** How many messages it reads ahead at present. */
  readonly prefetch: number
  /** Messages that a handler has. */
  readonly running: number
  /** Not handed over, since their wait was over or nearly. */
  readonly dropped: number
  /** Given back unhandled, because nobody took them or the consumer ended. */
  readonly released: number
  /** How often the wait of a message was begun anew by the consumer. */
  readonly extended: number
  /** Skipped and acknowledged, since the dedupe window had them. */
  readonly skipped: number
  /** Handlers that failed, and records that did not decrypt. */
  readonly failed: number
  /** Acks behind a handler that came too late. */
  readonly late: number
  /** Came to an end without being done: in the dead-letter topic, or given up. */
  readonly exhausted: number
}

/**
 * One taker of a work queue (`topic.queue(name).consumer()`). Several calls may wait at the same time; they are served in order. Each
 * rejects with NotFoundError when the queue or the topic is gone, and with what else the backend refuses for good; a connection that is
 * lost is waited for.
 *
 * The verbs with a handler (`process`, `processWithin`, `processBatch`, `run`) acknowledge what was handled, extend its wait while the
 * handler runs, and keep the dedupe window. What `pull` and the iterator give is the caller's to settle, and nothing is extended.
 *
 * @typeParam M The messages: of a typed topic's queue they have values.
 */
export interface QueueConsumer<M extends QueueMessage = QueueMessage> extends AsyncIterable<M>, AsyncDisposable {
  /** How errors call it. */
  readonly what: string
  /** What the queue was made with. */
  readonly spec: QueueSpec
  /**
   * What there is, as soon as there is anything: 1 to `max` messages, or none when `maxWaitMs` is over first.
   * @throws InvalidError for an option, CancelledError, ClosedError; DecodeError for one that does not decrypt, TypedDecodeError for one
   *   that does not decode: it has failed like one whose handler has
   */
  pull(options?: PullOptions): Promise<M[]>
  /**
   * Waits for a message, handles it and acknowledges it. One that is in the dedupe window already is acknowledged and skipped. When the
   * handler fails the message is neither acknowledged nor marked: it is handed out again after a delay (`nakOnError`).
   * @returns what the handler returned
   * @throws what the handler threw; what the ack failed with (the message is marked even so); ClosedError
   */
  process<R>(handler: QueueHandler<R, M>): Promise<Awaited<R>>
  /** The same, for a message that comes within `timeoutMs`: a handler may take longer. @throws TimeoutError; else as `process` */
  processWithin<R>(timeoutMs: number, handler: QueueHandler<R, M>): Promise<Awaited<R>>
  /**
   * Waits for a first message and handles it and up to `size` − 1 more, one after the other, as far as they are there or come within
   * `batchTimeoutMs` of the first. Ends at the first that fails, as the last item of the answer, and neither acknowledges that one nor
   * takes those behind it. Under `ackPolicy: "all"` one ack for each partition covers all that were handled. When an ack fails, its error is
   * the last item.
   * @param size 1 to 100,000.
   */
  processBatch<R>(size: number, handler: QueueHandler<R, M>): Promise<PromiseSettledResult<Awaited<R>>[]>
  /**
   * Handles messages until the consumer is shut down, the signal fires, or a handler calls `context.stop()`. What fails is naked with a
   * delay that grows; when its deliveries are used up, or the failure says `retryable: false` and there is a dead-letter topic, it goes
   * there, or is terminated where there is none.
   * @throws CancelledError for its signal, and for the consumer's; what `onError` threw; why a dead letter could not be stored; else as every call
   */
  run(handler: QueueHandler<unknown, M>, options?: QueueRunOptions): Promise<void>
  /** What the handlers of this consumer have processed. In memory, of this consumer alone. */
  readonly dedupeWindow: IntervalSet
  readonly statistics: QueueConsumerStatistics
  /** Tells what happens. Disposing the answer ends it. */
  on(listener: Partial<QueueConsumerEvents>): Disposable
  /**
   * Takes no more, waits for running handlers, sends the acknowledgements that are under way, and gives back what was not handed out. What
   * `pull` gave and nobody settled comes again when its wait is over. The second call awaits the first.
   * @param options.timeoutMs How long handlers and requests get. Default 5000.
   * @throws TimeoutError when they take longer: their signals fire, and their messages come again; everything is released even so
   */
  shutdown(options?: { readonly timeoutMs?: number }): Promise<void>
}
