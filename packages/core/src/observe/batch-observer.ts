import type { AppendResult, MillraceError, TopicName, WireRecord } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { type BatchEvent, diagnostics } from "./diagnostics.ts"
import { mostLinks, type SendSpan, type Telemetry } from "./telemetry.ts"
import { type TraceContext, traceContextOf } from "./trace-context.ts"

/** What an observer has to know of a batch. */
export interface ObservableBatch {
  readonly partition: number
  /** Final once it is on its way. */
  readonly count: number
  /** The attempt that it is in, from 1; 0 before the first. The observer counts. */
  attempt: number
  /** When the first attempt began, on the monotonic clock. */
  firstSentMs: number
  /** What the last attempt failed with. */
  readonly lastError: MillraceError | undefined
  /** The observer's own. */
  observed: ObservedBatch | undefined
}

/** What is known of one batch from its first record to its end; made only where somebody looks. */
export interface ObservedBatch {
  /** Contexts of its records, by `traceparent`. */
  readonly links: Map<string, TraceContext>
  span: SendSpan | undefined
}

/**
 * Tells of the batches of one topic as they go: on the diagnostics channels, and in spans of their own where no call has one. Costs a
 * few looks a batch while nobody listens.
 */
export class BatchObserver {
  readonly #name: TopicName
  readonly #clock: Clock
  readonly #telemetry: Telemetry | undefined
  /** Whether batches have spans, and `joined` wants to know of records. */
  readonly links: boolean

  /** @param telemetry With `batches`, each batch has a span; otherwise its calls have. */
  constructor(
    name: TopicName,
    clock: Clock,
    telemetry: { readonly to: Telemetry | undefined; readonly batches: boolean },
  ) {
    this.#name = name
    this.#clock = clock
    this.#telemetry = telemetry.to
    this.links = telemetry.to !== undefined && telemetry.batches
  }

  /** A record is in the batch: its context will be one of the span's links. */
  joined(batch: ObservableBatch, record: WireRecord): void {
    const context = traceContextOf(record.headers)
    if (context === undefined) return
    const { links } = observe(batch)
    if (links.size < mostLinks) links.set(context.traceparent, context)
  }

  /** An attempt begins, the `attempt`-th. */
  sending(batch: ObservableBatch, attempt: number): void {
    const isFirst = batch.attempt === 0
    batch.attempt = attempt
    if (isFirst) {
      batch.firstSentMs = this.#clock.monotonicMs()
      if (this.links) this.#begin(batch)
    }
    if (attempt === 1) return
    this.#telemetry?.resent(this.#name)
    const retried = diagnostics["producer.batch.retried"]
    if (retried.hasSubscribers) retried.publish({ ...this.#event(batch), error: batch.lastError })
  }

  /** The batch is stored. */
  confirmed(batch: ObservableBatch, result: AppendResult): void {
    batch.observed?.span?.end({ attempted: true })
    batch.observed = undefined
    const sent = diagnostics["producer.batch.sent"]
    if (!sent.hasSubscribers) return
    sent.publish({
      ...this.#event(batch),
      durationMs: this.#clock.monotonicMs() - batch.firstSentMs,
      baseOffset: result.contiguous ? result.base : undefined,
      duplicates: result.duplicates,
    })
  }

  /** The batch was given up. */
  failed(batch: ObservableBatch, error: MillraceError): void {
    const { observed } = batch
    batch.observed = undefined
    observed?.span?.end({ attempted: batch.attempt > 0, error })
    const failed = diagnostics["producer.batch.failed"]
    if (failed.hasSubscribers) failed.publish({ ...this.#event(batch), error })
  }

  /** The batch ends without an outcome of its own: its records go on in others, which link to the same contexts and count them. */
  replaced(batch: ObservableBatch, by: readonly ObservableBatch[]): void {
    const { observed, lastError } = batch
    if (observed === undefined) return
    batch.observed = undefined
    observed.span?.end({ attempted: false, ...(lastError === undefined ? {} : { error: lastError }) })
    for (const next of by) {
      const { links } = observe(next)
      for (const [traceparent, context] of observed.links) links.set(traceparent, context)
    }
  }

  #begin(batch: ObservableBatch): void {
    const { partition, count } = batch
    const observed = observe(batch)
    const links = [...observed.links.values()]
    observed.span = this.#telemetry?.batch(this.#name, { records: count, partition, links })
  }

  #event({ partition, count, attempt }: ObservableBatch): BatchEvent {
    const { stream, topic } = this.#name
    return { stream, topic, partition, records: count, attempt }
  }
}

function observe(batch: ObservableBatch): ObservedBatch {
  batch.observed ??= { links: new Map(), span: undefined }
  return batch.observed
}
