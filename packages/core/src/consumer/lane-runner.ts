/**
 * Runs the partition readers of one consumer: carries out what their machines command (start, set, locate, wait) with the driver and the
 * clock, and brings the answers back. Everything that happens ends in `#flush`, so that one event makes at most one `set`.
 */
import {
  type Claim,
  ClosedError,
  MillraceError,
  NotFoundError,
  type OffsetOwner,
  type PartitionRead,
  type TopicPartition,
  type Watermarks,
} from "@millrace/contract"
import type { Timer } from "@millrace/runtime"
import type { ClientContext } from "../client/context.ts"
import type { RecordOpener } from "../encryption/encryptor.ts"
import { openerOf } from "../encryption/sealing.ts"
import type { MessageSource } from "../record/message.ts"
import type { ConsumerSettings } from "./consumer-options.ts"
import { asMillraceError } from "./failure.ts"
import { Fetcher } from "./fetcher.ts"
import { Lane, laneKey, type Slice } from "./lane.ts"
import type { PartitionReaderCommand, PartitionReaderPolicy } from "./partition-reader.machine.ts"
import { checkPartition, findStarts, type StartPosition } from "./start-position.ts"

interface LaneHost {
  /** The partition's start is found; reading begins. */
  started(lane: Lane, start: StartPosition): void
  /** There is something to hand out. */
  offered(lane: Lane): void
  /** What was read ahead is void. */
  dropped(lane: Lane): void
  advanced(lane: Lane, next: bigint): void
  sourceChanged(lane: Lane, offset: bigint): void
  skipped(lane: Lane, from: bigint, to: bigint): void
  pollFailed(error: MillraceError): void
  /** After every change: callers may be served. */
  changed(): void
}

export class LaneRunner {
  readonly #context: ClientContext
  readonly #settings: ConsumerSettings
  readonly #owner: OffsetOwner | undefined
  readonly #host: LaneHost
  readonly #policy: PartitionReaderPolicy
  readonly #opener: RecordOpener | undefined
  readonly #lanes = new Map<string, Lane>()
  readonly #timers = new Map<Lane, Timer>()
  readonly #onStarted = new Map<Lane, (error: MillraceError | undefined) => void>()
  #fetcher: Fetcher | undefined
  #toSet = false
  #toStart: Lane[] = []
  #toLocate: Lane[] = []
  #closed = false

  constructor(context: ClientContext, settings: ConsumerSettings, owner: OffsetOwner | undefined, host: LaneHost) {
    this.#context = context
    this.#settings = settings
    this.#owner = owner
    this.#host = host
    this.#opener = openerOf(context, settings.encryptor)
    this.#policy = { ...settings, holes: context.session.manifest.read.holes }
  }

  get lanes(): Iterable<Lane> {
    return this.#lanes.values()
  }

  lane(partition: TopicPartition): Lane | undefined {
    return this.#lanes.get(laneKey(partition))
  }

