import { type Claim, InvalidError, type MillraceError, TimeoutError, type TopicPartition } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { longestDurationMs, shown } from "../client/options.ts"
import type { Checkpoint } from "../record/checkpoint.ts"
import type { Message } from "../record/message.ts"
import type { Consumer, Lag, StoredOffset } from "./consumer.ts"
import { type ConsumerEvents, ConsumerListeners } from "./consumer-events.ts"
import type { ConsumerSettings } from "./consumer-options.ts"
import { type ConsumerIdentity, ConsumerProgress } from "./consumer-progress.ts"
import { HandOver } from "./hand-over.ts"
import type { Lane, Slice } from "./lane.ts"
import { LaneRunner } from "./lane-runner.ts"
import { CancellableIterator, MessageIterator, nextOf, nextWithinOf } from "./message-iterator.ts"

const shutdownTimeoutMs = 5000

/** The consumer over a log, for one fixed partition or for those that a group membership gives and takes. */
export class LogConsumer implements Consumer {
  readonly #context: ClientContext
  readonly #identity: ConsumerIdentity
  readonly #runner: LaneRunner
  readonly #handOver: HandOver
  readonly #progress: ConsumerProgress
  readonly #disown: () => void
  /** What is told of the partitions. */
  readonly listeners: ConsumerListeners
  #started = false
  #leave: (() => Promise<void>) | undefined
  #shutdown: Promise<void> | undefined

