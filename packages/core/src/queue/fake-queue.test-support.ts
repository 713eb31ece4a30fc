/** A work queue in memory behind the contract, with leases on a virtual clock, and the faults that tests need. */
import {
  InvalidError,
  type MillraceError,
  NotFoundError,
  type QueueBroker,
  type QueueDelivery,
  type QueueDescription,
  type QueuePullLimits,
  type QueueSession,
  type QueueSpec,
  type Settlement,
  type TopicName,
} from "@millrace/contract"
import type { VirtualClock } from "@millrace/runtime"
import type { LiveContext } from "../client/live-context.ts"
import type { Codec } from "../codec/codec.ts"
import { FakeBatch, type FakeRecord } from "../consumer/fake-log.test-support.ts"
import { FakeClient, fakeManifest } from "../consumer/fake-session.test-support.ts"
import { Queue } from "./queue.ts"
import type { QueueConsumer } from "./queue-consumer.ts"
import type { QueueConsumerOptions } from "./queue-consumer-options.ts"
import { defaultSpec, type QueueOptions } from "./queue-options.ts"
import { waitOf } from "./queue-waits.ts"
import type { TypedQueueMessage } from "./valued-message.ts"

type State = "ready" | "leased" | "done"

/** One record of the queue. */
export interface Entry {
  readonly batch: FakeBatch
  readonly index: number
  readonly offset: bigint
  readonly partition: number
  state: State
  deliveries: number
  /** When a lease ends, or from when on it may be handed out again. */
  atMs: number
}

interface Token {
  readonly entry: Entry
  readonly deliveries: number
}

/** What a settlement did, for tests to look at. */
export interface Settled {
  readonly offset: bigint
  readonly verdict: Settlement["verdict"]
  readonly delayMs: number | undefined
  readonly reason: string | undefined
  readonly confirm: boolean
  readonly counts: boolean
}

export class FakeQueueBroker implements QueueBroker {
  readonly clock: VirtualClock
  spec: QueueSpec | undefined
  readonly entries: Entry[] = []
  /** Requests of `settle`, in order. */
  readonly settled: Settled[] = []
  /** Requests of `settle`. */
  requests = 0
  readonly pulls: QueuePullLimits[] = []
  readonly pullFailures: MillraceError[] = []
  readonly settleFailures: MillraceError[] = []
  /** Settles happen, and their answers are lost. */
  readonly lostAnswers: MillraceError[] = []
  /** Runs before a request is answered. */
  beforeSettle: (() => Promise<void>) | undefined
  /** Delays the answer of pulls. */
  beforeAnswer: (() => Promise<void>) | undefined
  /** Which of those that can be handed out are, and in which order; default all, in the order of the log, those of before first. */
  choose: ((entries: readonly Entry[]) => readonly Entry[]) | undefined
  lineage = "a"
  gone = false
  openSessions = 0
  readonly #wakes = new Set<() => void>()
  readonly #next = new Map<number, bigint>()

  constructor(clock: VirtualClock) {
    this.clock = clock
  }

  put(records: readonly FakeRecord[], partition = 0): void {
    const first = this.#next.get(partition) ?? 0n
    const batch = new FakeBatch(first, records)
    records.forEach((_, index) => {
      this.entries.push({
        ...{ batch, index, partition, offset: first + BigInt(index), state: "ready", deliveries: 0, atMs: 0 },
      })
    })
    this.#next.set(partition, first + BigInt(records.length))
    this.wake()
  }

  /** One batch of records whose payloads are these texts. */
  putTexts(...texts: string[]): void {
    this.put(texts.map((text) => ({ payload: new TextEncoder().encode(text) })))
  }

