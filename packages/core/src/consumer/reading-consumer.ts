import type { Claim, MillraceError, TopicName, TopicPartition } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { topicKey } from "../client/names.ts"
import type { FeedUser } from "../handler/message-feed.ts"
import type { Lane, Slice } from "../partition/lane.ts"
import { LaneRunner } from "../partition/lane-runner.ts"
import { type RecordSource, wholeLog } from "../partition/record-source.ts"
import { acknowledgementOf } from "../progress/commit-policy.ts"
import { type ConsumerIdentity, ConsumerProgress } from "../progress/consumer-progress.ts"
import { UndecodedRecords } from "../typed/undecoded-records.ts"
import { ConsumerListeners } from "./consumer-events.ts"
import type { ConsumerSettings } from "./consumer-options.ts"
import { HandOver } from "./hand-over.ts"
import type { HandOverHost } from "./hand-over-host.ts"
import { Watchdog } from "./watchdog.ts"

/** A consumer's partitions: what is wired to what, and what its group membership, its watchdog and its filters have to do with it. */
export class ReadingConsumer {
  protected readonly context: ClientContext
  protected readonly identity: ConsumerIdentity
  protected readonly records: RecordSource
  protected readonly runner: LaneRunner
  protected readonly handOver: HandOver
  protected readonly progress: ConsumerProgress
  protected readonly watchdog: Watchdog
  /** Of a typed consumer. */
  protected readonly undecoded: UndecodedRecords | undefined
  protected membership: { leave(): Promise<void>; wanted(): void } | undefined
  protected feedUser: FeedUser | undefined
  /** What is told of the partitions. */
  readonly listeners: ConsumerListeners
  #started = false

  constructor(context: ClientContext, identity: ConsumerIdentity, settings: ConsumerSettings) {
    this.context = context
    this.identity = identity
    this.listeners = new ConsumerListeners((error) => this.handOver.fail(error))
    this.records = identity.records ?? wholeLog(context.session)
    this.runner = this.#newRunner(settings)
    this.progress = this.#newProgress(settings)
    this.undecoded = this.#newUndecoded(settings)
    this.handOver = this.#newHandOver(settings)
    this.watchdog = new Watchdog(this, context, settings)
  }

  /** Whether the consumer was shut down. */
  get ended(): boolean {
    return this.handOver.ended
  }

  /** Whether a caller, or a feed, waits for a message. */
  get waiting(): boolean {
    return this.handOver.waiting
  }

  /** Another number whenever something was handed out or asked for. */
  get turns(): number {
    this.handOver.settle()
    return this.handOver.turns
  }

  /** Whether the caller has something that it was handed, and has not asked for more. */
  get inHand(): boolean {
    this.handOver.settle()
    return this.handOver.inHand
  }

  /** Whether a feed is open. */
  get feeding(): boolean {
    return this.handOver.feeding
  }

  /** Whether who has the feed works on something of the partition. */
  working(lane: Lane): boolean {
    return this.feedUser?.working(lane) ?? false
  }

  /** Whether nothing can be handed out before a store has succeeded. */
  get held(): boolean {
    return this.progress.held
  }

  get lanes(): Iterable<Lane> {
    return this.runner.lanes
  }

  /** What is read ahead of the caller: encoded bytes and records of batches that are not handed out in full. */
  get readAhead(): { readonly bytes: number; readonly records: number } {
    return this.runner.readAhead
  }

  lane(partition: TopicPartition): Lane | undefined {
    return this.runner.lane(partition)
  }

  /** Whom the shutdown leaves last, and who hears that somebody waits for a message. */
  joined(membership: { leave(): Promise<void>; wanted(): void }): void {
    this.membership = membership
  }

  /** Reads these partitions too. Settles when each has a position. */
  gain(claims: readonly Claim[], options: { readonly later: boolean }): Promise<void> {
    this.watchdog.start()
    if (options.later) this.records.gained()
    return this.runner.add(
      claims.map((claim) => ({ partition: placeOf(claim), claim })),
      options,
    )
  }

  /** Nothing more of these partitions is handed out or read; their commits are still good. */
  stopHandingOut(lanes: readonly Lane[]): void {
    this.runner.stop(lanes)
    for (const lane of lanes) this.handOver.drop(lane, { open: false })
  }

  /** Settles once nothing of the partition is handed out and unhandled. */
  async whenClear(lane: Lane): Promise<void> {
    // What a feed has taken and not begun does not hold the partition up.
    const idle = this.feedUser?.draining(lane)
    const clear = this.handOver.whenClear(lane)
    await (idle === undefined ? clear : Promise.race([clear, idle]))
  }

  /** Stores the handled prefix of the partition; settles when that is done, or the partition was dropped. */
  storeHandled(lane: Lane): Promise<void> {
    this.handOver.settle()
    return this.progress.release(lane)
  }

  /** What is read of these topics is selected otherwise from now on; what is handed out stays. */
  reselect(topics: readonly TopicName[]): void {
    if (this.handOver.ended) return
    const keys = new Set(topics.map(topicKey))
    this.handOver.settle()
    this.runner.reselect([...this.runner.lanes].filter((lane) => keys.has(topicKey(lane.partition))))
  }

  /** Reads on with a fresh reader, in the place of one that may hang. */
  renew(): void {
    this.runner.refresh()
    for (const lane of this.runner.lanes) this.handOver.offer(lane)
    this.handOver.serve()
  }

  /** The partitions are not ours any more. All of them go before anybody can be served. */
  drop(lanes: readonly Lane[]): void {
    this.runner.remove(lanes)
    for (const lane of lanes) this.handOver.drop(lane, { open: true })
    for (const lane of lanes) this.progress.dropped(lane)
    for (const lane of lanes) this.feedUser?.dropped(lane)
  }

