import type { Clock, Timer } from "@millrace/runtime"
import type { TopicDirectory } from "../client/context.ts"
import type { RecordOpener } from "../encryption/encryptor.ts"
import type { MessageSource } from "../record/message.ts"
import type { RecordDecoder } from "../typed/record-decoder.ts"
import type { Lane, Slice } from "./lane.ts"
import type { LaneHost } from "./lane-host.ts"
import type { PartitionReaderCommand } from "./partition-reader.machine.ts"
import type { StartWaits } from "./start-waits.ts"

/** What records are made readable with, each where there is one. */
export interface Reading {
  readonly opener: RecordOpener | undefined
  readonly decoder: RecordDecoder | undefined
}

/** Who does what takes longer than a moment. */
interface CommandHost {
  readonly consumer: LaneHost
  readonly starts: StartWaits
  /** Finds out where these begin. */
  start(lanes: readonly Lane[]): void
  /** Finds out what these hold. */
  locate(lanes: readonly Lane[]): void
  /** Tells the log's reader where everything stands. */
  set(): void
  /** A slice is read ahead. */
  took(slice: Slice): void
  /** The wait that a partition's machine asked for is over. */
  due(lane: Lane): void
}

/**
 * Carries out what the machines of partitions command. What is asked of a driver is gathered until `flush`, so that one event makes one
 * question of a kind at the most, for however many partitions.
 */
export class LaneCommands {
  readonly #clock: Clock
  readonly #topics: TopicDirectory
  readonly #reading: Reading
  readonly #host: CommandHost
  readonly #timers = new Map<Lane, Timer>()
  #toSet = false
  #toStart: Lane[] = []
  #toLocate: Lane[] = []
  #closed = false

  constructor(
    of: { readonly clock: Clock; readonly topics: TopicDirectory; readonly reading: Reading },
    host: CommandHost,
  ) {
    this.#clock = of.clock
    this.#topics = of.topics
    this.#reading = of.reading
    this.#host = host
  }

  /** A partition that is new begins by finding its start. */
  begin(lane: Lane): void {
    this.#toStart.push(lane)
  }

  /** Which partitions are read has changed. */
  reset(): void {
    this.#toSet = true
  }

  /** @param end Where the partition ends, as far as the answer that led to these tells. */
  execute(lane: Lane, commands: readonly PartitionReaderCommand[], end = 0n): void {
    const { consumer, starts } = this.#host
    for (const command of commands) {
      switch (command.type) {
        case "accept":
          this.#accept(lane, command, end)
          break
        case "advance":
          consumer.advanced(lane, command.next)
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
          consumer.dropped(lane)
          break
        case "sourceChanged":
          this.#topics.forget(lane.partition)
          lane.told = undefined
          consumer.sourceChanged(lane, command.offset)
          break
        case "skipped":
          consumer.skipped(lane, command.from, command.to)
          break
        case "fail":
          lane.error = command.error
          lane.failure = { error: command.error, offset: lane.machine.offset }
          starts.tell(lane, command.error)
          consumer.offered(lane)
          break
        case "wake":
          this.#wakeAt(lane, command.atMs)
          break
      }
    }
  }

  /** Asks what was commanded, and lets callers be served. */
  flush(): void {
    if (this.#closed) return
    if (this.#toStart.length > 0) {
      const lanes = this.#toStart
      this.#toStart = []
      this.#host.start(lanes)
    }
    if (this.#toLocate.length > 0) {
      const lanes = this.#toLocate
      this.#toLocate = []
      this.#host.locate(lanes)
    }
    if (this.#toSet) {
      this.#toSet = false
      this.#host.set()
    }
    this.#host.consumer.changed()
  }

  /** The partition waits for nothing any more. */
  unwake(lane: Lane): void {
    this.#timers.get(lane)?.cancel()
    this.#timers.delete(lane)
  }

  /** No timer is left, and nothing is asked any more. */
  close(): void {
    this.#closed = true
    for (const timer of this.#timers.values()) timer.cancel()
    this.#timers.clear()
  }

  #accept(lane: Lane, { batch, from, after }: PartitionReaderCommand & { type: "accept" }, end: bigint): void {
    const { stream, topic, partition } = lane.partition
    const { claim, machine } = lane
    const { lineage } = machine
    const { opener, decoder } = this.#reading
    const source: MessageSource = { batch, stream, topic, partition, lineage, claim, end, opener, decoder }
    const slice: Slice = { lane, source, count: batch.count, index: from, after, next: undefined }
    this.#host.took(slice)
    lane.push(slice)
    this.#host.consumer.offered(lane)
  }

  #wakeAt(lane: Lane, atMs: number): void {
    this.unwake(lane)
    if (this.#closed) return
    const timer = this.#clock.setTimer(Math.max(0, atMs - this.#clock.monotonicMs()), () => {
      this.#timers.delete(lane)
      this.#host.due(lane)
    })
    this.#timers.set(lane, timer)
  }
}
