/** W3C Trace Context in record headers: `traceparent` and `tracestate` (https://www.w3.org/TR/trace-context/). */
import { Headers, HeaderValue, type Manifest } from "@millrace/contract"

/** Which span a record was sent in: the two headers as they stand, for `propagation.extract` of `@opentelemetry/api` and its like. */
export interface TraceContext {
  readonly traceparent: string
  readonly tracestate?: string
}

const parentName = "traceparent"
const stateName = "tracestate"

/** Version, trace id, span id and flags. What a later version puts behind them is let through. */
const parentPattern = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:$|-)/

/**
 * The trace context that a record carries.
 * @returns `undefined` without a `traceparent`, or with one that is malformed.
 */
export function traceContextOf(headers: Headers): TraceContext | undefined {
  if (headers.size === 0) return undefined
  const traceparent = textOf(headers, parentName)
  if (traceparent === undefined || !parentPattern.test(traceparent)) return undefined
  if (traceparent.startsWith("00") && traceparent.length !== 55) return undefined
  const tracestate = textOf(headers, stateName)
  return tracestate === undefined || tracestate === "" ? { traceparent } : { traceparent, tracestate }
}

/**
 * Headers with the trace context behind them. What the caller gave is never overwritten: headers with either name stay as they are.
 * So do headers that would pass a limit of the backend with it; a `tracestate` that is too long alone is left out.
 */
export function withTraceContext(headers: Headers, context: TraceContext, limits: Manifest["limits"]): Headers {
  if (headers.has(parentName) || headers.has(stateName)) return headers
  const { traceparent, tracestate } = context
  const roomBytes = limits.headersBytes - (headers.size === 0 ? 0 : bytesOf(headers))
  const parentBytes = parentName.length + traceparent.length + entryOverheadBytes
  if (parentBytes > roomBytes || traceparent.length > limits.headerValueBytes) return headers
  const added: [string, HeaderValue][] = [[parentName, HeaderValue.string(traceparent)]]
  if (tracestate !== undefined && tracestate !== "" && tracestate.length <= limits.headerValueBytes) {
    const stateBytes = stateName.length + tracestate.length + entryOverheadBytes
    if (parentBytes + stateBytes <= roomBytes) added.push([stateName, HeaderValue.string(tracestate)])
  }
  return headers.size === 0 ? Headers.ofStored(added) : Headers.ofStored([...headers, ...added])
}

/** Reckoned for a name and a value beside their bytes: no backend takes more. */
const entryOverheadBytes = 16

function bytesOf(headers: Headers): number {
  let bytes = 0
  for (const [name, value] of headers) bytes += Buffer.byteLength(name) + value.bytes.length + entryOverheadBytes
  return bytes
}

/** Other clients may have sent the header as bare bytes. */
function textOf(headers: Headers, name: string): string | undefined {
  const value = headers.get(name)
  if (value === undefined || (value.kind !== "string" && value.kind !== "raw")) return undefined
  return new TextDecoder().decode(value.bytes)
}
