/** Spans and metrics of sends with OpenTelemetry's own SDK, over the embedded log; names by the semantic conventions for messaging. */
import assert from "node:assert/strict"
import { after, afterEach, test } from "node:test"
import { systemClock } from "@millrace/runtime"
import * as api from "@opentelemetry/api"
import { context, metrics, type Span, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api"
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks"
import {
  AggregationTemporality,
  type Histogram,
  InMemoryMetricExporter,
  MeterProvider,
  type MetricData,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics"
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SamplingDecision,
  SimpleSpanProcessor,
  type SpanProcessor,
} from "@opentelemetry/sdk-trace-base"
import { type Client, connect, type Message, type Topic, traceContextOf } from "./index.ts"
import { openTelemetry } from "./open-telemetry.ts"

test("where nobody collects, nothing is measured", async () => {
  assert.equal(openTelemetry(api, { name: "millrace" }, systemClock), undefined)
  const client = await connect("memory:")
  const { topic, read } = await opened(client)
  await topic.producer().send(bytes)
  assert.equal((await read(1))[0]?.headers.size, 0)
  await client.close()
})

const spans = new InMemorySpanExporter()
const measured = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
const reader = new PeriodicExportingMetricReader({ exporter: measured, exportIntervalMillis: 3_600_000 })
const meters = new MeterProvider({ readers: [reader] })
let isSampled = true
let faultAt: "start" | "end" | undefined

/** A span processor of the program's that fails, when the test says so. */
const faulty: SpanProcessor = {
  onStart: () => failAt("start"),
  onEnd: () => failAt("end"),
  forceFlush: async () => {},
  shutdown: async () => {},
}

function failAt(moment: "start" | "end"): void {
  if (faultAt === moment) throw new Error(`no span can ${moment}`)
}

/** Behind the first test, which must find nothing registered. */
function register(): void {
  const provider = new BasicTracerProvider({
    spanProcessors: [new SimpleSpanProcessor(spans), faulty],
    sampler: {
      shouldSample: () => ({ decision: isSampled ? SamplingDecision.RECORD_AND_SAMPLED : SamplingDecision.NOT_RECORD }),
      toString: () => "as the test says",
    },
  })
  trace.setGlobalTracerProvider(provider)
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  metrics.setGlobalMeterProvider(meters)
}

afterEach(() => {
  spans.reset()
  isSampled = true
})
after(() => meters.shutdown())

const bytes = new TextEncoder().encode("tea")
const foreign = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

interface Opened {
  readonly topic: Topic
  read(count: number): Promise<Message[]>
}

async function opened(client: Client, partitions = 1): Promise<Opened> {
  const topic = client.stream("shop").topic("orders")
  await topic.ensure(partitions)
  return {
    topic,
    async read(count) {
      await using consumer = topic.consumer(undefined, 0, { startAt: { kind: "first" } })
      const messages: Message[] = []
      while (messages.length < count) messages.push(await consumer.nextWithin(10_000))
      return messages
    },
  }
}

/** Runs within a span of the program's own. */
async function within<T>(work: (span: Span) => Promise<T>): Promise<T> {
  return await trace.getTracer("program").startActiveSpan("program", async (span) => {
    try {
      return await work(span)
    } finally {
      span.end()
    }
  })
}

function sends(): ReadableSpan[] {
  return spans.getFinishedSpans().filter(({ name }) => name.startsWith("send"))
}

function parentOf(span: Span | ReadableSpan, flags = "01"): string {
  const { traceId, spanId } = span.spanContext()
  return `00-${traceId}-${spanId}-${flags}`
}

async function metric(name: string): Promise<MetricData | undefined> {
  measured.reset()
  await meters.forceFlush()
  const all = measured.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics.flatMap((scope) => scope.metrics))
  return all.find(({ descriptor }) => descriptor.name === name)
}

