import { ClosedError, InvalidError, type Session, TimeoutError, type TopicPartition } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { longestDurationMs, OptionReader, shown } from "../client/options.ts"
import { type ContextOwner, callingAttempt, type Handler, outside } from "../handler/handler-context.ts"
import type { FeedUser } from "../handler/message-feed.ts"
import { runHandler } from "../handler/run-handler.ts"
import type { RunOptions } from "../handler/run-options.ts"
import type { Lane } from "../partition/lane.ts"
import type { StartAt } from "../partition/start-at.ts"
import type { ConsumerIdentity } from "../progress/consumer-progress.ts"
import { OffsetControl } from "../progress/offset-control.ts"
import type { ReadOperation } from "../progress/read-operation.ts"
import type { OffsetSource, TransactedOffsets } from "../progress/transacted-offsets.ts"
import type { Checkpoint } from "../record/checkpoint.ts"
import type { BatchMessage, Message } from "../record/message.ts"
import type { MessageBatch } from "../record/message-batch.ts"
import { RentedBatch } from "../record/rented-batch.ts"
import type { DecodeFailures } from "../typed/decoding.ts"
import type { Consumer, Lag, StoredOffset } from "./consumer.ts"
import type { ConsumerEvents } from "./consumer-events.ts"
import type { ConsumerSettings } from "./consumer-options.ts"
import { HandlerFeed } from "./handler-feed.ts"
import { BatchTaker, ConsumerIterator, MessageTaker, nextOf, nextWithinOf, type Taker } from "./message-iterator.ts"
import { ambiguous, isMeant, notRead, type PartitionRef } from "./partition-ref.ts"
import { ReadingConsumer } from "./reading-consumer.ts"

const shutdownTimeoutMs = 5000
const noFailures: DecodeFailures = { told: 0, skipped: 0, deliveredRaw: 0, deadLettered: 0 }

/** The consumer over a log, for one fixed partition or for those that a group membership gives and takes. */
export class LogConsumer extends ReadingConsumer implements Consumer, OffsetSource {
  readonly #encryptor: ConsumerSettings["encryptor"]
  readonly #messages: Taker<BatchMessage>
  readonly #batches: Taker<MessageBatch>
  readonly #offsets: OffsetControl
  readonly #disown: () => void
  #shutdown: Promise<void> | undefined

