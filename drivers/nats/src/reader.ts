/** The contract's reader over JetStream: one lane a partition, each with a pull consumer of its own, and one long poll over all of them. */
import {
  ClosedError,
  InvalidError,
  type LogReader,
  type PartitionRead,
  type ReadLimits,
  type ReadPosition,
  type TopicPartition,
} from "@millrace/contract"
import type { Timer } from "@millrace/runtime"
import type { Connection } from "./connection.ts"
import { shareOf } from "./reader-budget.ts"
import { heartbeatMs } from "./reader-consumer.ts"
import { type LaneHost, ReaderLane } from "./reader-lane.ts"
import type { TopicLayouts } from "./topic-layout.ts"

/** How long a poll without a wait gives partitions that are only being opened, or whose records are on their way, in ms. */
const settleMs = 500

/** Before the first `next` says what it wants, nothing much is asked for. */
const modest: ReadLimits = { maxRecords: 100, maxBytes: 256 * 1024, minRecords: 1, maxWaitMs: 0 }

/** What a reader works with. */
export interface ReaderTools {
  readonly connection: Connection
  readonly layouts: TopicLayouts
}

/** A `next` that waits. */
interface Waiting {
  readonly minRecords: number
  readonly maxBytes: number
  /** Settled lanes are enough: the poll does not wait for records that are yet to be sent. */
  readonly untilSettled: boolean
  wake(): void
}

export class NatsReader implements LogReader {
  readonly #connection: Connection
  readonly #host: LaneHost
  readonly #lanes = new Map<string, ReaderLane>()
  readonly #unlisten: () => void
  #limits: ReadLimits = modest
  /** The lane that comes first next time. */
  #turn = 0
  #polling = false
  #waiting: Waiting | undefined
  #heartbeat: Timer | undefined
  #closed = false

  constructor({ connection, layouts }: ReaderTools) {
    this.#connection = connection
    this.#host = { connection, layouts, stirred: () => this.#stir() }
    this.#unlisten = connection.listen({
      lost: () => this.#each((lane) => lane.lost()),
      restored: () => this.#each((lane) => lane.start()),
      closed: () => this.#end(),
    })
  }

  set(positions: readonly ReadPosition[]): void {
    if (this.#closed) return
    const wanted = new Map(positions.map((position) => [keyOf(position), position]))
    for (const [key, lane] of this.#lanes) {
      const position = wanted.get(key)
      if (position !== undefined && lane.goesOnAt(position)) continue
      lane.close()
      this.#lanes.delete(key)
    }
    for (const [key, position] of wanted) {
      const known = this.#lanes.get(key)
      if (known !== undefined) {
        known.claim = position.claim
        continue
      }
      const lane = new ReaderLane(this.#host, position)
      this.#lanes.set(key, lane)
      lane.start()
    }
    this.#fill()
    this.#keepTime()
    this.#stir()
  }

  async next(limits: ReadLimits): Promise<PartitionRead[]> {
    this.#refuseClosed()
    if (this.#polling) throw new InvalidError("a reader has one next() at a time: the last one has not settled")
    this.#limits = limits
    this.#fill()
    this.#polling = true
    const timely = await this.#wait(limits)
    this.#polling = false
    if (this.#closed) return []
    const reads = this.#gather(limits)
    this.#fill()
    if (reads.length === 0 && !timely && limits.maxWaitMs > 0) this.#complain()
    return reads
  }

  /** Consumers on the server are told to go, without waiting for an answer: they end by themselves if they do not hear of it. */
  close(): Promise<void> {
    this.#end()
    return Promise.resolve()
  }

  /** Whether what is wanted came before the wait was over. */
  async #wait({ minRecords, maxBytes, maxWaitMs }: ReadLimits): Promise<boolean> {
    const untilSettled = maxWaitMs <= 0
    const { promise, resolve } = Promise.withResolvers<boolean>()
    const waiting: Waiting = { minRecords, maxBytes, untilSettled, wake: () => resolve(true) }
    if (this.#satisfies(waiting)) return true
    const timer = this.#connection.clock.setTimer(untilSettled ? settleMs : maxWaitMs, () => resolve(false))
    this.#waiting = waiting
    const timely = await promise
    this.#waiting = undefined
    timer.cancel()
    return timely
  }

  #stir(): void {
    const waiting = this.#waiting
    if (waiting === undefined) return
    // A status may have ended a pull: whoever waits wants the next one sent.
    this.#fill()
    if (!this.#closed && !this.#satisfies(waiting)) return
    // What else comes in this turn is taken along, without being looked at one by one.
    this.#waiting = undefined
    waiting.wake()
  }

  #satisfies({ minRecords, untilSettled }: Waiting): boolean {
    let ready = 0
    let full = false
    let settled = true
    for (const lane of this.#lanes.values()) {
      if (lane.news) return true
      ready += lane.ready
      full ||= lane.full && lane.ready > 0
      settled &&= lane.settled
    }
    return ready >= Math.max(1, minRecords) || full || (untilSettled && settled)
  }

  /** Each lane in turn gets an even part, then the first ones what is left. */
  #gather({ maxRecords, maxBytes }: ReadLimits): PartitionRead[] {
    const lanes = [...this.#lanes.values()]
    const reads: PartitionRead[] = []
    const active = lanes.filter((lane) => lane.ready > 0 || lane.news)
    if (active.length === 0) return reads
    const start = this.#turn++ % active.length
    let records = maxRecords
    let bytes = maxBytes
    for (let index = 0; index < active.length && records > 0; index++) {
      const lane = active[(start + index) % active.length] as ReaderLane
      const left = active.length - index
      // Byte and record shares grow as lanes with little leave theirs to those that follow.
      const share = { records: Math.ceil(records / left), bytes: bytes / left, alone: reads.length === 0 }
      const read = lane.take(share)
      if (read === undefined) continue
      reads.push(read)
      if (read.error !== undefined) continue
      for (const batch of read.batches) {
        records -= batch.count
        bytes -= batch.bytes
      }
    }
    return reads
  }

  #fill(): void {
    const share = shareOf(this.#limits, this.#lanes.size)
    for (const lane of this.#lanes.values()) lane.fill(share)
  }

  /** Nothing came, and something is wrong: whoever asked should know. @throws MillraceError, retryable */
  #complain(): void {
    for (const lane of this.#lanes.values()) if (lane.trouble !== undefined) throw lane.trouble
    this.#connection.check()
  }

  /** One timer while there is something to watch over; it keeps no process alive. */
  #keepTime(): void {
    if (this.#closed || this.#lanes.size === 0) {
      this.#heartbeat?.cancel()
      this.#heartbeat = undefined
      return
    }
    this.#heartbeat ??= this.#connection.clock.setTimer(
      heartbeatMs,
      () => {
        this.#heartbeat = undefined
        this.#each((lane) => lane.tick())
        this.#keepTime()
      },
      { background: true },
    )
  }

  #each(act: (lane: ReaderLane) => void): void {
    for (const lane of this.#lanes.values()) act(lane)
  }

  #end(): void {
    if (this.#closed) return
    this.#closed = true
    this.#unlisten()
    this.#each((lane) => lane.close())
    this.#lanes.clear()
    this.#keepTime()
    this.#stir()
  }

  #refuseClosed(): void {
    if (this.#closed || this.#connection.closed) throw new ClosedError("the reader is closed")
  }
}

function keyOf({ stream, topic, partition }: TopicPartition): string {
  return `${stream}\n${topic}\n${partition}`
}
