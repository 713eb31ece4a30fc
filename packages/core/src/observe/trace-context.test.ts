/** W3C Trace Context in headers: what is read, what is added, and what is left alone. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { Headers, HeaderValue } from "@millrace/contract"
import { fakeManifest } from "../producer/fake-backend.test-support.ts"
import { traceContextOf, withTraceContext } from "./trace-context.ts"

const { limits } = fakeManifest()
/** The example of the recommendation, section 3.2.2.5. */
const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
const other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"

test("headers of W3C are read, as text and as bytes", () => {
  assert.deepEqual(traceContextOf(Headers.from({ traceparent })), { traceparent })
  assert.deepEqual(traceContextOf(Headers.from({ traceparent, tracestate: "rojo=1,congo=2" })), {
    traceparent,
    tracestate: "rojo=1,congo=2",
  })
  const raw = HeaderValue.raw(new TextEncoder().encode(traceparent))
  assert.deepEqual(traceContextOf(Headers.from({ traceparent: raw })), { traceparent })
})

test("a later version may be longer, and the present one must not", () => {
  const later = `cc${traceparent.slice(2)}-what-the-future-will-be-like`
  assert.deepEqual(traceContextOf(Headers.from({ traceparent: later })), { traceparent: later })
  assert.equal(traceContextOf(Headers.from({ traceparent: `${traceparent}-more` })), undefined)
})

test("what is malformed counts as absent", () => {
  for (const wrong of [
    "",
    "00",
    traceparent.toUpperCase(),
    traceparent.slice(1),
    `ff${traceparent.slice(2)}`,
    `00-${"0".repeat(32)}-00f067aa0ba902b7-01`,
    `00-4bf92f3577b34da6a3ce929d0e0e4736-${"0".repeat(16)}-01`,
    `${traceparent}1`,
    ` ${traceparent}`,
  ]) {
    assert.equal(traceContextOf(Headers.from([["traceparent", wrong]])), undefined, wrong)
  }
  assert.equal(traceContextOf(Headers.from({ tracestate: "a=1" })), undefined)
  assert.equal(traceContextOf(Headers.from({ traceparent: HeaderValue.int32(5) })), undefined)
  assert.equal(traceContextOf(Headers.empty), undefined)
})

test("the context goes behind the caller's headers, and never over them", () => {
  const added = withTraceContext(Headers.from({ a: "1" }), { traceparent, tracestate: "x=1" }, limits)
  assert.deepEqual(
    [...added].map(([name, value]) => [name, value.value]),
    [
      ["a", "1"],
      ["traceparent", traceparent],
      ["tracestate", "x=1"],
    ],
  )
  for (const own of [{ traceparent: other }, { tracestate: "mine=1" }]) {
    const given = Headers.from(own)
    assert.equal(withTraceContext(given, { traceparent, tracestate: "x=1" }, limits), given)
  }
})

test("what does not fit is left out, and keeps no record from being sent", () => {
  const long = `a=${"b".repeat(limits.headerValueBytes - 1)}`
  const added = withTraceContext(Headers.empty, { traceparent, tracestate: long }, limits)
  assert.deepEqual(traceContextOf(added), { traceparent })
  const full = Headers.from({ big: "x".repeat(limits.headersBytes - 80) })
  assert.equal(withTraceContext(full, { traceparent }, limits), full)
  const narrow = { ...limits, headerValueBytes: 50 }
  assert.equal(withTraceContext(Headers.empty, { traceparent }, narrow).size, 0)
})