  wake(): void {
    for (const wake of [...this.#wakes]) wake()
  }

  /** Offsets in a state. */
  offsets(state: State): bigint[] {
    return this.entries.filter((entry) => this.#stateOf(entry) === state).map(({ offset }) => offset)
  }

  async open(_topic: TopicName, _queue: string, spec: QueueSpec): Promise<QueueSession> {
    if (this.spec !== undefined && JSON.stringify(text(this.spec)) !== JSON.stringify(text(spec))) {
      throw new InvalidError(`the queue exists with ${JSON.stringify(text(this.spec))}`)
    }
    this.spec ??= spec
    this.gone = false
    this.openSessions++
    return new FakeQueueSession(this, this.spec)
  }

  async describe(topic: TopicName, queue: string): Promise<QueueDescription> {
    const { spec } = this
    if (spec === undefined) throw new NotFoundError(`queue "${queue}" does not exist`)
    const leased = this.offsets("leased").length
    return { ...topic, queue, spec, undelivered: 0n, ackPending: leased, redelivered: 0, delayed: 0, partitions: [] }
  }

  async list(): Promise<QueueDescription[]> {
    return []
  }

  async delete(): Promise<void> {
    if (this.spec === undefined) throw new NotFoundError("the queue does not exist")
    this.spec = undefined
    this.gone = true
    this.wake()
  }

  /** What can be handed out now. */
  take({ maxMessages, maxBytes }: QueuePullLimits, spec: QueueSpec): QueueDelivery[] {
    const nowMs = this.clock.monotonicMs()
    const again = this.entries.filter(
      (entry) => entry.deliveries > 0 && this.#stateOf(entry) === "ready" && entry.atMs <= nowMs,
    )
    const fresh = this.entries.filter((entry) => entry.deliveries === 0)
    let room = (spec.maxAckPending ?? Number.POSITIVE_INFINITY) - this.offsets("leased").length
    let bytes = 0
    const deliveries: QueueDelivery[] = []
    for (const entry of this.choose?.([...again, ...fresh]) ?? [...again, ...fresh]) {
      if (deliveries.length >= maxMessages || room <= 0) break
      bytes += entry.batch.payload(entry.index)?.length ?? 0
      if (bytes > maxBytes && deliveries.length > 0) break
      room--
      entry.deliveries++
      entry.state = spec.ackPolicy === "none" ? "done" : "leased"
      entry.atMs = nowMs + waitOf(spec, entry.deliveries)
      const token: Token = { entry, deliveries: entry.deliveries }
      const { batch, index, offset, partition, deliveries: count } = entry
      const place = { stream: "s", topic: "t", partition, offset, lineage: this.lineage }
      deliveries.push({ ...place, batch, index, deliveries: count, token })
    }
    return deliveries
  }

  settle(settlement: Settlement, spec: QueueSpec, confirm: boolean): boolean {
    const { entry, deliveries } = settlement.token as Token
    const { verdict, delayMs, reason } = settlement
    const counts = entry.deliveries === deliveries && this.#stateOf(entry) === "leased"
    this.settled.push({ offset: entry.offset, verdict, delayMs, reason, confirm, counts })
    if (!counts) return false
    const nowMs = this.clock.monotonicMs()
    if (verdict === "ack" || verdict === "terminate") {
      entry.state = "done"
      if (verdict === "ack" && spec.ackPolicy === "all") {
        for (const other of this.entries) {
          const before = other.partition === entry.partition && other.offset < entry.offset
          if (before && other.deliveries > 0) other.state = "done"
        }
      }
    } else if (verdict === "nak") {
      entry.state = "ready"
      entry.atMs = nowMs + (delayMs ?? 0)
    } else {
      entry.atMs = nowMs + waitOf(spec, entry.deliveries)
    }
    this.wake()
    return true
  }

  /** Settles when there may be something, or at the end of the wait. */
  wait(ms: number, closing: Promise<void>): Promise<void> {
    const nowMs = this.clock.monotonicMs()
    const due = this.entries
      .filter((entry) => entry.deliveries > 0 && entry.state !== "done")
      .map((entry) => Math.max(0, entry.atMs - nowMs))
    const delayMs = Math.min(ms, ...due)
    return new Promise((resolve) => {
      const end = (): void => {
        timer.cancel()
        this.#wakes.delete(end)
        resolve()
      }
      const timer = this.clock.setTimer(delayMs, end)
      this.#wakes.add(end)
      void closing.then(end)
    })
  }

  #stateOf(entry: Entry): State {
    return entry.state === "leased" && entry.atMs <= this.clock.monotonicMs() ? "ready" : entry.state
  }
}

class FakeQueueSession implements QueueSession {
  readonly spec: QueueSpec
  readonly #broker: FakeQueueBroker
  readonly #closing = Promise.withResolvers<void>()
  #closed = false

  constructor(broker: FakeQueueBroker, spec: QueueSpec) {
    this.#broker = broker
    this.spec = spec
  }

  async pull(limits: QueuePullLimits): Promise<QueueDelivery[]> {
    const broker = this.#broker
    broker.pulls.push(limits)
    await Promise.resolve()
    const failure = broker.pullFailures.shift()
    if (failure !== undefined) throw failure
    const endMs = broker.clock.monotonicMs() + limits.maxWaitMs
    for (;;) {
      if (this.#closed) return []
      if (broker.gone) throw new NotFoundError("the queue was deleted")
      const deliveries = broker.take(limits, this.spec)
      const leftMs = endMs - broker.clock.monotonicMs()
      if (deliveries.length > 0 || leftMs <= 0) {
        await broker.beforeAnswer?.()
        return deliveries
      }
      await broker.wait(leftMs, this.#closing.promise)
    }
  }

  async settle(
    list: readonly Settlement[],
    options: { readonly confirm: boolean },
  ): Promise<(boolean | MillraceError)[]> {
    const broker = this.#broker
    broker.requests++
    await broker.beforeSettle?.()
    const failure = broker.settleFailures.shift()
    if (failure !== undefined) throw failure
    if (broker.gone) throw new NotFoundError("the queue was deleted")
    const outcomes = list.map((settlement) => broker.settle(settlement, this.spec, options.confirm))
    const lost = broker.lostAnswers.shift()
    if (lost !== undefined) throw lost
    return outcomes
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#broker.openSessions--
    this.#closing.resolve()
  }
}

/** A virtual clock, one queue, and consumers on it. */
export class QueueRig {
  readonly client: FakeClient
  readonly clock: VirtualClock
  readonly broker: FakeQueueBroker
  readonly context: LiveContext

  constructor() {
    this.client = new FakeClient({ manifest: { ...fakeManifest, queues: { supported: true } } })
    this.clock = this.client.clock
    this.broker = new FakeQueueBroker(this.clock)
    const { context } = this.client
    this.context = {
      ...context,
      session: { ...context.session, queues: this.broker },
      manifest: context.session.manifest,
      assertOpen: () => {},
    } as unknown as LiveContext
  }

  queue(options?: QueueOptions, name = "q"): Queue {
    return new Queue(this.context, { stream: "s", topic: "t" }, { name, options })
  }

  /** A consumer of a queue whose messages have values. */
  async typed<T>(codec: Codec<T>, options?: QueueOptions): Promise<QueueConsumer<TypedQueueMessage<T>>> {
    const of = { name: "q", options, codec: codec as Codec<unknown> }
    const queue = new Queue<TypedQueueMessage<T>>(this.context, { stream: "s", topic: "t" }, of)
    const opening = queue.consumer()
    await this.settle()
    return await opening
  }

  /** A consumer of a queue with these options. */
  async consumer(options?: QueueOptions, own?: QueueConsumerOptions): Promise<QueueConsumer> {
    const opening = this.queue(options).consumer(own)
    await this.settle()
    return await opening
  }

  /** Lets everything that is ready happen, without moving the clock. */
  settle(): Promise<void> {
    return this.clock.advance(0)
  }
}

/** The payload as text. */
export function textOf(message: { readonly payload: Uint8Array | null }): string {
  return new TextDecoder().decode(message.payload ?? new Uint8Array())
}

/** What was asked, and how it went, without the waiting. */
export function watch<T>(promise: Promise<T>): { value?: T; error?: unknown; done: boolean } {
  const state: { value?: T; error?: unknown; done: boolean } = { done: false }
  promise.then(
    (value) => Object.assign(state, { value, done: true }),
    (error: unknown) => Object.assign(state, { error, done: true }),
  )
  return state
}

/** The spec that is meant where nothing is said. */
export const usualSpec: QueueSpec = defaultSpec

function text(spec: QueueSpec): unknown {
  return { ...spec, maxAckPending: spec.maxAckPending ?? "none", maxDeliver: spec.maxDeliver ?? "none" }
}
