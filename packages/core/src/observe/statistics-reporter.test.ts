/** Reports over a backend in memory, on a clock that the test moves. */
import assert from "node:assert/strict"
import { subscribe, unsubscribe } from "node:diagnostics_channel"
import { test } from "node:test"
import {
  type ConnectionChange,
  ConnectionError,
  type MillraceError,
  type Session,
  type TopicName,
} from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { openClient } from "../client/client.ts"
import { FakeBackend, fakeManifest } from "../producer/fake-backend.test-support.ts"
import { StatisticsCounter } from "../producer/statistics.ts"
import { diagnostics, type StatisticsFailed } from "./diagnostics.ts"
import { ProducerRegistry } from "./producer-registry.ts"
import { decodeObservation, type ProducerReport } from "./producer-report.ts"
import { reportTopic } from "./report-topic.ts"
import { type ObserveOptions, StatisticsReporter } from "./statistics-reporter.ts"

const intervalMs = 10_000

interface Observer {
  readonly options: ObserveOptions
  closed: boolean
}

class Bench {
  readonly clock = new VirtualClock()
  readonly backend: FakeBackend
  readonly producers: ProducerRegistry
  readonly observers: Observer[] = []
  readonly failures: StatisticsFailed[] = []
  /** What the next connection fails with; `never`: it does not come to be until it is cancelled. */
  refuse: MillraceError | "never" | undefined
  /** The observer's connection, once it is there, does not end. */
  hangsAtClose = false
  readonly reporter: StatisticsReporter
  readonly #heard = (message: unknown): void => void this.failures.push(message as StatisticsFailed)

