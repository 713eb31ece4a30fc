import {
  type Claim,
  ClosedError,
  InvalidError,
  type MillraceError,
  NotAssignedError,
  TimeoutError,
  type TopicName,
  type TopicPartition,
} from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { topicKey, topicText } from "../client/names.ts"
import { longestDurationMs, shown } from "../client/options.ts"
import { type ContextOwner, callingAttempt, type Handler, outside } from "../handler/handler-context.ts"
import type { FeedUser } from "../handler/message-feed.ts"
import { runHandler } from "../handler/run-handler.ts"
import type { RunOptions } from "../handler/run-options.ts"
import type { Checkpoint } from "../record/checkpoint.ts"
import type { BatchMessage, Message } from "../record/message.ts"
import type { MessageBatch } from "../record/message-batch.ts"
import { RentedBatch } from "../record/rented-batch.ts"
import { acknowledgementOf } from "./commit-policy.ts"
import type { Consumer, Lag, StoredOffset } from "./consumer.ts"
import { type ConsumerEvents, ConsumerListeners } from "./consumer-events.ts"
import type { ConsumerSettings } from "./consumer-options.ts"
import { type ConsumerIdentity, ConsumerProgress } from "./consumer-progress.ts"
import { HandOver } from "./hand-over.ts"
import { HandlerFeed } from "./handler-feed.ts"
import type { Lane, Slice } from "./lane.ts"
import { LaneRunner } from "./lane-runner.ts"
import {
  BatchTaker,
  CancellableIterator,
  ConsumerIterator,
  MessageTaker,
  nextOf,
  nextWithinOf,
  type Taker,
} from "./message-iterator.ts"
import { OffsetControl } from "./offset-control.ts"
import type { ReadOperation } from "./read-operation.ts"
import { type RecordSource, wholeLog } from "./record-source.ts"
import type { StartAt } from "./start-at.ts"
import { Watchdog } from "./watchdog.ts"

const shutdownTimeoutMs = 5000

/** The consumer over a log, for one fixed partition or for those that a group membership gives and takes. */
export class LogConsumer implements Consumer {
  readonly #context: ClientContext
  readonly #identity: ConsumerIdentity
  readonly #encryptor: ConsumerSettings["encryptor"]
  readonly #records: RecordSource
  readonly #runner: LaneRunner
  readonly #handOver: HandOver
  readonly #messages: Taker<BatchMessage>
  readonly #batches: Taker<MessageBatch>
  readonly #progress: ConsumerProgress
  readonly #offsets: OffsetControl
  readonly #disown: () => void
  /** What is told of the partitions. */
  readonly listeners: ConsumerListeners
  #started = false
  readonly #watchdog: Watchdog
  #membership: { leave(): Promise<void>; wanted(): void } | undefined
  #feedUser: FeedUser | undefined
  #shutdown: Promise<void> | undefined

