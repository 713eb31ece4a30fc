/** What sends tell while they go: spans, links, resends and channels, over a backend whose answers the test decides. */
import assert from "node:assert/strict"
import { subscribe, unsubscribe } from "node:diagnostics_channel"
import { type TestContext, test } from "node:test"
import { ConnectionError, type MillraceError, type TopicName } from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { type Client, openClient } from "../client/client.ts"
import { ConnectionWatch } from "../client/connection-watch.ts"
import { FakeBackend } from "../producer/fake-backend.test-support.ts"
import type { ProducerOptions } from "../producer/producer-options.ts"
import { SpoolRig } from "../spool/spool-rig.test-support.ts"
import type { DiagnosticsChannels, SpoolEvent } from "./diagnostics.ts"
import type { Sending, SendOutcome, SendSpan, Telemetry } from "./telemetry.ts"
import type { TraceContext } from "./trace-context.ts"

interface Told {
  readonly kind: "call" | "batch"
  readonly sending: Sending
  outcome: SendOutcome | undefined
}

/** Keeps what it is told. */
class Listener implements Telemetry {
  readonly spans: Told[] = []
  resends = 0
  around: TraceContext | undefined

  call(_topic: TopicName, sending: Sending): SendSpan {
    return this.#span("call", sending)
  }
  batch(_topic: TopicName, sending: Sending): SendSpan {
    return this.#span("batch", sending)
  }
  active(): TraceContext | undefined {
    return this.around
  }
  resent(): void {
    this.resends++
  }

  #span(kind: Told["kind"], sending: Sending): SendSpan {
    const told: Told = { kind, sending, outcome: undefined }
    this.spans.push(told)
    return {
      context: contextOf(this.spans.length),
      end: (outcome) => {
        assert.equal(told.outcome, undefined, "a span ends once")
        told.outcome = outcome
      },
    }
  }
}

function contextOf(span: number): TraceContext {
  return { traceparent: `00-${"a".repeat(32)}-${String(span).padStart(16, "0")}-01` }
}

interface Bench {
  readonly clock: VirtualClock
  readonly backend: FakeBackend
  readonly listener: Listener
  readonly client: Client
}

function bench(): Bench {
  const clock = new VirtualClock()
  const backend = new FakeBackend(clock)
  const listener = new Listener()
  backend.create("t")
  const client = openClient(backend.session, {}, { clock, random: seededRandom(1), telemetry: listener })
  return { clock, backend, listener, client }
}

/** What a channel says during the test. */
function hear<K extends keyof DiagnosticsChannels>(t: TestContext, name: K): unknown[] {
  const heard: unknown[] = []
  const listen = (message: unknown): void => void heard.push(message)
  subscribe(`millrace:${name}`, listen)
  t.after(() => unsubscribe(`millrace:${name}`, listen))
  return heard
}

const bytes = Uint8Array.of(1, 2, 3)
const options: ProducerOptions = { retries: 2, retryBackoffMs: 10 }

test("a call has one span, however often its batch goes out; its batch has none", async (t) => {
  const { clock, backend, listener, client } = bench()
  const retried = hear(t, "producer.batch.retried")
  const sent = hear(t, "producer.batch.sent")
  const error = new ConnectionError("refused")
  backend.fate = (append) => (append < 2 ? { outcome: "refuse", error } : {})
  const sending = client.stream("s").topic("t").producer(options).send(bytes)
  await clock.advance(100)
  await sending
  assert.deepEqual(listener.spans, [
    { kind: "call", sending: { records: 1, links: [] }, outcome: { attempted: true, partition: 0 } },
  ])
  assert.equal(listener.resends, 2)
  const place = { stream: "s", topic: "t", partition: 0, records: 1 }
  assert.deepEqual(retried, [
    { ...place, attempt: 2, error },
    { ...place, attempt: 3, error },
  ])
  assert.deepEqual(sent, [{ ...place, attempt: 3, durationMs: 30, baseOffset: 0n, duplicates: 0 }])
  await client.close()
})

test("a call that is given up ends its span with the failure below, and the batch is told as failed", async (t) => {
  const { clock, backend, listener, client } = bench()
  const failed = hear(t, "producer.batch.failed")
  backend.fate = () => ({ outcome: "refuse", error: new ConnectionError("refused") })
  const sending = client.stream("s").topic("t").producer(options).send(bytes)
  sending.catch(() => {})
  await clock.advance(100)
  await assert.rejects(sending, { kind: "publish-failed" })
  const [span] = listener.spans
  assert.equal(span?.outcome?.attempted, true)
  assert.equal(span?.outcome?.error?.kind, "connection")
  assert.equal((failed[0] as { attempt: number }).attempt, 3)
  assert.equal((failed[0] as { error: MillraceError }).error.kind, "connection")
  assert.equal(failed.length, 1)
  await client.close()
})