  constructor(options: { readonly isRemote?: boolean; readonly maxProducers?: number } = {}) {
    const random = seededRandom(5)
    // Reports are larger than the double's usual limit.
    this.backend = new FakeBackend(this.clock, fakeManifest({}, { payloadBytes: 1_000_000, batchBytes: 1_000_000 }))
    this.producers = new ProducerRegistry(this.clock, random)
    this.reporter = new StatisticsReporter({
      clock: this.clock,
      random,
      producers: this.producers,
      settings: { intervalMs, maxProducers: options.maxProducers ?? 32 },
      session: options.isRemote === true ? notMine : inStreamS(this.backend.session),
      observe: options.isRemote === true ? (given) => this.#observe(given) : undefined,
    })
    subscribe("millrace:statistics.failed", this.#heard)
  }

  /** A producer that has sent as many records, one a call. */
  open(sent: number, topic = "t"): { close: () => void; counter: StatisticsCounter } {
    const counter = new StatisticsCounter(this.clock)
    for (let i = 0; i < sent; i++) counter.submitted(1, 10, this.clock.monotonicMs())
    return { close: this.producers.add({ stream: "s", topic }, () => counter.snapshot()), counter }
  }

  get reports(): ProducerReport[][] {
    const topic = this.backend.topics.get(reportTopic.topic)
    const records = topic?.partitions[0]?.records ?? []
    return records.map(({ payload }) => decodeObservation(payload as Uint8Array))
  }

  /** Nothing is left behind. */
  async end(): Promise<void> {
    await this.reporter.shutdown()
    unsubscribe("millrace:statistics.failed", this.#heard)
    assert.equal(this.clock.timers, 0)
    for (const observer of this.observers) assert.ok(observer.closed)
  }

  async #observe(options: ObserveOptions): Promise<Session> {
    const observer: Observer = { options, closed: false }
    if (this.refuse === "never") {
      return await new Promise((_, reject) =>
        options.signal.addEventListener("abort", () => reject(new ConnectionError("cancelled"))),
      )
    }
    if (this.refuse !== undefined) throw this.refuse
    this.observers.push(observer)
    return {
      ...inStreamS(this.backend.session),
      close: async () => {
        observer.closed = true
        if (this.hangsAtClose) await new Promise(() => {})
      },
    }
  }
}

/** The double keeps topics of the stream `s` alone: reports go there. */
function inStreamS(session: Session): Session {
  const { catalog } = session
  const at = ({ topic }: TopicName): TopicName => ({ stream: "s", topic })
  return {
    ...session,
    catalog: {
      ...catalog,
      describeTopic: (name) => catalog.describeTopic(at(name)),
      createTopic: (name, spec) => catalog.createTopic(at(name), spec),
    },
  }
}

/** A session that reports must not touch. */
const notMine = new Proxy({}, { get: () => assert.fail("the client's own session was used") }) as Session

test("nothing is made before the first report is due, nor for producers that sent nothing", async () => {
  const bench = new Bench()
  bench.open(0)
  await bench.clock.advance(9_999)
  assert.equal(bench.backend.topics.size, 0)
  await bench.clock.advance(60_000)
  assert.equal(bench.backend.topics.size, 0)
  const { close } = bench.open(3)
  await bench.clock.advance(10_000)
  assert.equal(bench.reports.length, 1)
  assert.equal(bench.reports[0]?.[0]?.submittedRecords, 3)
  close()
  await bench.end()
  assert.deepEqual(bench.failures, [])
})

test("a report is made each interval, tells the counts of its moment, and expires after three", async () => {
  const bench = new Bench()
  const { counter } = bench.open(1)
  await bench.clock.advance(10_000)
  counter.submitted(4, 400, bench.clock.monotonicMs())
  await bench.clock.advance(10_000)
  const startMillis = 1_700_000_000_000
  assert.deepEqual(
    bench.reports.map(([report]) => [report?.submittedRecords, report?.observedAtMillis, report?.expiresAtMillis]),
    [
      [1, startMillis + 10_000, startMillis + 40_000],
      [5, startMillis + 20_000, startMillis + 50_000],
    ],
  )
  assert.equal(bench.reports[0]?.[0]?.instanceId, bench.reports[1]?.[0]?.instanceId)
  await bench.end()
})

test("at most so many live producers are told of, the oldest; one that ends makes room", async () => {
  const bench = new Bench({ maxProducers: 2 })
  const opened = ["a", "b", "c"].map((topic) => bench.open(1, topic))
  await bench.clock.advance(10_000)
  opened[0]?.close()
  await bench.clock.advance(10_000)
  assert.deepEqual(
    bench.reports.map((reports) => reports.map(({ topic }) => topic)),
    [
      ["a", "b"],
      ["b", "c"],
    ],
  )
  await bench.end()
})

test("a remote backend is told over a connection of its own, which is kept, and closed when no producer is left", async () => {
  const bench = new Bench({ isRemote: true })
  const { close } = bench.open(1)
  await bench.clock.advance(30_000)
  assert.equal(bench.reports.length, 3)
  assert.equal(bench.observers.length, 1)
  assert.equal(bench.observers[0]?.options.timeoutMs, 3000)
  close()
  await bench.clock.advance(0)
  assert.ok(bench.observers[0]?.closed)
  assert.equal(bench.clock.timers, 0)
  bench.open(1)
  await bench.clock.advance(10_000)
  assert.equal(bench.observers.length, 2)
  await bench.end()
})

test("a connection that fails is told on the channel, and tried again at growing intervals", async () => {
  const bench = new Bench({ isRemote: true })
  bench.open(1)
  bench.refuse = new ConnectionError("nobody answers")
  await bench.clock.advance(10_000)
  assert.deepEqual(bench.failures, [{ step: "connect", error: bench.refuse }])
  await bench.clock.advance(19_999)
  assert.equal(bench.failures.length, 1)
  await bench.clock.advance(1)
  assert.equal(bench.failures.length, 2)
  bench.refuse = undefined
  await bench.clock.advance(40_000)
  assert.equal(bench.reports.length, 1)
  await bench.end()
})

test("a connection that does not come to be is given up after 3 s, and cancelled", async () => {
  const bench = new Bench({ isRemote: true })
  bench.open(1)
  bench.refuse = "never"
  await bench.clock.advance(12_999)
  assert.equal(bench.failures.length, 0)
  await bench.clock.advance(1)
  assert.equal(kindOf(bench.failures[0]), "timeout")
  await bench.end()
})

test("an append that is not answered is given up after 3 s; over the client's session no other is begun meanwhile", async () => {
  const bench = new Bench()
  bench.open(1)
  bench.backend.fate = () => ({ outcome: "silence" })
  await bench.clock.advance(13_000)
  assert.equal(bench.failures.length, 1)
  assert.equal(kindOf(bench.failures[0]), "timeout")
  assert.equal(bench.failures[0]?.step, "send")
  await bench.clock.advance(200_000)
  assert.equal(bench.backend.appends.length, 1)
  assert.ok(bench.failures.length >= 3)
  await bench.end()
})

test("an own connection that is lost is closed and not redialled; the next report opens another", async () => {
  const bench = new Bench({ isRemote: true })
  bench.open(1)
  await bench.clock.advance(10_000)
  const change: ConnectionChange = { state: "lost", server: "a:1", error: new ConnectionError("cut") }
  bench.observers[0]?.options.onConnection(change)
  await bench.clock.advance(0)
  assert.ok(bench.observers[0]?.closed)
  await bench.clock.advance(10_000)
  assert.equal(bench.observers.length, 2)
  assert.equal(bench.reports.length, 2)
  // What the closed one still has to tell does not touch its successor.
  bench.observers[0]?.options.onConnection(change)
  await bench.clock.advance(0)
  assert.equal(bench.observers[1]?.closed, false)
  await bench.end()
})

test("a topic that was deleted is made again", async () => {
  const bench = new Bench()
  bench.open(1)
  await bench.clock.advance(10_000)
  bench.backend.delete(reportTopic.topic)
  await bench.clock.advance(10_000)
  assert.equal(kindOf(bench.failures[0]), "not-found")
  await bench.clock.advance(20_000)
  assert.equal(bench.reports.length, 1)
  await bench.end()
})

test("reporters that start together make one topic, and both report", async () => {
  const bench = new Bench()
  const random = seededRandom(9)
  const others = new ProducerRegistry(bench.clock, random)
  const { clock } = bench
  const reporter = new StatisticsReporter({
    clock,
    random,
    producers: others,
    settings: { intervalMs, maxProducers: 32 },
    session: inStreamS(bench.backend.session),
    observe: undefined,
  })
  bench.open(1)
  others.add({ stream: "s", topic: "u" }, () => {
    const counter = new StatisticsCounter(clock)
    counter.submitted(1, 1, 0)
    return counter.snapshot()
  })
  await clock.advance(10_000)
  assert.deepEqual(
    bench.reports.flat().map(({ topic }) => topic),
    ["t", "u"],
  )
  assert.deepEqual(bench.failures, [])
  await reporter.shutdown()
  await bench.end()
})

test("a shutdown in the middle of a report ends it at once, in silence", async () => {
  for (const isRemote of [false, true]) {
    const bench = new Bench({ isRemote })
    bench.open(1)
    bench.backend.fate = () => ({ outcome: "silence" })
    await bench.clock.advance(10_000)
    await bench.end()
    assert.deepEqual(bench.failures, [])
  }
  const bench = new Bench({ isRemote: true })
  bench.open(1)
  bench.refuse = "never"
  await bench.clock.advance(10_000)
  await bench.end()
  assert.deepEqual(bench.failures, [])
})

test("a connection that does not close keeps nobody waiting for more than 3 s", async () => {
  const bench = new Bench({ isRemote: true })
  bench.hangsAtClose = true
  bench.open(1)
  await bench.clock.advance(10_000)
  let isOver = false
  const ending = bench.reporter.shutdown().then(() => {
    isOver = true
  })
  await bench.clock.advance(2999)
  assert.equal(isOver, false)
  await bench.clock.advance(1)
  await ending
  assert.equal(bench.clock.timers, 0)
  await bench.end()
})

test("a report that fails, or a connection that cannot be had, fails neither a send nor the close of the client", async () => {
  for (const fault of ["refused", "silent"] as const) {
    const clock = new VirtualClock()
    const backend = new FakeBackend(clock)
    backend.create("t")
    const client = openClient(
      backend.session,
      {},
      {
        clock,
        random: seededRandom(2),
        statistics: { intervalMs: 1000, maxProducers: 32 },
        observe: ({ signal }) =>
          fault === "refused"
            ? Promise.reject(new ConnectionError("nobody answers"))
            : new Promise((_, reject) =>
                signal.addEventListener("abort", () => reject(new ConnectionError("cancelled"))),
              ),
      },
    )
    const producer = client.stream("s").topic("t").producer()
    for (let i = 0; i < 20; i++) {
      const sending = producer.send(Uint8Array.of(i))
      await clock.advance(500)
      await sending
    }
    assert.equal(backend.records("t").length, 20)
    const closing = client.close()
    await clock.advance(0)
    await closing
    assert.equal(clock.timers, 0)
  }
})

test("nothing is published on a channel without subscribers", () => {
  assert.equal(diagnostics["statistics.failed"].hasSubscribers, false)
})

function kindOf(failure: StatisticsFailed | undefined): string | undefined {
  return (failure?.error as MillraceError | undefined)?.kind
}
