/**
 * Sends as OpenTelemetry sees them: spans and metrics by the semantic conventions for messaging (opentelemetry.io/docs/specs/semconv/
 * messaging, as of v1.43: status "development"). Over `@opentelemetry/api` alone: what is done with them is the program's SDK's.
 */
import type { TopicName } from "@millrace/contract"
import type { Sending, SendOutcome, SendSpan, Telemetry, TraceContext } from "@millrace/core"
import type { Clock } from "@millrace/runtime"
import type {
  Attributes,
  Counter,
  Histogram,
  Link,
  Span,
  SpanContext,
  SpanOptions,
  TraceAPI,
  Tracer,
} from "@opentelemetry/api"

/** The module `@opentelemetry/api`. */
export type OpenTelemetryApi = typeof import("@opentelemetry/api")

/** What the connection is, in the conventions' words. */
export interface MessagingSystem {
  /** `messaging.system`. */
  readonly name: string
  /** `server.address` and `server.port`; absent for a log in this process, and where a cluster is known by several. */
  readonly server?: { readonly host: string; readonly port?: number }
}

/** The program's `@opentelemetry/api`, or `undefined` where it is not installed. */
export function loadOpenTelemetry(): Promise<OpenTelemetryApi | undefined> {
  // The rejection is handled where it stands, so that bundlers take the package for an optional one.
  return import("@opentelemetry/api").then((api) => api, absent)
}

/**
 * Spans and metrics of one client.
 * @returns `undefined` when neither a tracer nor a meter is registered by now: then nothing is measured at all.
 */
export function openTelemetry(api: OpenTelemetryApi, system: MessagingSystem, clock: Clock): Telemetry | undefined {
  return hasTracer(api) || hasMeter(api) ? new OpenTelemetry(api, system, clock) : undefined
}

/** The buckets that the conventions ask for, in seconds. */
const durationBuckets = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]

const operation = { "messaging.operation.name": "send", "messaging.operation.type": "send" } as const

class OpenTelemetry implements Telemetry {
  readonly #api: OpenTelemetryApi
  readonly #clock: Clock
  readonly #common: Attributes
  readonly #tracer: Tracer
  readonly #sent: Counter
  readonly #duration: Histogram
  readonly #resends: Counter
  readonly #known = new WeakMap<TopicName, Destination>()