  constructor(context: ClientContext, identity: ConsumerIdentity, settings: ConsumerSettings) {
    this.#context = context
    this.#identity = identity
    this.listeners = new ConsumerListeners((error) => this.#handOver.fail(error))
    this.#runner = this.#newRunner(settings)
    this.#progress = this.#newProgress(settings)
    this.#handOver = this.#newHandOver(settings)
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
    return nextOf(this.#handOver)
  }

  nextWithin(timeoutMs: number, options?: { readonly signal?: AbortSignal }): Promise<Message> {
    const { what } = this.#identity
    if (typeof timeoutMs !== "number" || !(timeoutMs >= 0) || timeoutMs > longestDurationMs) {
      const allowed = `a number of milliseconds from 0 to ${longestDurationMs}`
      return Promise.reject(new InvalidError(`${what}: nextWithin takes ${allowed}, not ${shown(timeoutMs)}`))
    }
    this.#start()
    return nextWithinOf(this.#handOver, this.#context.clock, { what, timeoutMs, signal: options?.signal })
  }

  [Symbol.asyncIterator](): AsyncIterator<Message, undefined> {
    this.#start()
    return new MessageIterator(this.#handOver)
  }

  stream(options?: { readonly signal?: AbortSignal }): AsyncIterable<Message> {
    const signal = options?.signal
    if (signal === undefined) return { [Symbol.asyncIterator]: () => this[Symbol.asyncIterator]() }
    return {
      [Symbol.asyncIterator]: () => {
        this.#start()
        return new CancellableIterator(this.#handOver, this.#identity.what, signal)
      },
    }
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
    return this.#progress.commit(what)
  }

  storeOffset(offset: bigint, partition?: number, options?: { readonly resetPosition?: boolean }): Promise<void> {
    return this.#progress.storeOffset(offset, partition, options)
  }

  deleteOffset(partition?: number): Promise<void> {
    return this.#progress.deleteOffset(partition)
  }

  storedOffset(partition?: number): Promise<StoredOffset | undefined> {
    return this.#progress.storedOffset(partition)
  }

  lastConsumedOffset(partition?: number): bigint | undefined {
    return this.#progress.lastConsumedOffset(partition)
  }

  lastStoredOffset(partition?: number): bigint | undefined {
    return this.#progress.lastStoredOffset(partition)
  }

  lag(): Promise<Lag[]> {
    return this.#progress.lag()
  }

  // ---- the end --------------------------------------------------------------------------------------------

  shutdown(options?: { readonly timeoutMs?: number }): Promise<void> {
    return this.#end({ last: true, timeoutMs: options?.timeoutMs })
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
    this.#handOver.end({ last })
    const finishStores = this.#progress.end()
    await attempt("storing its progress", () => this.#progress.settled())
    const unstored = finishStores()
    if (unstored !== undefined) failures.push(unstored)
    for (const lane of this.#runner.lanes) this.#handOver.drop(lane, { open: true })
    await attempt("ending its reader", () => this.#runner.close())
    await attempt("leaving the group", () => this.#leave?.())
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

  // ---- for a group membership -----------------------------------------------------------------------------

  /** Whether the consumer was shut down. */
  get ended(): boolean {
    return this.#handOver.ended
  }

  /** Reads these partitions too. Settles when each has a position. */
  gain(claims: readonly Claim[], options: { readonly later: boolean }): Promise<void> {
    return this.#runner.add(
      claims.map((claim) => ({ partition: placeOf(claim), claim })),
      options,
    )
  }

  /** What the shutdown has to do last. */
  onLeave(leave: () => Promise<void>): void {
    this.#leave = leave
  }

  lane(partition: TopicPartition): Lane | undefined {
    return this.#runner.lane(partition)
  }

  /** Nothing more of the partition is handed out. Settles once its progress is stored: with what was handed out, if that is handled before `patience` settles. */
  async drain(lane: Lane, patience: Promise<void>): Promise<void> {
    this.#runner.pause(lane)
    this.#handOver.drop(lane, { open: false })
    await Promise.race([this.#handOver.whenClear(lane), patience])
    if (!lane.live) return
    this.#progress.tell({ type: "released", key: lane })
    await this.#progress.settled()
  }

  /** The partition is not ours any more. */
  drop(lane: Lane): void {
    this.#runner.remove(lane)
    this.#handOver.drop(lane, { open: true })
    this.#progress.dropped(lane)
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
      started: (lane, start) => this.#progress.started(lane, start),
      offered: (lane) => this.#handOver.offer(lane),
      dropped: (lane) => this.#handOver.drop(lane, { open: true }),
      advanced: (lane, next) => this.#handOver.extend(lane, next),
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
      get ended() {
        return handOver().ended
      },
      get lanes() {
        return runner.lanes
      },
      lane: (place: TopicPartition) => runner.lane(place),
      settle: () => handOver().settle(),
      mark: (lane: Lane, next: bigint) => handOver().mark(lane, next),
      seek: (lane: Lane, next: bigint) => runner.seek(lane, next),
      failed: (error: MillraceError) => handOver().fail(error),
      idle: () => handOver().serve(),
    }
    return new ConsumerProgress(this.#context, { identity: this.#identity, settings }, host)
  }

  #newHandOver(settings: ConsumerSettings): HandOver {
    const progress = this.#progress
    const runner = this.#runner
    const host = {
      handled: (lane: Lane, next: bigint, open: number) => progress.tell({ type: "handled", key: lane, next, open }),
      pollStarted: (open: number) => progress.tell({ type: "pollStarted", open }),
      finished: (slice: Slice) => runner.gaveBack(slice),
      errorTaken: (lane: Lane) => runner.errorTaken(lane),
      get held() {
        return progress.held
      },
    }
    return new HandOver(host, settings.batchLength, { one: settings.commitPolicy.kind === "each" })
  }

  #start(): void {
    if (this.#started || this.#handOver.ended) return
    this.#started = true
    const { partition } = this.#identity
    // A start that fails is handed out in its place by the partition itself.
    if (partition !== undefined) this.#runner.add([{ partition }], { later: false }).catch(() => {})
  }

  #skipped(lane: Lane, from: bigint, to: bigint): void {
    if (to >= from) this.#handOver.extend(lane, to)
    else this.#progress.restarted(lane)
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
