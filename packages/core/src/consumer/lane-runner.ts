/**
 * Runs the partition readers of one consumer: carries out what their machines command (start, set, locate, wait) with the driver and the
 * clock, and brings the answers back. Everything that happens ends in `#flush`, so that one event makes at most one `set`.
 */
import {
  type Claim,
  NotFoundError,
  type OffsetOwner,
  type PartitionRead,
  type TopicPartition,
} from "@millrace/contract"
import type { Timer } from "@millrace/runtime"
import type { ClientContext } from "../client/context.ts"
import type { RecordOpener } from "../encryption/encryptor.ts"
import { openerOf } from "../encryption/sealing.ts"
import type { MessageSource } from "../record/message.ts"
import type { ConsumerSettings } from "./consumer-options.ts"
import { Lane, laneKey, type Slice } from "./lane.ts"
import type { LaneHost } from "./lane-host.ts"
import { LaneLookups } from "./lane-lookups.ts"
import { LaneMover, type Place } from "./lane-mover.ts"
import { LanePolling } from "./lane-polling.ts"
import type { PartitionReaderCommand, PartitionReaderEvent, PartitionReaderPolicy } from "./partition-reader.machine.ts"
import type { StartAt } from "./start-at.ts"
import type { StartPosition } from "./start-position.ts"
import { endedBeforeStart, StartWaits } from "./start-waits.ts"

export class LaneRunner {
  readonly #context: ClientContext
  readonly #settings: ConsumerSettings
  readonly #owner: OffsetOwner | undefined
  readonly #host: LaneHost
  readonly #policy: PartitionReaderPolicy
  readonly #opener: RecordOpener | undefined
  readonly #lanes = new Map<string, Lane>()
  readonly #timers = new Map<Lane, Timer>()
  readonly #starts = new StartWaits()
  readonly #polling: LanePolling
  readonly #mover: LaneMover
  readonly #lookups: LaneLookups
  #toSet = false
  #toStart: Lane[] = []
  #toLocate: Lane[] = []
  /** Partitions that come later are paused too. */
  #allPaused = false
  #closed = false