  /**
   * Takes partitions in: each is read once its start is found. Settles when that is so for all of them; rejects with the error of the
   * first that failed, which is also handed out in its place.
   */
  async add(
    partitions: readonly { readonly partition: TopicPartition; readonly claim?: Claim }[],
    { later }: { readonly later: boolean },
  ): Promise<void> {
    if (this.#closed) throw endedBeforeStart()
    const starts = partitions.map(({ partition, claim }) => {
      const known = this.lane(partition)
      if (known !== undefined) this.remove(known)
      const lane = new Lane(partition, this.#policy, { claim, gainedLater: later })
      this.#lanes.set(lane.key, lane)
      this.#toStart.push(lane)
      return new Promise<MillraceError | undefined>((resolve) => this.#onStarted.set(lane, resolve))
    })
    this.#flush()
    const failed = (await Promise.all(starts)).find((error) => error !== undefined)
    if (failed !== undefined) throw failed
  }

  /** Stops reading a partition, but keeps it for commits until `remove`. */
  pause(lane: Lane): void {
    lane.draining = true
    lane.machine.handle({ type: "close" })
    this.#timers.get(lane)?.cancel()
    this.#timers.delete(lane)
    this.#tellStarted(lane, undefined)
    this.#toSet = true
    this.#flush()
  }

  /** Forgets a partition. Answers of the driver that come later are dropped. */
  remove(lane: Lane): void {
    lane.live = false
    if (this.#lanes.get(lane.key) === lane) this.#lanes.delete(lane.key)
    this.pause(lane)
  }

  seek(lane: Lane, offset: bigint): void {
    this.#execute(lane, lane.machine.handle({ type: "seek", offset, polling: this.#polling }))
    this.#flush()
  }

  /** The error of the partition was handed out: try again after a while. */
  errorTaken(lane: Lane): void {
    this.#execute(lane, lane.machine.handle({ type: "errorTaken", atMs: this.#now }))
  }

  gaveBack(slice: Slice): void {
    this.#fetcher?.gaveBack(slice)
  }

  /** Ends reading; whoever waits for a start is told that none comes. Settles when no poll is under way. */
  async close(): Promise<void> {
    this.#closed = true
    for (const timer of this.#timers.values()) timer.cancel()
    this.#timers.clear()
    for (const lane of [...this.#onStarted.keys()]) this.#tellStarted(lane, endedBeforeStart())
    await this.#fetcher?.close()
  }

  get #now(): number {
    return this.#context.clock.monotonicMs()
  }
  get #polling(): boolean {
    return this.#fetcher?.polling ?? false
  }

  #read(answer: readonly PartitionRead[]): void {
    for (const part of answer) {
      const lane = this.lane(part)
      if (lane === undefined) continue
      if (part.error === undefined) {
        this.#execute(lane, lane.machine.handle({ type: "read", ...part }), part.head)
      } else {
        if (part.error instanceof NotFoundError) this.#context.topics.forget(lane.partition)
        this.#execute(lane, lane.machine.handle({ type: "readFailed", error: part.error, atMs: this.#now }))
      }
    }
    this.#flush()
  }

  #execute(lane: Lane, commands: readonly PartitionReaderCommand[], end = 0n): void {
    for (const command of commands) {
      switch (command.type) {
        case "accept":
          this.#accept(lane, command, end)
          break
        case "advance":
          this.#host.advanced(lane, command.next)
          break
        case "set":
          this.#toSet = true
          break
        case "start":
          this.#toStart.push(lane)
          break
        case "locate":
          this.#toLocate.push(lane)
          break
        case "drop":
          this.#host.dropped(lane)
          break
        case "sourceChanged":
          this.#context.topics.forget(lane.partition)
          this.#host.sourceChanged(lane, command.offset)
          break
        case "skipped":
          this.#host.skipped(lane, command.from, command.to)
          break
        case "fail":
          lane.error = command.error
          this.#tellStarted(lane, command.error)
          this.#host.offered(lane)
          break
        case "wake":
          this.#wakeAt(lane, command.atMs)
          break
      }
    }
  }

  #accept(lane: Lane, { batch, from, after }: PartitionReaderCommand & { type: "accept" }, end: bigint): void {
    const { stream, topic, partition } = lane.partition
    const { claim, machine } = lane
    const { lineage } = machine
    const source: MessageSource = { batch, stream, topic, partition, lineage, claim, end, opener: this.#opener }
    const slice: Slice = { source, count: batch.count, index: from, after, next: undefined }
    this.#fetcher?.took(slice)
    lane.push(slice)
    this.#host.offered(lane)
  }

  #wakeAt(lane: Lane, atMs: number): void {
    this.#timers.get(lane)?.cancel()
    const timer = this.#context.clock.setTimer(Math.max(0, atMs - this.#now), () => {
      this.#timers.delete(lane)
      this.#execute(lane, lane.machine.handle({ type: "due", polling: this.#polling }))
      this.#flush()
    })
    this.#timers.set(lane, timer)
  }

