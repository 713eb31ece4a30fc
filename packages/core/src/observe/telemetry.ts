/**
 * What the core tells a tracing and metrics system. Absent when there is none: whoever sends looks once, and does no more. The adapter
 * to OpenTelemetry is in `millrace`; names and attributes are its business.
 */
import type { MillraceError, TopicName } from "@millrace/contract"
import type { TraceContext } from "./trace-context.ts"

/** What a producer reports its work to. No method throws. */
export interface Telemetry {
  /**
   * A call begins that waits for its confirmation. Its span is a child of the code's own that calls now, and its context is what the
   * records carry, unless they carry another already.
   */
  call(topic: TopicName, sending: Sending): SendSpan
  /** A batch of a background producer begins; nobody waits for it, so its span has no parent and links to what its records carry. */
  batch(topic: TopicName, sending: Sending): SendSpan
  /** The context of the code that runs now, for records that are accepted in the background; `undefined` outside of any span. */
  active(): TraceContext | undefined
  /** One batch went out again. */
  resent(topic: TopicName): void
}

/** What is sent in a span. */
export interface Sending {
  readonly records: number
  /** Absent when it is not known, or not one. */
  readonly partition?: number
  /** Contexts that records came with: see `linksOf`. */
  readonly links: readonly TraceContext[]
}

/** The span of one call or batch. `end` is called once. */
export interface SendSpan {
  /** `undefined` when nothing records or propagates it. */
  readonly context: TraceContext | undefined
  end(outcome: SendOutcome): void
}

/** How a span ended. */
export interface SendOutcome {
  /** Whether any of it was handed to the backend. */
  readonly attempted: boolean
  /** Where it went, when that is one. */
  readonly partition?: number
  /** Absent when all was confirmed. */
  readonly error?: MillraceError
}

/** A span keeps at most so many links: the limit that OpenTelemetry's SDKs set by default. */
export const mostLinks: number = 128