  constructor(context: ClientContext, settings: ConsumerSettings, owner: OffsetOwner | undefined, host: LaneHost) {
    this.#context = context
    this.#settings = settings
    this.#owner = owner
    this.#host = host
    this.#opener = openerOf(context, settings.encryptor)
    this.#polling = this.#newPolling()
    this.#mover = this.#newMover()
    this.#lookups = this.#newLookups()
    const { records } = host
    this.#policy = {
      ...settings,
      get holes() {
        return records.holes
      },
    }
  }

  get lanes(): Iterable<Lane> {
    return this.#lanes.values()
  }

  /** What is read ahead of the caller: encoded bytes and records of batches that are not handed out in full. */
  get readAhead(): { readonly bytes: number; readonly records: number } {
    return this.#polling.readAhead
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
      lane.paused = this.#allPaused
      this.#lanes.set(lane.key, lane)
      this.#toStart.push(lane)
      return this.#starts.of(lane)
    })
    this.#flush()
    const failed = (await Promise.all(starts)).find((error) => error !== undefined)
    if (failed !== undefined) throw failed
  }

  /** Stops reading a partition, but keeps it for commits until `remove`. */
  stop(lane: Lane): void {
    lane.draining = true
    lane.machine.handle({ type: "close" })
    this.#unwake(lane)
    this.#starts.tell(lane, undefined)
    this.#toSet = true
    this.#flush()
  }

  /** Forgets a partition. Answers of the driver that come later are dropped. */
  remove(lane: Lane): void {
    lane.live = false
    if (this.#lanes.get(lane.key) === lane) this.#lanes.delete(lane.key)
    this.stop(lane)
  }

  // ---- what the caller of the consumer does ---------------------------------------------------------------

  /** Neither hands out nor polls these partitions; what was read ahead is kept. @param options.all Nor those that come later. */
  pause(lanes: Iterable<Lane>, options: { readonly all: boolean }): void {
    if (options.all) this.#allPaused = true
    for (const lane of lanes) {
      lane.paused = true
      this.#host.withheld(lane)
    }
    this.#toSet = true
    this.#flush()
  }

  resume(lanes: Iterable<Lane>, options: { readonly all: boolean }): void {
    if (options.all) this.#allPaused = false
    for (const lane of lanes) {
      lane.paused = false
      this.#host.offered(lane)
    }
    this.#toSet = true
    this.#polling.hurry()
    this.#flush()
  }

  /** Reads on at `offset`. What was read ahead, and what is handed out and not handled, is void. */
  seekTo(lane: Lane, offset: bigint): void {
    lane.seeks++
    this.#moveTo(lane, { offset })
  }

  /**
   * Reads on elsewhere, or past what could not be read (`LaneMover.seek`).
   * @param options.before Told the place before reading moves there; what it fails with stops the move.
   */
  seek(
    lane: Lane,
    to: StartAt | "skip",
    options?: { readonly before?: (next: bigint) => Promise<void> },
  ): Promise<void> {
    return this.#mover.seek(lane, to, options?.before)
  }

  /** The error of the partition was handed out: try again after a while. */
  errorTaken(lane: Lane): void {
    if (this.#closed) return
    this.#execute(lane, lane.machine.handle({ type: "errorTaken", atMs: this.#now }))
  }

  gaveBack(slice: Slice): void {
    this.#polling.gaveBack(slice)
  }

  /**
   * What is selected of these partitions is something else now: what was read ahead comes again, selected anew, and what is handed out
   * stays. What is stored as handed out already (policy `onRead`) stays too.
   */
  reselect(lanes: readonly Lane[]): void {
    for (const lane of lanes) if (!this.#closed && lane.live && !lane.draining && !lane.gated) this.#readAgain(lane)
    this.refresh()
    this.#flush()
  }

  /** Takes a fresh reader, in the place of one that may hang. Nothing that was read is lost or read twice. */
  refresh(): void {
    this.#polling.refresh()
  }

  /** Ends reading; whoever waits for a start is told that none comes. Settles when no poll is under way. */
  async close(): Promise<void> {
    this.#closed = true
    for (const timer of this.#timers.values()) timer.cancel()
    this.#timers.clear()
    this.#starts.end()
    await this.#polling.close()
  }

  get #now(): number {
    return this.#context.clock.monotonicMs()
  }

  /** @returns whether anything came of the answer */
  #read(answer: readonly PartitionRead[]): boolean {
    let some = false
    for (const part of answer) {
      const lane = this.lane(part)
      if (lane === undefined) continue
      const { offset } = lane.machine
      if (part.error === undefined) {
        const { batches, nextOffset, lineage, head } = part
        const event = { type: "read", batches, nextOffset, lineage, atMs: this.#now } as const
        this.#execute(lane, lane.machine.handle(event), head)
        some ||= batches.length > 0 || lane.machine.offset !== offset || !lane.machine.reading
      } else {
        if (part.error instanceof NotFoundError) this.#context.topics.forget(lane.partition)
        this.#execute(lane, lane.machine.handle({ type: "readFailed", error: part.error, atMs: this.#now }))
        some = true
      }
    }
    if (some) this.#polling.taken()
    this.#flush()
    return some
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
          lane.told = undefined
          this.#host.sourceChanged(lane, command.offset)
          break
        case "skipped":
          this.#host.skipped(lane, command.from, command.to)
          break
        case "fail":
          lane.error = command.error
          lane.failure = { error: command.error, offset: lane.machine.offset }
          this.#starts.tell(lane, command.error)
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
    const slice: Slice = { lane, source, count: batch.count, index: from, after, next: undefined }
    this.#polling.took(slice)
    lane.push(slice)
    this.#host.offered(lane)
  }

  #wakeAt(lane: Lane, atMs: number): void {
    this.#timers.get(lane)?.cancel()
    const timer = this.#context.clock.setTimer(Math.max(0, atMs - this.#now), () => {
      this.#timers.delete(lane)
      this.#execute(lane, lane.machine.handle({ type: "due", polling: this.#polling.polling }))
      this.#polling.hurry()
      this.#flush()
    })
    this.#timers.set(lane, timer)
  }

  #unwake(lane: Lane): void {
    this.#timers.get(lane)?.cancel()
    this.#timers.delete(lane)
  }

  #flush(): void {
    if (this.#closed) return
    if (this.#toStart.length > 0) {
      const lanes = this.#toStart
      this.#toStart = []
      this.#lookups.start(lanes)
    }
    if (this.#toLocate.length > 0) {
      const lanes = this.#toLocate
      this.#toLocate = []
      this.#lookups.locate(lanes)
    }
    if (this.#toSet) {
      this.#toSet = false
      this.#polling.set()
    }
    this.#host.changed()
  }

  #newPolling(): LanePolling {
    const lanes = this.#lanes
    return new LanePolling(this.#settings, this.#context.clock, {
      get lanes() {
        return lanes.values()
      },
      openReader: () => this.#host.records.openReader({ isolation: this.#settings.isolation }),
      read: (answer) => this.#read(answer),
      pollFailed: (error) => this.#host.pollFailed(error),
    })
  }

  #newMover(): LaneMover {
    return new LaneMover(this.#context.session, this.#owner, {
      closed: () => this.#closed,
      move: (lane, place) => this.#moveTo(lane, place),
      pass: (lane, next) => this.#pass(lane, next),
      passed: (lane, offset) => this.#host.passed(lane, offset),
      withheld: (lane) => this.#host.withheld(lane),
      offered: (lane) => this.#host.offered(lane),
      changed: () => this.#host.changed(),
    })
  }

  #newLookups(): LaneLookups {
    const of = { settings: this.#settings, owner: this.#owner }
    return new LaneLookups(this.#context, of, {
      closed: () => this.#closed,
      started: (lane, start) => this.#started(lane, start),
      startFailed: (lane, error) => {
        if (error instanceof NotFoundError) this.#context.topics.forget(lane.partition)
        this.#execute(lane, lane.machine.handle({ type: "startFailed", error, atMs: this.#now }))
      },
      located: (lane, { first, end, lineage }) => {
        const event = { type: "located", first, end, lineage, polling: this.#polling.polling, atMs: this.#now } as const
        this.#execute(lane, lane.machine.handle(event))
      },
      locateFailed: (lane, error) =>
        this.#execute(lane, lane.machine.handle({ type: "locateFailed", error, atMs: this.#now })),
      settled: () => this.#flush(),
      failed: (error) => this.#host.pollFailed(error),
    })
  }

  #started(lane: Lane, start: StartPosition): void {
    const { offset, lineage, fromMicros } = start
    const event = { type: "started", offset, lineage, fromMicros, polling: this.#polling.polling } as const
    const commands = lane.machine.handle(event)
    // A seek that came first has the last word.
    this.#host.started(lane, { ...start, offset: lane.machine.offset })
    this.#execute(lane, commands)
    this.#polling.hurry()
    this.#starts.tell(lane, undefined)
  }

  #moveTo(lane: Lane, { offset, lineage, fromMicros }: Place): void {
    if (this.#closed || lane.draining) return
    const event = { type: "seek", offset, fromMicros, polling: this.#polling.polling } as const
    lane.told = undefined
    this.#goOn(lane, lineage === undefined ? event : { ...event, lineage })
  }

  #pass(lane: Lane, next: bigint): void {
    // The same error may have come again since it was handed out.
    lane.error = undefined
    this.#goOn(lane, { type: "skip", next, polling: this.#polling.polling })
  }

  #goOn(lane: Lane, event: PartitionReaderEvent): void {
    this.#unwake(lane)
    this.#execute(lane, lane.machine.handle(event))
    this.#polling.hurry()
    this.#flush()
  }

  #readAgain(lane: Lane): void {
    const { machine } = lane
    const offset = lane.handedNext ?? lane.ranges.prefix
    if (machine.starting || (machine.reading && machine.offset === offset)) return
    this.#unwake(lane)
    this.#host.reselected(lane)
    lane.told = undefined
    const commands = machine.handle({ type: "seek", offset, polling: false })
    this.#execute(
      lane,
      commands.filter(({ type }) => type !== "drop"),
    )
  }
}
