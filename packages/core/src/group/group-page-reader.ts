import {
  BufferFullError,
  ClosedError,
  HistoryChangedError,
  InvalidError,
  NotAssignedError,
  TimeoutError,
  type TopicName,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { ClientContext } from "../client/context.ts"
import { topicText } from "../client/names.ts"
import { longestDurationMs, shown } from "../client/options.ts"
import { signalFired } from "../client/signal-fired.ts"
import type { Lag } from "../consumer/consumer.ts"
import type { ConsumerEvents } from "../consumer/consumer-events.ts"
import type { LogConsumer } from "../consumer/log-consumer.ts"
import type { FeedLane, FeedUser, MessageFeed } from "../handler/message-feed.ts"
import type { Lane } from "../partition/lane.ts"
import type { StartAt } from "../partition/start-at.ts"
import { Checkpoint } from "../record/checkpoint.ts"
import type { Message } from "../record/message.ts"
import type { DecodeFailures, Decoding } from "../typed/decoding.ts"
import { openGroupLog } from "./group-consumer.ts"
import type { GroupReader } from "./group-reader.ts"
import { type GroupReaderOptions, groupReaderSettings, type PageSettings } from "./group-reader-options.ts"
import { PageCollector } from "./page-collector.ts"
import { type MatchedPage, PageLedger } from "./page-ledger.ts"

/**
 * Joins a group and reads what its filter selects, in pages (`topic.consumerGroup(name).reader`).
 * @throws InvalidError for an option; else as a group's consumer
 */
export async function openGroupReader(
  context: ClientContext,
  source: { readonly topic: TopicName; readonly group: string; readonly decoding?: Decoding | undefined },
  options?: GroupReaderOptions,
): Promise<GroupReader> {
  const what = `reader of group ${shown(source.group)} on topic "${topicText(source.topic)}"`
  const settings = groupReaderSettings(what, options, context.session.manifest.limits)
  const consumer = await openGroupLog(context, { ...source, what }, settings.consumer)
  return new GroupPageReader(consumer, { what, clock: context.clock, settings: settings.pages })
}

/** Who waits for a page. Called once, by one of the three. */
interface Waiter {
  got(page: MatchedPage): void
  failed(error: unknown): void
  ended(): void
}

/** The reader over a group's consumer, whose feed says what is handled. */
class GroupPageReader implements GroupReader, FeedUser {
  readonly #consumer: LogConsumer
  readonly #what: string
  readonly #clock: Clock
  readonly #settings: PageSettings
  readonly #feed: MessageFeed
  readonly #pages: PageCollector
  readonly #ledger = new PageLedger()
  readonly #waiters: Waiter[] = []
  /** Partitions that are to be handed over once their pages are acknowledged. */
  readonly #drains = new Map<FeedLane, () => void>()
  #serving = false
  /** Something came while those who wait were being served. */
  #again = false

  constructor(
    consumer: LogConsumer,
    of: { readonly what: string; readonly clock: Clock; readonly settings: PageSettings },
  ) {
    this.#consumer = consumer
    this.#what = of.what
    this.#clock = of.clock
    this.#settings = of.settings
    this.#feed = consumer.feed(this)
    this.#pages = new PageCollector(this.#feed, of.settings)
  }

  // ---- reading --------------------------------------------------------------------------------------------

  next(): Promise<IteratorResult<MatchedPage, undefined>> {
    return new Promise((resolve, reject) => {
      this.#wait({
        got: (page) => resolve({ done: false, value: page }),
        failed: reject,
        ended: () => resolve({ done: true, value: undefined }),
      })
    })
  }

  poll(): Promise<MatchedPage | undefined> {
    return this.#within(this.#settings.idleMs, undefined)
  }

  async nextWithin(timeoutMs: number, options?: { readonly signal?: AbortSignal }): Promise<MatchedPage> {
    if (typeof timeoutMs !== "number" || !(timeoutMs >= 0) || timeoutMs > longestDurationMs) {
      const allowed = `a number of milliseconds from 0 to ${longestDurationMs}`
      throw new InvalidError(`${this.#what}: nextWithin takes ${allowed}, not ${shown(timeoutMs)}`)
    }
    const page = await this.#within(timeoutMs, options?.signal)
    if (page !== undefined) return page
    throw new TimeoutError(`${this.#what}: no page within ${timeoutMs} ms`, { outcome: "rejected" })
  }

  [Symbol.asyncIterator](): AsyncIterator<MatchedPage, undefined> {
    return { next: () => this.next() }
  }

  stream(options?: { readonly signal?: AbortSignal }): AsyncIterable<MatchedPage> {
    const signal = options?.signal
    if (signal === undefined) return this
    return { [Symbol.asyncIterator]: () => ({ next: () => this.#nextUnless(signal) }) }
  }

  // ---- acknowledging --------------------------------------------------------------------------------------

  async ack(message: Message): Promise<void> {
    const { lane, offset } = this.#laneOf(message)
    await this.#acknowledge(lane, [offset])
  }

  async ackThrough(message: Message): Promise<void> {
    const { lane, offset } = this.#laneOf(message)
    await this.#acknowledge(lane, [...this.#ledger.unackedThrough(lane, offset), offset])
  }

  async ackPage(page: MatchedPage): Promise<void> {
    const [first] = page.messages
    if (first === undefined) {
      throw new InvalidError(`${this.#what}: a page without messages is none that it has handed out`)
    }
    const { lane } = this.#laneOf(first)
    await this.#acknowledge(
      lane,
      page.messages.map((message) => this.#laneOf(message).offset),
    )
  }

  get unacked(): number {
    return this.#ledger.size
  }

  /** Of a typed reader; zeros otherwise. */
  get decodeFailures(): DecodeFailures {
    return this.#consumer.decodeFailures
  }

  lag(): Promise<Lag[]> {
    return this.#consumer.lag()
  }

  seek(partition: number, to: StartAt | "skip"): Promise<void> {
    return this.#consumer.seek(partition, to)
  }

  on(listener: Partial<ConsumerEvents>): Disposable {
    return this.#consumer.on(listener)
  }

  shutdown(options?: { readonly timeoutMs?: number }): Promise<void> {
    return this.#consumer.shutdown(options)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#consumer[Symbol.asyncDispose]()
  }

  // ---- told by the consumer -------------------------------------------------------------------------------

  ready(): void {
    this.#serve()
  }

  dropped(lane: FeedLane): void {
    this.#pages.drop(lane)
    this.#ledger.drop(lane)
    this.#tellDrained(lane)
  }

  /** A page that is not handed out yet is in nobody's hands. */
  working(lane: FeedLane): boolean {
    return this.#ledger.has(lane)
  }

  /** What is acknowledged meanwhile still counts; what was not handed out yet is the next member's. */
  draining(lane: FeedLane): Promise<void> | undefined {
    this.#pages.drop(lane)
    if (!this.#ledger.has(lane)) return Promise.resolve()
    return new Promise((resolve) => this.#drains.set(lane, resolve))
  }

  /** Nothing of it runs here. */
  async ending(): Promise<void> {}

  /** Nothing here is called by a handler. */
  shutdownCalled(): void {}

  // ---- inside ---------------------------------------------------------------------------------------------

  #wait(waiter: Waiter): void {
    this.#waiters.push(waiter)
    this.#serve()
  }

  /** Serves those who wait, in order. Taking from the feed may make the consumer call back: then there may be more. */
  #serve(): void {
    this.#again = this.#serving
    if (this.#serving) return
    this.#serving = true
    try {
      for (let waiter = this.#waiters[0]; waiter !== undefined; waiter = this.#waiters[0]) {
        this.#again = false
        const served = this.#serveOne(waiter)
        if (served) this.#waiters.shift()
        else if (!this.#again) return
      }
    } finally {
      this.#serving = false
    }
  }

  /** @returns whether the caller has got an answer */
  #serveOne(waiter: Waiter): boolean {
    if (this.#feed.ended) {
      waiter.ended()
      return true
    }
    if (this.#ledger.size >= this.#settings.unackedPages) {
      waiter.failed(this.#full())
      return true
    }
    try {
      const ready = this.#pages.next()
      if (ready === undefined) return false
      this.#ledger.add(ready.lane, ready.offsets)
      waiter.got(ready.page)
    } catch (error) {
      waiter.failed(error)
    }
    return true
  }

  /** `undefined` when no page came in time. Neither a timer nor a listener stays behind. */
  #within(timeoutMs: number, signal: AbortSignal | undefined): Promise<MatchedPage | undefined> {
    if (signal?.aborted) return Promise.reject(signalFired(this.#what, signal))
    return new Promise((resolve, reject) => {
      const settle = (answer: () => void): void => {
        timer.cancel()
        signal?.removeEventListener("abort", abort)
        answer()
      }
      const waiter: Waiter = {
        got: (page) => settle(() => resolve(page)),
        failed: (error) => settle(() => reject(error)),
        ended: () => settle(() => reject(new ClosedError(`${this.#what} was shut down`))),
      }
      const leave = (answer: () => void): void => {
        const index = this.#waiters.indexOf(waiter)
        if (index < 0) return
        this.#waiters.splice(index, 1)
        settle(answer)
      }
      const abort = (): void => leave(() => reject(signalFired(this.#what, signal as AbortSignal)))
      const timer = this.#clock.setTimer(timeoutMs, () => leave(() => resolve(undefined)))
      signal?.addEventListener("abort", abort, { once: true })
      this.#wait(waiter)
    })
  }

  async #nextUnless(signal: AbortSignal): Promise<IteratorResult<MatchedPage, undefined>> {
    try {
      for (;;) {
        // After some weeks without a page the wait begins anew.
        const page = await this.#within(longestDurationMs, signal)
        if (page !== undefined) return { done: false, value: page }
      }
    } catch (error) {
      if (error instanceof ClosedError && this.#feed.ended) return { done: true, value: undefined }
      throw error
    }
  }

  /** Settles once what this makes of the acknowledged prefix is stored. */
  async #acknowledge(lane: Lane, offsets: readonly bigint[]): Promise<void> {
    for (const offset of offsets) {
      if (this.#ledger.acknowledge(lane, offset)) this.#feed.handled(lane, offset)
      else if (!lane.ranges.has(offset)) throw this.#notHandedOut(lane, offset)
    }
    if (!this.#ledger.has(lane)) this.#tellDrained(lane)
    const { prefix } = lane.ranges
    // Also for what was acknowledged before: the store of that may have failed.
    if (offsets.every((offset) => offset >= prefix)) return
    const { stream, topic, partition } = lane.partition
    const place = { stream, topic, partition, lineage: lane.machine.lineage, claim: lane.claim }
    await this.#consumer.commit(new Checkpoint(place, prefix - 1n))
  }

  #tellDrained(lane: FeedLane): void {
    this.#drains.get(lane)?.()
    this.#drains.delete(lane)
  }

  #laneOf(message: Message): { readonly lane: Lane; readonly offset: bigint } {
    if (this.#feed.ended) throw new ClosedError(`${this.#what} was shut down: acknowledging is not possible any more`)
    const { stream, topic, partition, offset, claim, lineage } = message.checkpoint()
    const place = { stream, topic, partition }
    const lane = this.#consumer.lane(place)
    const where = `offset ${offset} of partition ${partition} of topic "${topicText(place)}"`
    if (lane === undefined || lane.claim !== claim) {
      throw new NotAssignedError(`${this.#what}: ${where}: the partition is not assigned to this member any more`, {
        context: { ...place, offset },
      })
    }
    if (lane.machine.lineage !== lineage) {
      throw new HistoryChangedError(`${this.#what}: ${where}: the topic was purged or recreated since`, {
        context: { ...place, offset },
      })
    }
    return { lane, offset }
  }

  #notHandedOut({ partition }: Lane, offset: bigint): InvalidError {
    return new InvalidError(
      `${this.#what}: offset ${offset} of partition ${partition.partition} was not handed out by this reader, or not since it was moved`,
      { context: { ...partition, offset } },
    )
  }

  #full(): BufferFullError {
    const { unackedPages } = this.#settings
    return new BufferFullError(
      `${this.#what}: ${unackedPages} pages were handed out and are not acknowledged in full, which is the most (unackedPages): acknowledge some first`,
    )
  }
}