test("a send is a span of the producer's kind under the caller's, and the record carries its context", async () => {
  register()
  const client = await connect("memory:")
  const { topic, read } = await opened(client)
  await using producer = topic.producer()
  const outer = await within(async (span) => {
    await producer.send(bytes, { partition: 0, headers: { own: "1" } })
    return span
  })
  const [span, ...others] = sends()
  assert.ok(span !== undefined && others.length === 0)
  assert.equal(span.name, "send shop/orders")
  assert.equal(span.kind, SpanKind.PRODUCER)
  assert.deepEqual(span.attributes, {
    "messaging.system": "millrace",
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
    "messaging.destination.name": "shop/orders",
    "messaging.destination.partition.id": "0",
  })
  assert.equal(span.parentSpanContext?.spanId, outer.spanContext().spanId)
  assert.deepEqual(span.links, [])
  assert.equal(span.status.code, SpanStatusCode.UNSET)
  const [message] = await read(1)
  assert.ok(message !== undefined)
  assert.deepEqual(traceContextOf(message.headers), { traceparent: parentOf(span) })
  assert.equal(message.headers.get("own")?.value, "1")
  await client.close()
})

test("each way of sending that is waited for has its span; a batch says how many messages it has", async () => {
  const client = await connect("memory:")
  const { topic, read } = await opened(client)
  await using producer = topic.producer()
  await producer.sendBatch([bytes, { payload: bytes, headers: { traceparent: foreign } }, bytes])
  await producer.sendAndConfirm(bytes)
  await topic.publish().payload(bytes).send()
  const [batch, single, published] = sends()
  assert.ok(batch !== undefined && single !== undefined && published !== undefined)
  assert.deepEqual(
    sends().map(({ attributes }) => attributes["messaging.batch.message_count"]),
    [3, undefined, undefined],
  )
  assert.deepEqual(
    sends().map(({ attributes }) => attributes["messaging.destination.partition.id"]),
    ["0", "0", "0"],
  )
  // What a record came with is kept, and linked to.
  const carried = (await read(5)).map(({ headers }) => traceContextOf(headers)?.traceparent)
  assert.deepEqual(carried, [parentOf(batch), foreign, parentOf(batch), parentOf(single), parentOf(published)])
  assert.deepEqual(
    batch.links.map(({ context: { traceId, spanId, isRemote } }) => [traceId, spanId, isRemote]),
    [["0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", true]],
  )
  await client.close()
})

test("a send that fails says with what, and has sent nothing that was not tried", async () => {
  const client = await connect("memory:")
  const producer = client.stream("absent").topic("t").producer({ createStream: false, createTopic: false })
  await assert.rejects(producer.send(bytes), { kind: "not-found" })
  const [span] = sends()
  assert.equal(span?.status.code, SpanStatusCode.ERROR)
  assert.match(span?.status.message ?? "", /absent\/t/)
  assert.equal(span?.attributes["error.type"], "not-found")
  const sent = await metric("messaging.client.sent.messages")
  assert.deepEqual(
    sent?.dataPoints.filter(({ attributes }) => attributes["error.type"] !== undefined),
    [],
  )
  await client.close()
})

test("what is sent in the background carries the context of its sender; its batch is a span of its own, which links to it", async () => {
  const client = await connect("memory:")
  const { topic, read } = await opened(client)
  await using producer = topic.producer({ background: { lingerMs: 1 } })
  const outer = await within(async (span) => {
    await Promise.all([producer.send(bytes), producer.send(bytes), producer.sendBatch([bytes])])
    return span
  })
  await producer.send(bytes)
  await producer.send(bytes, { headers: { traceparent: foreign } })
  await producer.flush()
  const carried = (await read(5)).map(({ headers }) => traceContextOf(headers)?.traceparent)
  const own = parentOf(outer)
  assert.deepEqual(carried, [own, own, own, undefined, foreign])
  const batches = sends()
  const counts = batches.map(({ attributes }) => Number(attributes["messaging.batch.message_count"] ?? 1))
  assert.equal(
    counts.reduce((sum, count) => sum + count, 0),
    5,
  )
  for (const span of batches) {
    assert.equal(span.kind, SpanKind.CLIENT)
    assert.equal(span.parentSpanContext, undefined)
    assert.equal(span.attributes["messaging.destination.partition.id"], "0")
  }
  const linked = new Set(batches.flatMap(({ links }) => links.map((link) => link.context.spanId)))
  assert.deepEqual(linked, new Set([outer.spanContext().spanId, "b7ad6b7169203331"]))
  await client.close()
})

test("what is not sampled is propagated as such", async () => {
  isSampled = false
  const client = await connect("memory:")
  const { topic, read } = await opened(client)
  await topic.producer().send(bytes)
  const [message] = await read(1)
  assert.match(
    traceContextOf(message?.headers ?? assert.fail())?.traceparent ?? "",
    /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/,
  )
  assert.deepEqual(sends(), [])
  await client.close()
})

