/** Records that carry the trace context of whoever sent them. */
import { Headers, type HeadersInit, type Manifest } from "@millrace/contract"
import type { SendableRecord } from "../record/outgoing-record.ts"
import { mostLinks, type Telemetry } from "./telemetry.ts"
import { type TraceContext, traceContextOf, withTraceContext } from "./trace-context.ts"

type Limits = Manifest["limits"]

/**
 * A record for the background, with the context of the code that runs now: by the time it is sent, that code has gone on. The record
 * itself where nothing is traced, or where it carries a context already.
 */
export function carryingActive(
  telemetry: Telemetry | undefined,
  record: SendableRecord,
  limits: Limits,
): SendableRecord {
  if (telemetry === undefined) return record
  const context = telemetry.active()
  return context === undefined ? record : carrying(record, context, limits)
}

/** The same for the records of one call. */
export function allCarryingActive(
  telemetry: Telemetry | undefined,
  records: readonly SendableRecord[],
  limits: Limits,
): readonly SendableRecord[] {
  if (telemetry === undefined) return records
  const context = telemetry.active()
  return context === undefined ? records : allCarrying(records, context, limits)
}

/** The same for headers of a record that is still to be made. */
export function headersCarryingActive(
  telemetry: Telemetry | undefined,
  headers: HeadersInit | undefined,
  limits: Limits,
): HeadersInit | undefined {
  const context = telemetry?.active()
  return context === undefined ? headers : withTraceContext(Headers.from(headers), context, limits)
}

/** Records with this context, but for those that carry one already. Records without headers share theirs. */
export function allCarrying(
  records: readonly SendableRecord[],
  context: TraceContext,
  limits: Limits,
): readonly SendableRecord[] {
  const alone = withTraceContext(Headers.empty, context, limits)
  return records.map((record) => withHeaders(record, headersFor(record, alone, { context, limits })))
}

/** Contexts that records carry already, in their order, each once; at most as many as a span can link to. */
export function linksOf(records: readonly SendableRecord[]): TraceContext[] {
  const links = new Map<string, TraceContext>()
  for (const record of records) {
    if (links.size === mostLinks) break
    if (record instanceof Uint8Array) continue
    const context = traceContextOf(record.headers)
    if (context !== undefined) links.set(context.traceparent, context)
  }
  return [...links.values()]
}

function carrying(record: SendableRecord, context: TraceContext, limits: Limits): SendableRecord {
  const headers = record instanceof Uint8Array ? Headers.empty : record.headers
  return withHeaders(record, withTraceContext(headers, context, limits))
}

function headersFor(
  record: SendableRecord,
  alone: Headers,
  { context, limits }: { readonly context: TraceContext; readonly limits: Limits },
): Headers {
  if (record instanceof Uint8Array || record.headers.size === 0) return alone
  return withTraceContext(record.headers, context, limits)
}

function withHeaders(record: SendableRecord, headers: Headers): SendableRecord {
  if (record instanceof Uint8Array) {
    if (headers.size === 0) return record
    return { payload: record, key: null, headers, id: undefined, timestampMicros: undefined, partition: -1 }
  }
  return headers === record.headers ? record : { ...record, headers }
}