  /** The next read fails with this. */
  fail(error: MillraceError): void {
    this.handOver.fail(error)
  }

  /** Every read fails with this from now on. */
  failForGood(error: MillraceError): void {
    this.drop([...this.runner.lanes])
    this.handOver.failForGood(error)
  }

  /** Begins to read, unless that has begun. */
  protected start(): void {
    if (this.#started || this.handOver.ended) return
    this.#started = true
    this.watchdog.start()
    const { partition } = this.identity
    // A start that fails is handed out in its place by the partition itself.
    if (partition !== undefined) this.runner.add([{ partition }], { later: false }).catch(() => {})
  }

  // ---- inside ---------------------------------------------------------------------------------------------

  #newRunner(settings: ConsumerSettings): LaneRunner {
    return new LaneRunner(this.context, settings, this.identity.owner, {
      started: (lane, start) => {
        lane.ranges.reset(start.offset)
        this.progress.started(lane, start)
      },
      offered: (lane) => {
        this.progress.offered(lane)
        this.handOver.offer(lane)
      },
      withheld: (lane) => this.handOver.hold(lane),
      passed: (lane, offset) => this.handOver.handledOne(lane, offset),
      records: this.records,
      dropped: (lane) => this.#dropped(lane),
      reselected: (lane) => this.handOver.drop(lane, { open: false }),
      advanced: (lane, next) => {
        this.handOver.extend(lane, next)
        this.progress.advanced(lane, next)
      },
      sourceChanged: (lane, offset) => {
        this.progress.sourceChanged(lane)
        this.listeners.tell("sourceChanged", { ...lane.partition, offset })
      },
      skipped: (lane, from, to) => this.#skipped(lane, from, to),
      pollFailed: (error) => this.#pollFailed(error),
      changed: () => this.handOver.serve(),
    })
  }

  #newProgress(settings: ConsumerSettings): ConsumerProgress {
    const handOver = (): HandOver => this.handOver
    const runner = this.runner
    const host = {
      get lanes() {
        return runner.lanes
      },
      settle: () => handOver().settle(),
      offer: (lane: Lane) => handOver().offer(lane),
      doubted: (lane: Lane) => runner.doubt(lane),
      failed: (error: MillraceError) => handOver().fail(error),
      idle: () => handOver().serve(),
    }
    return new ConsumerProgress(this.context, { identity: this.identity, settings }, host)
  }

  #newHandOver(settings: ConsumerSettings): HandOver {
    const progress = this.progress
    const runner = this.runner
    const undecoded = this.undecoded
    const host: HandOverHost = {
      prepared: (lane, slice) => undecoded?.prepared(lane, slice) ?? true,
      fateOf: (lane, message) => undecoded?.fateOf(lane, message) ?? "told",
      deal: (lane, message, error) => undecoded?.deal(lane, message, error),
      passedOver: (lane, message, error) => undecoded?.passedOver(lane, message, error),
      handled: (lane: Lane, count: number) =>
        progress.tell({ type: "handled", key: lane, next: lane.ranges.prefix, count }),
      pollStarted: (open: readonly Lane[]) => {
        const handed = open.map((lane) => ({ key: lane, next: lane.handedNext as bigint }))
        progress.tell({ type: "pollStarted", handed })
      },
      waited: () => this.membership?.wanted(),
      finished: (slice: Slice) => runner.gaveBack(slice),
      errorTaken: (lane: Lane, error: MillraceError) => {
        if (progress.errorTaken(lane, error)) this.handOver.offer(lane)
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

  #newUndecoded(settings: ConsumerSettings): UndecodedRecords | undefined {
    const { decoding, encryptor, retryIntervalMs } = settings
    if (decoding === undefined) return undefined
    const { what, owner } = this.identity
    const facts = { what, owner, encryptor, retryIntervalMs }
    return new UndecodedRecords(
      this.context,
      { facts, decoding },
      {
        resumed: (lane) => {
          this.handOver.offer(lane)
          this.handOver.serve()
        },
        failed: (error) => this.handOver.fail(error),
        skipped: (lane, offset, error) => {
          const skip = { ...lane.partition, from: offset, to: offset + 1n, count: 1n, error }
          this.listeners.tell("skipped", skip)
        },
      },
    )
  }

  /** What was read ahead is void, and reading goes on at the machine's offset: nothing from there on is handled. */
  #dropped(lane: Lane): void {
    this.handOver.drop(lane, { open: true })
    lane.ranges.reset(lane.machine.offset)
    lane.handedNext = undefined
    lane.handedOffset = undefined
    lane.suspended = undefined
    lane.dealtWith = undefined
    this.progress.moved(lane)
    this.feedUser?.dropped(lane)
  }

  #skipped(lane: Lane, from: bigint, to: bigint): void {
    if (to >= from) this.handOver.extend(lane, to)
    else {
      // What was handed out or read ahead from there on is not in the log any more.
      this.#dropped(lane)
      this.progress.restarted(lane)
    }
    this.listeners.tell("skipped", { ...lane.partition, from, to, count: to > from ? to - from : 0n })
  }

  /** What may pass is tried again in silence. */
  #pollFailed(error: MillraceError): void {
    if (error.kind === "closed") this.handOver.failForGood(error)
    else if (!error.retryable && !this.handOver.failing) this.handOver.fail(error)
  }
}

/** The bare partition, without what else an object carries. */
function placeOf({ stream, topic, partition }: TopicPartition): TopicPartition {
  return { stream, topic, partition }
}