test("messages and durations are counted as the conventions say", async () => {
  const client = await connect("memory:")
  const topic = client.stream("metered").topic("t")
  await using producer = topic.producer({ partitions: 2 })
  await producer.send(bytes, { partition: 1 })
  await producer.sendBatch([bytes, bytes, bytes], { partition: 1 })
  const attributes = {
    "messaging.system": "millrace",
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
    "messaging.destination.name": "metered/t",
    "messaging.destination.partition.id": "1",
  }
  const sent = await metric("messaging.client.sent.messages")
  assert.equal(sent?.descriptor.unit, "{message}")
  const point = sent?.dataPoints.find((one) => one.attributes["messaging.destination.name"] === "metered/t")
  assert.deepEqual(point?.attributes, attributes)
  assert.equal(point?.value, 4)
  const duration = await metric("messaging.client.operation.duration")
  assert.equal(duration?.descriptor.unit, "s")
  const measuredPoint = duration?.dataPoints.find((one) => one.attributes["messaging.destination.name"] === "metered/t")
  assert.deepEqual(measuredPoint?.attributes, attributes)
  assert.ok(measuredPoint !== undefined)
  const { buckets, count, sum = 0 } = measuredPoint.value as Histogram
  assert.equal(count, 2)
  const spanSeconds = sends().reduce((total, { duration: [seconds, nanos] }) => total + seconds + nanos / 1e9, 0)
  assert.ok(sum > 0 && Math.abs(sum - spanSeconds) < 0.25, `${sum} s, and ${spanSeconds} s by the spans`)
  assert.deepEqual(buckets.boundaries, [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10])
  await client.close()
})

test("a server is named by its system and its address; a topic without a stream by its bare name", () => {
  const telemetry = openTelemetry(api, { name: "kafka", server: { host: "broker-1", port: 9092 } }, systemClock)
  telemetry?.call({ stream: "", topic: "payments" }, { records: 1, links: [] }).end({ attempted: true })
  const [span] = sends()
  assert.equal(span?.name, "send payments")
  assert.deepEqual(span?.attributes, {
    "messaging.system": "kafka",
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
    "messaging.destination.name": "payments",
    "server.address": "broker-1",
    "server.port": 9092,
  })
})

test("a tracestate is carried, and comes with a link", () => {
  const state = api.createTraceState("vendor=1")
  const around = { traceId: "1".repeat(32), spanId: "2".repeat(16), traceFlags: 1, traceState: state }
  const telemetry = openTelemetry(api, { name: "nats" }, systemClock)
  assert.ok(telemetry !== undefined)
  const carried = context.with(trace.setSpanContext(api.ROOT_CONTEXT, around), () => telemetry.active())
  assert.deepEqual(carried, { traceparent: `00-${"1".repeat(32)}-${"2".repeat(16)}-01`, tracestate: "vendor=1" })
  telemetry
    .batch({ stream: "s", topic: "t" }, { records: 2, links: [carried ?? assert.fail()] })
    .end({ attempted: true })
  const [span] = sends()
  assert.equal(span?.links[0]?.context.traceState?.serialize(), "vendor=1")
  assert.equal(telemetry.active(), undefined)
})

test("a fault of the program's own tracing fails no send, and is told where OpenTelemetry tells its own", async () => {
  const told: unknown[] = []
  const silent = (): void => {}
  const logger = { error: (_: string, error: unknown) => void told.push(error), warn: silent, info: silent }
  api.diag.setLogger({ ...logger, debug: silent, verbose: silent })
  const client = await connect("memory:")
  try {
    const { topic, read } = await opened(client)
    await using direct = topic.producer()
    await using background = topic.producer({ background: true })
    for (const moment of ["start", "end"] as const) {
      faultAt = moment
      told.length = 0
      assert.equal((await direct.send(bytes)).confirmations.length, 1)
      await background.send(bytes)
      await background.flush()
      assert.deepEqual(
        told.map((error) => (error as Error).message),
        Array.from({ length: 2 }, () => `no span can ${moment}`),
      )
    }
    faultAt = undefined
    assert.equal((await read(4)).length, 4)
  } finally {
    faultAt = undefined
    api.diag.disable()
    await client.close()
  }
})