  #flush(): void {
    if (this.#closed) return
    if (this.#toStart.length > 0) {
      const lanes = this.#toStart
      this.#toStart = []
      this.#start(lanes)
    }
    if (this.#toLocate.length > 0) {
      const lanes = this.#toLocate
      this.#toLocate = []
      this.#locate(lanes)
    }
    if (this.#toSet) {
      this.#toSet = false
      this.#set()
    }
    this.#host.changed()
  }

  #set(): void {
    const positions = []
    for (const { partition, machine, claim } of this.#lanes.values()) {
      if (!machine.reading) continue
      const position = { ...partition, offset: machine.offset, lineage: machine.lineage }
      positions.push(claim === undefined ? position : { ...position, claim })
    }
    if (this.#fetcher === undefined) {
      if (positions.length === 0) return
      const reader = this.#context.session.log.openReader({ isolation: this.#settings.isolation })
      this.#fetcher = new Fetcher(reader, this.#settings, this.#context.clock, {
        read: (answer) => this.#read(answer),
        pollFailed: (error) => this.#host.pollFailed(error),
      })
    }
    this.#fetcher.set(positions)
  }

  #start(lanes: readonly Lane[]): void {
    this.#outcomes(
      lanes,
      async () => {
        // What a group gives exists; a number that a caller gives may not.
        for (const { claim, partition } of lanes)
          if (claim === undefined) await checkPartition(this.#context.topics, partition)
        const requests = lanes.map(({ partition, gainedLater }) => ({
          partition,
          startAt: gainedLater ? ({ kind: "next" } as const) : this.#settings.startAt,
        }))
        const { allowReplay } = this.#settings
        return findStarts(this.#context.session, requests, { owner: this.#owner, allowReplay })
      },
      (lane, start) => {
        this.#host.started(lane, start)
        const { offset, lineage, fromMicros } = start
        const event = { type: "started", offset, lineage, fromMicros, polling: this.#polling } as const
        this.#execute(lane, lane.machine.handle(event))
        this.#tellStarted(lane, undefined)
      },
      (lane, error) => {
        if (error instanceof NotFoundError) this.#context.topics.forget(lane.partition)
        this.#execute(lane, lane.machine.handle({ type: "startFailed", error, atMs: this.#now }))
      },
    )
  }

  #locate(lanes: readonly Lane[]): void {
    this.#outcomes(
      lanes,
      () => this.#context.session.log.watermarks(lanes.map(({ partition }) => partition)),
      (lane, { first, end, lineage }: Watermarks) => {
        const event = { type: "located", first, end, lineage, polling: this.#polling, atMs: this.#now } as const
        this.#execute(lane, lane.machine.handle(event))
      },
      (lane, error) => this.#execute(lane, lane.machine.handle({ type: "locateFailed", error, atMs: this.#now })),
    )
  }

  /** One call for several partitions; each gets its own outcome, also when the call as a whole fails. */
  #outcomes<V extends object>(
    lanes: readonly Lane[],
    call: () => Promise<(V | MillraceError)[]>,
    succeeded: (lane: Lane, value: V) => void,
    failed: (lane: Lane, error: MillraceError) => void,
  ): void {
    const settle = (outcomes: (lane: Lane, index: number) => void): void => {
      if (this.#closed) return
      for (const [index, lane] of lanes.entries()) if (lane.live && !lane.draining) outcomes(lane, index)
      this.#flush()
    }
    call()
      .then(
        (answers) =>
          settle((lane, index) => {
            const answer = answers[index] as V | MillraceError
            if (answer instanceof MillraceError) failed(lane, answer)
            else succeeded(lane, answer)
          }),
        (error) => settle((lane) => failed(lane, asMillraceError(error))),
      )
      .catch((error) => this.#host.pollFailed(asMillraceError(error)))
  }

  #tellStarted(lane: Lane, error: MillraceError | undefined): void {
    this.#onStarted.get(lane)?.(error)
    this.#onStarted.delete(lane)
  }
}

function endedBeforeStart(): ClosedError {
  return new ClosedError("the consumer was shut down before it knew where to start")
}