  constructor(context: ClientContext, identity: ConsumerIdentity, settings: ConsumerSettings) {
    super(context, identity, settings)
    this.#encryptor = settings.encryptor
    this.#offsets = this.#newOffsets()
    this.#messages = new MessageTaker(this.handOver)
    this.#batches = new BatchTaker(this.handOver)
    // The client's close is the end of a scope like any other: it may be an exception that ends it.
    const disown = context.own({ shutdown: (options) => this.#end({ last: false, timeoutMs: options?.timeoutMs }) })
    const deafen = context.connection.listen((change) => {
      const { state } = change
      if (state === "restored") this.listeners.tell("reconnected", { server: change.server, afterMs: change.afterMs })
    })
    this.#disown = () => {
      deafen()
      disown()
    }
  }

  // ---- reading --------------------------------------------------------------------------------------------

  next(): Promise<IteratorResult<Message, undefined>> {
    this.start()
    return nextOf(this.#messages)
  }

  nextWithin(timeoutMs: number, options?: { readonly signal?: AbortSignal }): Promise<Message> {
    const { what } = this.identity
    if (typeof timeoutMs !== "number" || !(timeoutMs >= 0) || timeoutMs > longestDurationMs) {
      const allowed = `a number of milliseconds from 0 to ${longestDurationMs}`
      return Promise.reject(new InvalidError(`${what}: nextWithin takes ${allowed}, not ${shown(timeoutMs)}`))
    }
    this.start()
    return nextWithinOf(this.#messages, this.context.clock, { what, timeoutMs, signal: options?.signal })
  }

  [Symbol.asyncIterator](): AsyncIterator<Message, undefined> {
    return this.#iterate(this.#messages, undefined)
  }

  stream(options?: { readonly signal?: AbortSignal }): AsyncIterable<Message> {
    return { [Symbol.asyncIterator]: () => this.#iterate(this.#messages, options?.signal) }
  }

  batches(options?: { readonly signal?: AbortSignal }): AsyncIterable<MessageBatch> {
    return { [Symbol.asyncIterator]: () => this.#iterate(this.#batches, options?.signal) }
  }

  async receiveRented(options?: { readonly signal?: AbortSignal }): Promise<RentedBatch> {
    this.start()
    const { what } = this.identity
    return new RentedBatch(await nextWithinOf(this.#batches, this.context.clock, { what, signal: options?.signal }))
  }

  async seek(partition: PartitionRef, to: StartAt | "skip"): Promise<void> {
    this.#refuseEnded("seek")
    this.start()
    const [lane, ...more] = this.#lanesOf([partition])
    if (lane === undefined) return
    if (more.length > 0)
      throw ambiguous(
        this.identity.what,
        partition,
        [lane, ...more].map((one) => one.partition),
      )
    this.handOver.settle()
    // Behind what is stored: what is on its way to be counts.
    if (to !== "skip" && to?.kind === "next") await this.progress.settled()
    await this.runner.seek(lane, to, this.progress.beforeSeek(lane))
  }

  pause(partitions?: readonly PartitionRef[]): void {
    this.#refuseEnded("pause")
    this.start()
    const lanes = this.#lanesOf(partitions)
    this.runner.pause(lanes, { all: partitions === undefined })
  }

  resume(partitions?: readonly PartitionRef[]): void {
    this.#refuseEnded("resume")
    this.start()
    const lanes = this.#lanesOf(partitions)
    this.runner.resume(lanes, { all: partitions === undefined })
    this.feedUser?.ready()
  }

  on(listener: Partial<ConsumerEvents>): Disposable {
    const given = [...this.runner.lanes].filter((lane) => lane.claim !== undefined && lane.live && !lane.draining)
    return this.listeners.add(
      listener,
      given.map((lane) => lane.partition),
    )
  }

  // ---- progress -------------------------------------------------------------------------------------------

  commit(what?: Message | Checkpoint): Promise<void> {
    return this.#offsets.commit(what)
  }

  storeOffset(offset: bigint, partition?: PartitionRef, options?: { readonly resetPosition?: boolean }): Promise<void> {
    return this.#offsets.storeOffset(offset, partition, options)
  }

  deleteOffset(partition?: PartitionRef): Promise<void> {
    return this.#offsets.deleteOffset(partition)
  }

  storedOffset(partition?: PartitionRef): Promise<StoredOffset | undefined> {
    return this.#offsets.storedOffset(partition)
  }

  lastConsumedOffset(partition?: PartitionRef): bigint | undefined {
    return this.#offsets.lastConsumedOffset(partition)
  }

  lastStoredOffset(partition?: PartitionRef): bigint | undefined {
    return this.#offsets.lastStoredOffset(partition)
  }

  lag(): Promise<Lag[]> {
    return this.#offsets.lag()
  }

  mark(what: Message | Checkpoint): void {
    this.#offsets.mark(what)
  }

  resolve(operation: ReadOperation, options?: { readonly timeoutMs?: number }): Promise<boolean> {
    return this.#offsets.resolve(operation, options)
  }

  abandon(operation: ReadOperation): void {
    this.#offsets.abandon(operation)
  }

  // ---- for transactions -----------------------------------------------------------------------------------

  get offsetSession(): Session {
    return this.context.session
  }

  transact(what: readonly (Message | Checkpoint)[]): TransactedOffsets {
    return this.#offsets.transact(what)
  }

  /** The progress behind everything that was handed out of these partitions, but for what lies behind a limit. */
  transactHanded(lanes: Iterable<Lane>, limitOf: (lane: Lane) => bigint | undefined): TransactedOffsets {
    return this.#offsets.transactHanded(lanes, limitOf)
  }

  // ---- the end --------------------------------------------------------------------------------------------

  shutdown(options?: { readonly timeoutMs?: number }): Promise<void> {
    const end = (): Promise<void> => this.#end({ last: true, timeoutMs: options?.timeoutMs })
    const caller = callingAttempt()?.owner as (ContextOwner & Partial<FeedUser>) | undefined
    if (caller === undefined || caller !== this.feedUser) return end()
    // It waits for the handler that calls, which is why that one gets its answer at once: `run` tells how it went.
    caller.shutdownCalled()
    outside(end).catch(() => {})
    return Promise.resolve()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#end({ last: false, timeoutMs: undefined })
  }

  #end(options: { readonly last: boolean; readonly timeoutMs: number | undefined }): Promise<void> {
    try {
      this.#shutdown ??= this.#close(options.last, this.#shutdownTime(options.timeoutMs))
    } catch (error) {
      return Promise.reject(error)
    }
    return this.#shutdown
  }

  #shutdownTime(timeoutMs: number | undefined): number {
    const reader = new OptionReader(`${this.identity.what}: shutdown`, { timeoutMs }, ["timeoutMs"])
    return reader.duration("timeoutMs", { zero: true, fallback: shutdownTimeoutMs })
  }

  /** Everything is released, whatever fails on the way; the first failure is told. */
  async #close(last: boolean, timeoutMs: number): Promise<void> {
    const failures: unknown[] = []
    const deadlineMs = this.context.clock.monotonicMs() + timeoutMs
    const attempt = async (doing: string, work: () => Promise<void> | undefined): Promise<void> => {
      try {
        await this.#within({ timeoutMs, deadlineMs }, doing, work())
      } catch (error) {
        failures.push(error)
      }
    }
    this.watchdog.close()
    this.undecoded?.close()
    // It keeps the deadline itself, and names what was still running.
    if (this.feedUser !== undefined) await this.feedUser.ending(timeoutMs).catch((error) => void failures.push(error))
    this.handOver.end({ last })
    const finishStores = this.progress.end()
    await attempt("storing its progress", () => this.progress.settled())
    const unstored = finishStores()
    if (unstored !== undefined) failures.push(unstored)
    for (const lane of this.runner.lanes) this.handOver.drop(lane, { open: true })
    await attempt("ending its reader", () => this.runner.close())
    this.records.close()
    await attempt("sending dead letters", () => this.undecoded?.settled())
    await attempt("leaving the group", () => this.membership?.leave())
    this.#disown()
    if (failures.length > 0) throw failures[0]
  }

  async #within(
    { timeoutMs, deadlineMs }: { readonly timeoutMs: number; readonly deadlineMs: number },
    doing: string,
    work: Promise<void> | undefined,
  ): Promise<void> {
    if (work === undefined) return
    const expired = Promise.withResolvers<never>()
    const { clock } = this.context
    const timer = clock.setTimer(Math.max(0, deadlineMs - clock.monotonicMs()), () =>
      expired.reject(new TimeoutError(`${this.identity.what}: shutdown spent ${timeoutMs} ms on ${doing}`)),
    )
    try {
      await Promise.race([work, expired.promise])
    } finally {
      timer.cancel()
    }
  }

  /** Of a typed consumer; zeros otherwise. */
  get decodeFailures(): DecodeFailures {
    return this.undecoded?.failures ?? noFailures
  }

  // ---- for who says itself what is handled ------------------------------------------------------------------

  run(handler: Handler, options?: RunOptions): Promise<void> {
    const consumer = {
      ...this.identity,
      context: this.context,
      encryptor: this.#encryptor,
      feed: (user: FeedUser) => this.feed(user),
      closing: () => this.#shutdown,
    }
    return runHandler(consumer, handler, options)
  }

  /**
   * Opens a feed: whoever has it says of each message when it is handled.
   * @throws InvalidError when another one is open, or somebody waits for a message; ClosedError
   */
  feed(user: FeedUser): HandlerFeed {
    this.#refuseEnded("run")
    const host = {
      rewind: (lanes: readonly Lane[]) => {
        for (const lane of this.runner.lanes) lane.held = false
        for (const lane of lanes) {
          // Under `onRead` nothing that was handed out comes again.
          if (this.progress.gate !== undefined) this.handOver.handledThrough(lane, lane.handedNext as bigint)
          else if (lane.draining) this.handOver.forgetOpen(lane)
          else this.runner.rewind(lane)
        }
        for (const lane of this.runner.lanes) this.handOver.offer(lane)
      },
      skip: (lane: Lane) => this.runner.seek(lane, "skip", this.progress.beforeSeek(lane)),
      released: () => {
        this.feedUser = undefined
      },
    }
    const feed = new HandlerFeed(this.handOver, host, user)
    this.feedUser = user
    this.start()
    return feed
  }

  // ---- inside ---------------------------------------------------------------------------------------------

  #newOffsets(): OffsetControl {
    const handOver = this.handOver
    const runner = this.runner
    const host = {
      get ended() {
        return handOver.ended
      },
      get lanes() {
        return runner.lanes
      },
      start: () => this.start(),
      lane: (place: TopicPartition) => runner.lane(place),
      settle: () => handOver.settle(),
      mark: (lane: Lane, next: bigint) => handOver.handledThrough(lane, next),
      markOne: (lane: Lane, offset: bigint) => handOver.handledOne(lane, offset),
      seek: (lane: Lane, next: bigint) => runner.seekTo(lane, next),
    }
    return new OffsetControl(this.context.session, { identity: this.identity, progress: this.progress }, host)
  }

  #iterate<T>(taker: Taker<T>, signal: AbortSignal | undefined): AsyncIterator<T, undefined> {
    this.start()
    return new ConsumerIterator(taker, this.identity.what, signal)
  }

  /** The partitions that numbers name among those that are read; without numbers all of them. */
  #lanesOf(partitions: readonly PartitionRef[] | undefined): Lane[] {
    const lanes = [...this.runner.lanes].filter((lane) => lane.live && !lane.draining)
    if (partitions === undefined) return lanes
    return partitions.flatMap((partition) => {
      const named = lanes.filter((lane) => isMeant(partition, lane.partition))
      if (named.length > 0) return named
      throw notRead(this.identity, partition)
    })
  }

  #refuseEnded(call: string): void {
    if (!this.handOver.ended) return
    throw new ClosedError(`${this.identity.what} was shut down: ${call} is not possible any more`)
  }
}