test("a resend by the caller goes out with the headers that it has", async () => {
  const { clock, backend, listener, client } = bench()
  const topic = client.stream("s").topic("t")
  const sending = topic.batch([{ payload: bytes, id: 5n }])
  await clock.advance(1)
  await sending
  assert.equal(backend.records("t")[0]?.headers.size, 0)
  assert.equal(listener.spans.length, 1)
  await client.close()
})

test("background: each batch has a span with links to the senders' contexts, each once", async () => {
  const { clock, backend, listener, client } = bench()
  const producer = client
    .stream("s")
    .topic("t")
    .producer({ background: { lingerMs: 5 } })
  await producer.init()
  listener.around = contextOf(70)
  await producer.send(bytes)
  listener.around = contextOf(71)
  await producer.send(bytes)
  await producer.send(bytes)
  listener.around = undefined
  await producer.send(bytes)
  await clock.advance(10)
  await producer.flush()
  assert.deepEqual(listener.spans, [
    {
      kind: "batch",
      sending: { records: 4, partition: 0, links: [contextOf(70), contextOf(71)] },
      outcome: { attempted: true },
    },
  ])
  const carried = backend.records("t").map(({ headers }) => headers.get("traceparent")?.value)
  assert.deepEqual(carried, [...[70, 71, 71].map((span) => contextOf(span).traceparent), undefined])
  await client.close()
})

test("a span has at most 128 links, whether of a call or of a batch", async () => {
  const { clock, listener, client } = bench()
  const topic = client.stream("s").topic("t")
  const records = Array.from({ length: 200 }, (_, i) => ({ payload: bytes, headers: { ...contextOf(i + 1) } }))
  const direct = topic.producer().sendBatch(records)
  await clock.advance(1)
  await direct
  const background = topic.producer({ background: true })
  await background.sendBatch(records)
  await clock.advance(10)
  await background.flush()
  assert.deepEqual(
    listener.spans.map(({ kind, sending }) => [kind, sending.records, sending.links.length]),
    [
      ["call", 200, 128],
      ["batch", 200, 128],
    ],
  )
  await client.close()
})

test("every kind of producer is among the reported ones until it has ended", async () => {
  const { clock, client } = bench()
  const topic = client.stream("s").topic("t")
  const direct = topic.producer()
  const background = topic.producer({ background: true })
  const batching = topic.batching().maxRecords(1).build()
  const sending = Promise.all([direct.send(bytes), background.send(bytes), batching.send(bytes), background.flush()])
  await clock.advance(10)
  await sending
  const reports = await client.producers(topic)
  assert.deepEqual(
    reports.map(({ confirmedRecords }) => confirmedRecords),
    [1, 1, 1],
  )
  assert.equal(new Set(reports.map(({ instanceId }) => instanceId)).size, 3)
  assert.deepEqual(await client.producers(client.stream("s").topic("other")), [])
  await Promise.all([direct.shutdown(), background.shutdown(), batching.close()])
  assert.deepEqual(await client.producers(topic), [])
  await client.close()
})

test("a batching producer's records carry the context of whoever added them, and the flush links to it", async () => {
  const { clock, backend, listener, client } = bench()
  const producer = client.stream("s").topic("t").batching().maxRecords(2).build()
  listener.around = contextOf(80)
  await producer.send(bytes)
  listener.around = undefined
  const last = producer.send(bytes)
  await clock.advance(1)
  await last
  assert.equal(listener.spans.length, 1)
  assert.deepEqual(listener.spans[0]?.sending, { records: 2, links: [contextOf(80)] })
  const carried = backend.records("t").map(({ headers }) => headers.get("traceparent")?.value)
  // The one without gets the flush's own.
  assert.deepEqual(carried, [contextOf(80).traceparent, contextOf(1).traceparent])
  await client.close()
})

test("background: a batch that is split ends its span with the reason, and its halves have spans with the same links", async () => {
  const { clock, backend, listener, client } = bench()
  backend.largestBatch = 2
  const producer = client
    .stream("s")
    .topic("t")
    .producer({ background: { lingerMs: 5 } })
  listener.around = contextOf(70)
  for (let i = 0; i < 4; i++) await producer.send(bytes)
  await clock.advance(50)
  await producer.flush()
  assert.equal(backend.records("t").length, 4)
  assert.deepEqual(
    listener.spans.map(({ sending, outcome }) => [sending.records, sending.links.length, outcome?.attempted]),
    [
      [4, 1, false],
      [2, 1, true],
      [2, 1, true],
    ],
  )
  await client.close()
})

