/**
 * Runs the partition readers of one consumer: tells their machines what happens, and brings the answers of the driver back. Everything that
 * happens ends in `LaneCommands.flush`, so that one event makes at most one `set`.
 */
import {
  type Claim,
  NotFoundError,
  type OffsetOwner,
  type PartitionRead,
  type TopicPartition,
} from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import type { ConsumerSettings } from "../consumer/consumer-options.ts"
import { openerOf } from "../encryption/sealing.ts"
import { Lane, laneKey, type Slice } from "./lane.ts"
import { LaneCommands } from "./lane-commands.ts"
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
  readonly #lanes = new Map<string, Lane>()
  readonly #starts = new StartWaits()
  readonly #polling: LanePolling
  readonly #mover: LaneMover
  readonly #lookups: LaneLookups
  readonly #commands: LaneCommands
  /** Partitions that come later are paused too. */
  #allPaused = false
  #closed = false

  constructor(context: ClientContext, settings: ConsumerSettings, owner: OffsetOwner | undefined, host: LaneHost) {
    this.#context = context
    this.#settings = settings
    this.#owner = owner
    this.#host = host
    this.#polling = this.#newPolling()
    this.#mover = this.#newMover()
    this.#lookups = this.#newLookups()
    this.#commands = this.#newCommands()
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
   * first that failed, which is also handed out in its place. None of them is here yet.
   */
  async add(
    partitions: readonly { readonly partition: TopicPartition; readonly claim?: Claim }[],
    { later }: { readonly later: boolean },
  ): Promise<void> {
    if (this.#closed) throw endedBeforeStart()
    const starts = partitions.map(({ partition, claim }) => {
      const lane = new Lane(partition, this.#policy, { claim, gainedLater: later })
      lane.paused = this.#allPaused
      this.#lanes.set(lane.key, lane)
      this.#commands.begin(lane)
      return this.#starts.of(lane)
    })
    this.#commands.flush()
    const failed = (await Promise.all(starts)).find((error) => error !== undefined)
    if (failed !== undefined) throw failed
  }

  /** Stops reading partitions, but keeps them for commits until `remove`. None is handed out while the others are stopped. */
  stop(lanes: readonly Lane[]): void {
    if (lanes.length === 0) return
    for (const lane of lanes) {
      lane.draining = true
      lane.machine.handle({ type: "close" })
      this.#commands.unwake(lane)
    }
    for (const lane of lanes) {
      this.#host.withheld(lane)
      this.#starts.tell(lane, undefined)
    }
    this.#commands.reset()
    this.#commands.flush()
  }

  /** Forgets partitions. Answers of the driver that come later are dropped. */
  remove(lanes: readonly Lane[]): void {
    for (const lane of lanes) {
      lane.live = false
      if (this.#lanes.get(lane.key) === lane) this.#lanes.delete(lane.key)
    }
    this.stop(lanes)
  }

  // ---- what the caller of the consumer does ---------------------------------------------------------------

  /** Neither hands out nor polls these partitions; what was read ahead is kept. @param options.all Nor those that come later. */
  pause(lanes: Iterable<Lane>, options: { readonly all: boolean }): void {
    if (options.all) this.#allPaused = true
    for (const lane of lanes) {
      lane.paused = true
      this.#host.withheld(lane)
    }
    this.#commands.reset()
    this.#commands.flush()
  }

  resume(lanes: Iterable<Lane>, options: { readonly all: boolean }): void {
    if (options.all) this.#allPaused = false
    for (const lane of lanes) {
      lane.paused = false
      this.#host.offered(lane)
    }
    this.#commands.reset()
    this.#polling.hurry()
    this.#commands.flush()
  }

  /** Reads on at `offset`. What was read ahead, and what is handed out and not handled, is void. */
  seekTo(lane: Lane, offset: bigint): void {
    this.#mover.moveTo(lane, offset)
  }

  /** Reads again what is handed out and not handled. A `seek` that looks for its place has the last word all the same. */
  rewind(lane: Lane): void {
    if (!lane.live) return
    const offset = lane.ranges.prefix
    const { told } = lane
    this.#moveTo(lane, { offset })
    // Whoever was told of it may skip it all the same.
    if (told?.context.offset === offset) lane.told = told
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
    this.#tell(lane, { type: "errorTaken", atMs: this.#now })
  }

  /** The history that is being read may be over: looks whether it is. */
  doubt(lane: Lane): void {
    if (this.#closed || !lane.live) return
    this.#tell(lane, { type: "doubted" })
    this.#commands.flush()
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
    this.#commands.flush()
  }

  /** Takes a fresh reader, in the place of one that may hang. Nothing that was read is lost or read twice. */
  refresh(): void {
    this.#polling.refresh()
  }

  /** Ends reading; whoever waits for a start is told that none comes. Settles when no poll is under way. */
  async close(): Promise<void> {
    this.#closed = true
    this.#commands.close()
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
        this.#commands.execute(lane, lane.machine.handle(event), head)
        some ||= batches.length > 0 || lane.machine.offset !== offset || !lane.machine.reading
      } else {
        if (part.error instanceof NotFoundError) this.#context.topics.forget(lane.partition)
        this.#tell(lane, { type: "readFailed", error: part.error, atMs: this.#now })
        some = true
      }
    }
    if (some) this.#polling.taken()
    this.#commands.flush()
    return some
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
        this.#tell(lane, { type: "startFailed", error, atMs: this.#now })
      },
      located: (lane, { first, end, lineage }) => {
        const event = { type: "located", first, end, lineage, polling: this.#polling.polling, atMs: this.#now } as const
        this.#tell(lane, event)
      },
      locateFailed: (lane, error) => this.#tell(lane, { type: "locateFailed", error, atMs: this.#now }),
      settled: () => this.#commands.flush(),
      failed: (error) => this.#host.pollFailed(error),
    })
  }

  #newCommands(): LaneCommands {
    const { encryptor, decoding } = this.#settings
    const reading = { opener: openerOf(this.#context, encryptor), decoder: decoding?.decoder }
    return new LaneCommands(
      { clock: this.#context.clock, topics: this.#context.topics, reading },
      {
        consumer: this.#host,
        starts: this.#starts,
        start: (lanes) => this.#lookups.start(lanes),
        locate: (lanes) => this.#lookups.locate(lanes),
        set: () => this.#polling.set(),
        took: (slice) => this.#polling.took(slice),
        due: (lane) => {
          this.#tell(lane, { type: "due", polling: this.#polling.polling })
          this.#polling.hurry()
          this.#commands.flush()
        },
      },
    )
  }

  #started(lane: Lane, start: StartPosition): void {
    const { offset, lineage, fromMicros } = start
    const event = { type: "started", offset, lineage, fromMicros, polling: this.#polling.polling } as const
    const commands = lane.machine.handle(event)
    // A seek that came first has the last word.
    this.#host.started(lane, { ...start, offset: lane.machine.offset })
    this.#commands.execute(lane, commands)
    this.#polling.hurry()
    this.#starts.tell(lane, undefined)
  }

  #moveTo(lane: Lane, { offset, lineage, fromMicros }: Place): void {
    if (this.#closed || lane.draining) return
    const event = { type: "seek", offset, fromMicros, polling: this.#polling.polling } as const
    lane.told = undefined
    this.#goOn(lane, lane.machine.handle(lineage === undefined ? event : { ...event, lineage }))
  }

  #pass(lane: Lane, next: bigint): void {
    const commands = lane.machine.handle({ type: "skip", next, polling: this.#polling.polling })
    // Reading is beyond it already, and goes on as it does.
    if (commands.length === 0) return
    // The same error may have come again since it was handed out.
    lane.error = undefined
    this.#goOn(lane, commands)
  }

  /** What the partition waited for is overtaken. */
  #goOn(lane: Lane, commands: readonly PartitionReaderCommand[]): void {
    this.#commands.unwake(lane)
    this.#commands.execute(lane, commands)
    this.#polling.hurry()
    this.#commands.flush()
  }

  #readAgain(lane: Lane): void {
    const { machine } = lane
    const offset = lane.handedNext ?? lane.ranges.prefix
    if (machine.starting || (machine.reading && machine.offset === offset)) return
    this.#commands.unwake(lane)
    this.#host.reselected(lane)
    lane.told = undefined
    this.#tell(lane, { type: "again", offset })
  }

  #tell(lane: Lane, event: PartitionReaderEvent): void {
    this.#commands.execute(lane, lane.machine.handle(event))
  }
}