  constructor(api: OpenTelemetryApi, system: MessagingSystem, clock: Clock) {
    this.#api = api
    this.#clock = clock
    this.#common = { "messaging.system": system.name, ...operation, ...serverAttributes(system.server) }
    this.#tracer = api.trace.getTracer("millrace")
    const meter = api.metrics.getMeter("millrace")
    this.#sent = meter.createCounter("messaging.client.sent.messages", {
      unit: "{message}",
      description: "Number of messages producer attempted to send to the broker.",
    })
    this.#duration = meter.createHistogram("messaging.client.operation.duration", {
      unit: "s",
      description: "Duration of messaging operation initiated by a producer or consumer client.",
      advice: { explicitBucketBoundaries: durationBuckets },
    })
    this.#resends = meter.createCounter("millrace.producer.resends", {
      unit: "{batch}",
      description: "Number of batches that were sent again after a failed attempt.",
    })
  }

  call(topic: TopicName, sending: Sending): SendSpan {
    return this.#begin(topic, sending, { kind: this.#api.SpanKind.PRODUCER })
  }

  batch(topic: TopicName, sending: Sending): SendSpan {
    // By the conventions a span whose context is not what the messages carry is a client's.
    return this.#begin(topic, sending, { kind: this.#api.SpanKind.CLIENT, root: true })
  }

  active(): TraceContext | undefined {
    const { trace, context } = this.#api
    try {
      const active = trace.getSpanContext(context.active())
      return active === undefined ? undefined : carried(trace, active)
    } catch (error) {
      tellFailure(this.#api, error)
      return undefined
    }
  }

  resent(topic: TopicName): void {
    try {
      this.#resends.add(1, this.#destination(topic).attributes)
    } catch (error) {
      tellFailure(this.#api, error)
    }
  }

  #begin(topic: TopicName, sending: Sending, how: SpanOptions): SendSpan {
    try {
      const destination = this.#destination(topic)
      const attributes = spanAttributes(destination, sending)
      const links = this.#links(sending.links)
      const span = this.#tracer.startSpan(destination.spanName, { ...how, attributes, links })
      return this.#spanOf(span, destination, sending)
    } catch (error) {
      tellFailure(this.#api, error)
      return noSpan
    }
  }

  #spanOf(span: Span, destination: Destination, sending: Sending): SendSpan {
    return new OpenSpan(span, {
      api: this.#api,
      destination,
      sending,
      context: carried(this.#api.trace, span.spanContext()),
      errorStatus: this.#api.SpanStatusCode.ERROR,
      clock: this.#clock,
      sent: this.#sent,
      duration: this.#duration,
    })
  }

  #destination(topic: TopicName): Destination {
    let known = this.#known.get(topic)
    if (known === undefined) {
      const name = topic.stream === "" ? topic.topic : `${topic.stream}/${topic.topic}`
      known = { spanName: `send ${name}`, attributes: { ...this.#common, "messaging.destination.name": name } }
      this.#known.set(topic, known)
    }
    return known
  }

  #links(contexts: readonly TraceContext[]): Link[] {
    return contexts.map(({ traceparent, tracestate }) => {
      const [, traceId, spanId, flags] = traceparent.split("-") as [string, string, string, string]
      const context: SpanContext = { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true }
      if (tracestate !== undefined) context.traceState = this.#api.createTraceState(tracestate)
      return { context }
    })
  }
}

interface Destination {
  readonly spanName: string
  readonly attributes: Attributes
}

interface SpanParts {
  readonly api: OpenTelemetryApi
  readonly destination: Destination
  readonly sending: Sending
  readonly context: TraceContext | undefined
  readonly errorStatus: number
  readonly clock: Clock
  readonly sent: Counter
  readonly duration: Histogram
}

class OpenSpan implements SendSpan {
  readonly context: TraceContext | undefined
  readonly #span: Span
  readonly #parts: SpanParts
  readonly #startedMs: number

  constructor(span: Span, parts: SpanParts) {
    this.#span = span
    this.#parts = parts
    this.context = parts.context
    this.#startedMs = parts.clock.monotonicMs()
  }

  end(outcome: SendOutcome): void {
    try {
      this.#end(outcome)
    } catch (error) {
      tellFailure(this.#parts.api, error)
    }
  }

  #end({ partition, error, attempted }: SendOutcome): void {
    const { destination, sending, clock, sent, duration } = this.#parts
    const attributes: Attributes = { ...destination.attributes }
    const where = partition ?? sending.partition
    if (where !== undefined) attributes["messaging.destination.partition.id"] = String(where)
    if (error !== undefined) {
      attributes["error.type"] = error.kind
      this.#span.setStatus({ code: this.#parts.errorStatus, message: error.message })
    }
    this.#span.setAttributes(attributes)
    this.#span.end()
    duration.record((clock.monotonicMs() - this.#startedMs) / 1000, attributes)
    if (attempted) sent.add(sending.records, attributes)
  }
}

function spanAttributes({ attributes }: Destination, { records }: Sending): Attributes {
  return records === 1 ? attributes : { ...attributes, "messaging.batch.message_count": records }
}

function serverAttributes(server: MessagingSystem["server"]): Attributes {
  if (server === undefined) return {}
  const { host, port } = server
  return { "server.address": host, ...(port === undefined ? {} : { "server.port": port }) }
}

/** Stands for a span that the program's SDK did not give. */
const noSpan: SendSpan = { context: undefined, end() {} }

/** A fault of the program's SDK, or of a span processor in it, is no send's concern: it goes where OpenTelemetry tells its own. */
function tellFailure(api: OpenTelemetryApi, error: unknown): void {
  api.diag.error("millrace: a send was not traced or measured", error)
}

/** W3C Trace Context, version 00. */
function carried(trace: TraceAPI, context: SpanContext): TraceContext | undefined {
  if (!trace.isSpanContextValid(context)) return undefined
  const flags = (context.traceFlags & 0xff).toString(16).padStart(2, "0")
  const traceparent = `00-${context.traceId}-${context.spanId}-${flags}`
  const tracestate = context.traceState?.serialize()
  return tracestate === undefined || tracestate === "" ? { traceparent } : { traceparent, tracestate }
}

/** The provider that stands in for a missing one has nobody behind it. */
function hasTracer({ trace, ProxyTracerProvider }: OpenTelemetryApi): boolean {
  const provider = trace.getTracerProvider()
  return !(provider instanceof ProxyTracerProvider) || provider.getDelegateTracer("millrace") !== undefined
}

function hasMeter({ metrics, createNoopMeter }: OpenTelemetryApi): boolean {
  return metrics.getMeter("millrace") !== createNoopMeter()
}

/** @throws when the package is there but does not load */
function absent(cause: unknown): undefined {
  const { code, message = "" } = cause as NodeJS.ErrnoException
  const isMissing = code === "ERR_MODULE_NOT_FOUND" || code === "MODULE_NOT_FOUND"
  if (!isMissing || !message.includes("@opentelemetry/api")) throw cause
  return undefined
}