  constructor(context: ClientContext, identity: ConsumerIdentity, settings: ConsumerSettings) {
    this.#context = context
    this.#identity = identity
    this.#encryptor = settings.encryptor
    this.listeners = new ConsumerListeners((error) => this.#handOver.fail(error))
    this.#records = identity.records ?? wholeLog(context.session)
    this.#runner = this.#newRunner(settings)
    this.#progress = this.#newProgress(settings)
    this.#handOver = this.#newHandOver(settings)
    this.#offsets = this.#newOffsets()
    this.#messages = new MessageTaker(this.#handOver)
    this.#batches = new BatchTaker(this.#handOver)
    this.#watchdog = new Watchdog(this, context, settings)
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
    this.#start()
    return nextOf(this.#messages)
  }

  nextWithin(timeoutMs: number, options?: { readonly signal?: AbortSignal }): Promise<Message> {
    const { what } = this.#identity
    if (typeof timeoutMs !== "number" || !(timeoutMs >= 0) || timeoutMs > longestDurationMs) {
      const allowed = `a number of milliseconds from 0 to ${longestDurationMs}`
      return Promise.reject(new InvalidError(`${what}: nextWithin takes ${allowed}, not ${shown(timeoutMs)}`))
    }
    this.#start()
    return nextWithinOf(this.#messages, this.#context.clock, { what, timeoutMs, signal: options?.signal })
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
    this.#start()
    const { what } = this.#identity
    return new RentedBatch(await nextWithinOf(this.#batches, this.#context.clock, { what, signal: options?.signal }))
  }

  async seek(partition: number, to: StartAt | "skip"): Promise<void> {
    this.#refuseEnded("seek")
    this.#start()
    const [lane, ...more] = this.#lanesOf([partition])
    if (lane === undefined) return
    if (more.length > 0) throw this.#ambiguous(partition, [lane, ...more])
    this.#handOver.settle()
    // Behind what is stored: what is on its way to be counts.
    if (to !== "skip" && to?.kind === "next") await this.#progress.settled()
    await this.#runner.seek(lane, to, this.#progress.beforeSeek(lane))
  }

  pause(partitions?: readonly number[]): void {
    this.#refuseEnded("pause")
    this.#start()
    const lanes = this.#lanesOf(partitions)
    this.#runner.pause(lanes, { all: partitions === undefined })
  }

  resume(partitions?: readonly number[]): void {
    this.#refuseEnded("resume")
    this.#start()
    const lanes = this.#lanesOf(partitions)
    this.#runner.resume(lanes, { all: partitions === undefined })
    this.#feedUser?.ready()
  }

  on(listener: Partial<ConsumerEvents>): Disposable {
    const given = [...this.#runner.lanes].filter((lane) => lane.claim !== undefined && lane.live && !lane.draining)
    return this.listeners.add(
      listener,
      given.map((lane) => lane.partition),
    )
  }

  // ---- progress -------------------------------------------------------------------------------------------

  commit(what?: Message | Checkpoint): Promise<void> {
    return this.#offsets.commit(what)
  }

  storeOffset(offset: bigint, partition?: number, options?: { readonly resetPosition?: boolean }): Promise<void> {
    return this.#offsets.storeOffset(offset, partition, options)
  }

  deleteOffset(partition?: number): Promise<void> {
    return this.#offsets.deleteOffset(partition)
  }

  storedOffset(partition?: number): Promise<StoredOffset | undefined> {
    return this.#offsets.storedOffset(partition)
  }

  lastConsumedOffset(partition?: number): bigint | undefined {
    return this.#offsets.lastConsumedOffset(partition)
  }

  lastStoredOffset(partition?: number): bigint | undefined {
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

  // ---- the end --------------------------------------------------------------------------------------------

  shutdown(options?: { readonly timeoutMs?: number }): Promise<void> {
    const end = (): Promise<void> => this.#end({ last: true, timeoutMs: options?.timeoutMs })
    const caller = callingAttempt()?.owner as (ContextOwner & Partial<FeedUser>) | undefined
    if (caller === undefined || caller !== this.#feedUser) return end()
    // It waits for the handler that calls, which is why that one gets its answer at once: `run` tells how it went.
    caller.shutdownCalled()
    outside(end).catch(() => {})
    return Promise.resolve()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#end({ last: false, timeoutMs: undefined })
  }

  #end(options: { readonly last: boolean; readonly timeoutMs: number | undefined }): Promise<void> {
    this.#shutdown ??= this.#close(options.last, options.timeoutMs ?? shutdownTimeoutMs)
    return this.#shutdown
  }

  /** Everything is released, whatever fails on the way; the first failure is told. */
  async #close(last: boolean, timeoutMs: number): Promise<void> {
    const failures: unknown[] = []
    const attempt = async (doing: string, work: () => Promise<void> | undefined): Promise<void> => {
      try {
        await this.#within(timeoutMs, doing, work())
      } catch (error) {
        failures.push(error)
      }
    }
    this.#watchdog.close()
    // It keeps the deadline itself, and names what was still running.
    if (this.#feedUser !== undefined) await this.#feedUser.ending(timeoutMs).catch((error) => void failures.push(error))
    this.#handOver.end({ last })
    const finishStores = this.#progress.end()
    await attempt("storing its progress", () => this.#progress.settled())
    const unstored = finishStores()
    if (unstored !== undefined) failures.push(unstored)
    for (const lane of this.#runner.lanes) this.#handOver.drop(lane, { open: true })
    await attempt("ending its reader", () => this.#runner.close())
    this.#records.close()
    await attempt("leaving the group", () => this.#membership?.leave())
    this.#disown()
    if (failures.length > 0) throw failures[0]
  }

  async #within(timeoutMs: number, doing: string, work: Promise<void> | undefined): Promise<void> {
    if (work === undefined) return
    const expired = Promise.withResolvers<never>()
    const timer = this.#context.clock.setTimer(timeoutMs, () =>
      expired.reject(new TimeoutError(`${this.#identity.what}: shutdown spent ${timeoutMs} ms on ${doing}`)),
    )
    try {
      await Promise.race([work, expired.promise])
    } finally {
      timer.cancel()
    }
  }

  // ---- for who says itself what is handled ------------------------------------------------------------------

  run(handler: Handler, options?: RunOptions): Promise<void> {
    const consumer = {
      ...this.#identity,
      context: this.#context,
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
        for (const lane of this.#runner.lanes) lane.held = false
        for (const lane of lanes) {
          // Under `onRead` nothing that was handed out comes again.
          if (this.#progress.gate !== undefined) this.#handOver.handledThrough(lane, lane.handedNext as bigint)
          else if (lane.draining) this.#handOver.forgetOpen(lane)
          else if (lane.live) this.#runner.seekTo(lane, lane.ranges.prefix)
        }
        for (const lane of this.#runner.lanes) this.#handOver.offer(lane)
      },
      skip: (lane: Lane) => this.#runner.seek(lane, "skip", this.#progress.beforeSeek(lane)),
      released: () => {
        this.#feedUser = undefined
      },
    }
    const feed = new HandlerFeed(this.#handOver, host, user)
    this.#feedUser = user
    this.#start()
    return feed
  }

  // ---- for a group membership -----------------------------------------------------------------------------

  /** Whether the consumer was shut down. */
  get ended(): boolean {
    return this.#handOver.ended
  }

  /** Whether a caller, or a feed, waits for a message. */
  get waiting(): boolean {
    return this.#handOver.waiting
  }

  /** Another number whenever something was handed out or asked for. */
  get turns(): number {
    this.#handOver.settle()
    return this.#handOver.turns
  }

  /** Whether the caller has something that it was handed, and has not asked for more. */
  get inHand(): boolean {
    this.#handOver.settle()
    return this.#handOver.inHand
  }

  /** Whether a feed is open. */
  get feeding(): boolean {
    return this.#handOver.feeding
  }

  /** Whether nothing can be handed out before a store has succeeded. */
  get held(): boolean {
    return this.#progress.held
  }

  get lanes(): Iterable<Lane> {
    return this.#runner.lanes
  }

  /** What is read ahead of the caller: encoded bytes and records of batches that are not handed out in full. */
  get readAhead(): { readonly bytes: number; readonly records: number } {
    return this.#runner.readAhead
  }

  lane(partition: TopicPartition): Lane | undefined {
    return this.#runner.lane(partition)
  }

  /** Whom the shutdown leaves last, and who hears that somebody waits for a message. */
  joined(membership: { leave(): Promise<void>; wanted(): void }): void {
    this.#membership = membership
  }

  /** Reads these partitions too. Settles when each has a position. */
  gain(claims: readonly Claim[], options: { readonly later: boolean }): Promise<void> {
    this.#watchdog.start()
    if (options.later) this.#records.gained()
    return this.#runner.add(
      claims.map((claim) => ({ partition: placeOf(claim), claim })),
      options,
    )
  }

  /** Nothing more of the partition is handed out or read; its commits are still good. */
  stopHandingOut(lane: Lane): void {
    this.#runner.stop(lane)
    this.#handOver.drop(lane, { open: false })
  }

  /** Settles once nothing of the partition is handed out and unhandled. */
  async whenClear(lane: Lane): Promise<void> {
    // What a feed has taken and not begun does not hold the partition up.
    const idle = this.#feedUser?.draining(lane)
    const clear = this.#handOver.whenClear(lane)
    await (idle === undefined ? clear : Promise.race([clear, idle]))
  }

  /** Stores the handled prefix of the partition; settles when that is done, or the partition was dropped. */
  storeHandled(lane: Lane): Promise<void> {
    this.#handOver.settle()
    return this.#progress.release(lane)
  }

  /** What is read of these topics is selected otherwise from now on; what is handed out stays. */
  reselect(topics: readonly TopicName[]): void {
    if (this.#handOver.ended) return
    const keys = new Set(topics.map(topicKey))
    this.#handOver.settle()
    this.#runner.reselect([...this.#runner.lanes].filter((lane) => keys.has(topicKey(lane.partition))))
  }

  /** Reads on with a fresh reader, in the place of one that may hang. */
  renew(): void {
    this.#runner.refresh()
    for (const lane of this.#runner.lanes) this.#handOver.offer(lane)
    this.#handOver.serve()
  }

  /** The partition is not ours any more. */
  drop(lane: Lane): void {
    this.#runner.remove(lane)
    this.#handOver.drop(lane, { open: true })
    this.#progress.dropped(lane)
    this.#feedUser?.dropped(lane)
  }

  /** The next read fails with this. */
  fail(error: MillraceError): void {
    this.#handOver.fail(error)
  }

  /** Every read fails with this from now on. */
  failForGood(error: MillraceError): void {
    for (const lane of [...this.#runner.lanes]) this.drop(lane)
    this.#handOver.failForGood(error)
  }

  // ---- inside ---------------------------------------------------------------------------------------------

  #newRunner(settings: ConsumerSettings): LaneRunner {
    return new LaneRunner(this.#context, settings, this.#identity.owner, {
      started: (lane, start) => {
        lane.ranges.reset(start.offset)
        this.#progress.started(lane, start)
      },
      offered: (lane) => {
        this.#progress.offered(lane)
        this.#handOver.offer(lane)
      },
      withheld: (lane) => this.#handOver.hold(lane),
      passed: (lane, offset) => this.#handOver.handledOne(lane, offset),
      records: this.#records,
      dropped: (lane) => this.#dropped(lane),
      reselected: (lane) => this.#handOver.drop(lane, { open: false }),
      advanced: (lane, next) => {
        this.#handOver.extend(lane, next)
        this.#progress.advanced(lane, next)
      },
      sourceChanged: (lane, offset) => {
        this.#progress.sourceChanged(lane)
        this.listeners.tell("sourceChanged", { ...lane.partition, offset })
      },
      skipped: (lane, from, to) => this.#skipped(lane, from, to),
      pollFailed: (error) => this.#pollFailed(error),
      changed: () => this.#handOver.serve(),
    })
  }

  #newProgress(settings: ConsumerSettings): ConsumerProgress {
    const handOver = (): HandOver => this.#handOver
    const runner = this.#runner
    const host = {
      get lanes() {
        return runner.lanes
      },
      settle: () => handOver().settle(),
      offer: (lane: Lane) => handOver().offer(lane),
      failed: (error: MillraceError) => handOver().fail(error),
      idle: () => handOver().serve(),
    }
    return new ConsumerProgress(this.#context, { identity: this.#identity, settings }, host)
  }

  #newOffsets(): OffsetControl {
    const handOver = this.#handOver
    const runner = this.#runner
    const host = {
      get ended() {
        return handOver.ended
      },
      get lanes() {
        return runner.lanes
      },
      lane: (place: TopicPartition) => runner.lane(place),
      settle: () => handOver.settle(),
      mark: (lane: Lane, next: bigint) => handOver.handledThrough(lane, next),
      markOne: (lane: Lane, offset: bigint) => handOver.handledOne(lane, offset),
      seek: (lane: Lane, next: bigint) => runner.seekTo(lane, next),
    }
    return new OffsetControl(this.#context.session, { identity: this.#identity, progress: this.#progress }, host)
  }

  #newHandOver(settings: ConsumerSettings): HandOver {
    const progress = this.#progress
    const runner = this.#runner
    const host = {
      handled: (lane: Lane, count: number) =>
        progress.tell({ type: "handled", key: lane, next: lane.ranges.prefix, count }),
      pollStarted: (open: readonly Lane[]) => {
        const handed = open.map((lane) => ({ key: lane, next: lane.handedNext as bigint }))
        progress.tell({ type: "pollStarted", handed })
      },
      waited: () => this.#membership?.wanted(),
      finished: (slice: Slice) => runner.gaveBack(slice),
      errorTaken: (lane: Lane, error: MillraceError) => {
        if (progress.errorTaken(lane, error)) this.#handOver.offer(lane)
        else runner.errorTaken(lane)
      },
      get held() {
        return progress.held
      },
      get window() {
        return progress.window
      },
    }
    return new HandOver(host, settings.batchLength, acknowledgementOf(settings.commitPolicy))
  }

  #iterate<T>(taker: Taker<T>, signal: AbortSignal | undefined): AsyncIterator<T, undefined> {
    this.#start()
    return signal === undefined
      ? new ConsumerIterator(taker)
      : new CancellableIterator(taker, this.#identity.what, signal)
  }

  /** The partitions that numbers name among those that are read; without numbers all of them. */
  #lanesOf(partitions: readonly number[] | undefined): Lane[] {
    const lanes = [...this.#runner.lanes].filter((lane) => lane.live && !lane.draining)
    if (partitions === undefined) return lanes
    return partitions.flatMap((partition) => {
      const named = lanes.filter((lane) => lane.partition.partition === partition)
      if (named.length > 0) return named
      const { what, partition: fixed } = this.#identity
      throw fixed === undefined
        ? new NotAssignedError(`${what}: partition ${shown(partition)} is not assigned to this member`)
        : new InvalidError(`${what} reads partition ${fixed.partition}, not ${shown(partition)}`)
    })
  }

  #ambiguous(partition: number, lanes: readonly Lane[]): InvalidError {
    const topics = lanes.map((lane) => `"${topicText(lane.partition)}"`).join(", ")
    return new InvalidError(
      `${this.#identity.what}: partition ${partition} is read of several topics (${topics}): which one to move in is not clear`,
    )
  }

  /** What was read ahead is void, and reading goes on at the machine's offset: nothing from there on is handled. */
  #dropped(lane: Lane): void {
    this.#handOver.drop(lane, { open: true })
    lane.ranges.reset(lane.machine.offset)
    lane.handedNext = undefined
    lane.handedOffset = undefined
    this.#progress.moved(lane)
    this.#feedUser?.dropped(lane)
  }

  #refuseEnded(call: string): void {
    if (!this.#handOver.ended) return
    throw new ClosedError(`${this.#identity.what} was shut down: ${call} is not possible any more`)
  }

  #start(): void {
    if (this.#started || this.#handOver.ended) return
    this.#started = true
    this.#watchdog.start()
    const { partition } = this.#identity
    // A start that fails is handed out in its place by the partition itself.
    if (partition !== undefined) this.#runner.add([{ partition }], { later: false }).catch(() => {})
  }

  #skipped(lane: Lane, from: bigint, to: bigint): void {
    if (to >= from) this.#handOver.extend(lane, to)
    else {
      lane.ranges.reset(to)
      this.#progress.restarted(lane)
    }
    this.listeners.tell("skipped", { ...lane.partition, from, to, count: to > from ? to - from : 0n })
  }

  /** What may pass is tried again in silence. */
  #pollFailed(error: MillraceError): void {
    if (error.kind === "closed") this.#handOver.failForGood(error)
    else if (!error.retryable && !this.#handOver.failing) this.#handOver.fail(error)
  }
}

/** The bare partition, without what else an object carries. */
function placeOf({ stream, topic, partition }: TopicPartition): TopicPartition {
  return { stream, topic, partition }
}