test("background: what is never sent ends no span and counts as nothing that was tried", async () => {
  const { clock, backend, listener, client } = bench()
  const producer = client
    .stream("s")
    .topic("t")
    .producer({ background: { lingerMs: 5, onError: () => {} } })
  backend.fate = () => ({ outcome: "silence" })
  await producer.send(bytes)
  const ending = producer.shutdown({ timeoutMs: 100 })
  ending.catch(() => {})
  await clock.advance(200)
  await assert.rejects(ending)
  assert.ok(listener.spans.every(({ outcome }) => outcome?.error !== undefined))
  await client.close()
})

test("a send that meets a full buffer is told", async (t) => {
  const { clock, client } = bench()
  const heard = hear(t, "producer.backpressure")
  const topic = client.stream("s").topic("t")
  const refusing = topic.producer({ background: { maxBufferBytes: 100, failureMode: "failImmediately", lingerMs: 50 } })
  const waiting = topic.producer({ background: { maxBufferBytes: 300, failureMode: "block", lingerMs: 50 } })
  const large = new Uint8Array(200)
  await topic.producer({ background: { lingerMs: 50 } }).sendBatch([large, large])
  await assert.rejects(refusing.send(large), { kind: "buffer-full" })
  await waiting.send(large)
  const second = waiting.send(large)
  await clock.advance(200)
  await second
  const place = { stream: "s", topic: "t" }
  assert.deepEqual(
    heard.map((message) => {
      const { bufferedBytes, ...rest } = message as { bufferedBytes: number }
      assert.ok(bufferedBytes < 300)
      return rest
    }),
    [
      { ...place, outcome: "refused", maxBufferBytes: 100 },
      { ...place, outcome: "waits", maxBufferBytes: 300 },
    ],
  )
  const closing = client.close()
  await clock.advance(1000)
  await closing
})

test("a spool tells what it found, what it forwarded, and that it is full", async (t) => {
  const heard = hear(t, "producer.spool") as SpoolEvent[]
  const rig = new SpoolRig()
  rig.backend.fate = () => ({ outcome: "refuse", error: new ConnectionError("nobody there") })
  const first = rig.live()
  await rig.run(first.producer.sendBatch([bytes, bytes]))
  assert.equal(heard.length, 0)
  first.process.isDead = true
  rig.backend.fate = () => ({})
  const { producer } = rig.live({ spool: { maxSpoolBytes: 2000 } })
  await rig.run(producer.init())
  await rig.run(producer.flush())
  const place = { stream: "s", topic: "t", directory: "spool" }
  const [resumed] = heard
  assert.deepEqual(resumed, { ...place, what: "resumed", waitingRecords: 2, waitingBytes: resumed?.waitingBytes })
  assert.ok((resumed?.waitingBytes ?? 0) > 0)
  assert.deepEqual(heard.at(-1), { ...place, what: "forwarded", waitingRecords: 0, waitingBytes: 0 })
  const larger = new Uint8Array(900)
  await rig.run(Promise.all([1, 2, 3, 4].map(() => producer.send(larger))))
  assert.ok(heard.some(({ what }) => what === "full"))
  await rig.run(producer.shutdown())
})

test("changes of the connection are told on their channels", (t) => {
  const clock = new VirtualClock()
  const connection = new ConnectionWatch()
  openClient(new FakeBackend(clock).session, {}, { clock, random: seededRandom(1), connection })
  const lost = hear(t, "connection.lost")
  const restored = hear(t, "connection.restored")
  const change = { state: "lost", server: "a:1", error: new ConnectionError("cut") } as const
  connection.notify(change)
  connection.notify({ state: "restored", server: "a:1", afterMs: 5 })
  assert.deepEqual(lost, [change])
  assert.deepEqual(restored, [{ state: "restored", server: "a:1", afterMs: 5 }])
})

test("without telemetry nothing is added to what is sent", async () => {
  const clock = new VirtualClock()
  const backend = new FakeBackend(clock)
  backend.create("t")
  const client = openClient(backend.session, {}, { clock, random: seededRandom(1) })
  const sending = client.stream("s").topic("t").producer().send(bytes)
  await clock.advance(1)
  await sending
  assert.equal(backend.records("t")[0]?.headers.size, 0)
  await client.close()
})
