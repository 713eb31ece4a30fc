import {
  ClosedError,
  type LogReader,
  MillraceError,
  type PartitionRead,
  type ReadLimits,
  type ReadPosition,
} from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import type { Fate, ReadOddity } from "./fate.ts"
import { readPartition } from "./partition-read.ts"
import type { Requests } from "./requests.ts"
import type { SimTopic } from "./sim-topic.ts"

/** Where a reader finds its topics, and how its polls take their time. */
export interface ReaderSource {
  readonly clock: Clock
  readonly requests: Requests
  /** Decide on each poll when it begins. */
  readonly fate: () => Fate
  readonly oddity: () => ReadOddity
  readonly find: (position: ReadPosition) => SimTopic | undefined
  /** Calls back at every change of the log, until the answer is called. */
  readonly onChange: (look: () => void) => () => void
  readonly polled: (limits: ReadLimits, overlaps: boolean) => void
  readonly answered: (reads: readonly PartitionRead[]) => void
}

/** How much later a stale answer comes, in ms. */
const staleMs = 200

/** A position that a reader holds; `stopped` behind an error. */
interface Held {
  position: ReadPosition
  stopped: boolean
}

/** Long polls over all positions, fair among them, with the faults of the plan. */
export class SimReader implements LogReader {
  readonly #source: ReaderSource
  #held: Held[] = []
  #pending: Poll | undefined
  #turn = 0
  #isClosed = false

  constructor(source: ReaderSource) {
    this.#source = source
  }

  set(positions: readonly ReadPosition[]): void {
    const before = new Map(this.#held.map((held) => [placeKey(held.position), held]))
    this.#held = positions.map((position) => {
      const held = before.get(placeKey(position))
      // Who is told the same position again is read again, whatever was wrong with it.
      return held === undefined || !isSame(held.position, position) || held.stopped
        ? { position, stopped: false }
        : held
    })
    this.#pending?.look()
  }

  next(limits: ReadLimits): Promise<PartitionRead[]> {
    if (this.#isClosed) return Promise.reject(new ClosedError("the reader was closed"))
    this.#source.polled(limits, this.#pending !== undefined)
    return new Promise((resolve, reject) => {
      const poll = new Poll(this.#source, limits, {
        collect: (isPartial) => this.#collect(limits, isPartial),
        deliver: (parts) => resolve(this.#delivered(poll, parts)),
        fail: (error) => {
          if (this.#pending === poll) this.#pending = undefined
          reject(error)
        },
      })
      this.#pending = poll
      poll.begin()
    })
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#pending?.cancel()
  }

  /** Goes on behind what is answered, and only now: an answer that is lost on its way leaves the reader as it was. */
  #delivered(poll: Poll, parts: readonly Part[]): PartitionRead[] {
    if (this.#pending === poll) this.#pending = undefined
    if (this.#isClosed) return []
    const reads: PartitionRead[] = []
    for (const { held, position, read } of parts) {
      const isPresent = this.#held.includes(held) && held.position === position
      if (!isPresent && poll.oddity !== "stale") continue
      reads.push(read)
      if (!isPresent) continue
      if (read.error === undefined) held.position = { ...position, offset: read.nextOffset }
      else held.stopped = true
    }
    this.#source.answered(reads)
    return reads
  }

  #collect({ maxRecords, maxBytes }: ReadLimits, isPartial: boolean): Part[] {
    const parts: Part[] = []
    const count = this.#held.length
    let left = Math.min(maxRecords, Math.max(1, maxBytes / 10))
    this.#turn++
    for (let step = 0; step < count && left > 0; step++) {
      const held = this.#held[(step + this.#turn) % count] as Held
      if (held.stopped) continue
      const { position } = held
      const room = { records: left, batches: isPartial ? 1 : Number.POSITIVE_INFINITY }
      const read = readPartition(this.#source.find(position), position, room)
      if (read === undefined) continue
      parts.push({ held, position, read })
      if (read.error === undefined) for (const batch of read.batches) left -= batch.count
      if (isPartial) break
    }
    return parts
  }
}

/** What a partition adds to an answer, and the position that it answers. */
interface Part {
  readonly held: Held
  readonly position: ReadPosition
  readonly read: PartitionRead
}

interface PollHost {
  readonly collect: (isPartial: boolean) => Part[]
  readonly deliver: (parts: readonly Part[]) => void
  readonly fail: (error: MillraceError) => void
}

/** One poll: on its way, waiting for records, on its way back. */
class Poll {
  readonly oddity: ReadOddity
  readonly #source: ReaderSource
  readonly #limits: ReadLimits
  readonly #host: PollHost
  readonly #fate: Fate
  #timer: Timer | undefined
  #unlisten: (() => void) | undefined
  #answer: ((answerMs: number, answer: () => void) => void) | undefined

  constructor(source: ReaderSource, limits: ReadLimits, host: PollHost) {
    this.#source = source
    this.#limits = limits
    this.#host = host
    this.#fate = source.fate()
    this.oddity = source.oddity()
  }

  begin(): void {
    const { requests, clock } = this.#source
    const { kind, arriveMs, answerMs, error } = this.#fate
    this.#answer = requests.begin((reason) => {
      this.#stop()
      this.#host.fail(reason)
    })
    if (this.#answer === undefined) return
    if (kind === "answer") {
      this.#timer = clock.setTimer(arriveMs, () => this.#wait())
      return
    }
    const reason = error ?? new MillraceError("connection", "the poll was lost", { outcome: "unknown" })
    this.#answer(arriveMs + answerMs, () => this.#host.fail(reason))
    this.#answer = undefined
  }

  /** Something has changed: the positions, or the log. */
  look(): void {
    if (this.#unlisten === undefined) return
    const parts = this.#host.collect(this.oddity === "partial")
    const enough = parts.some(({ read }) => read.error !== undefined) || countOf(parts) >= this.#limits.minRecords
    if (enough) this.#end(parts)
  }

  /** The reader is closed: nothing is answered. */
  cancel(): void {
    this.#end([])
  }

  #wait(): void {
    if (this.oddity === "early") {
      this.#end([])
      return
    }
    this.#unlisten = this.#source.onChange(() => this.look())
    this.#timer = this.#source.clock.setTimer(this.#limits.maxWaitMs, () =>
      this.#end(this.#host.collect(this.oddity === "partial")),
    )
    this.look()
  }

  #end(parts: readonly Part[]): void {
    const answer = this.#answer
    this.#stop()
    const lateMs = this.oddity === "stale" ? staleMs : 0
    answer?.(this.#fate.answerMs + lateMs, () => this.#host.deliver(parts))
  }

  #stop(): void {
    this.#timer?.cancel()
    this.#unlisten?.()
    this.#unlisten = undefined
    this.#answer = undefined
  }
}

function countOf(parts: readonly Part[]): number {
  let records = 0
  for (const { read } of parts) {
    if (read.error !== undefined) continue
    // A step over holes is told at once as well.
    records += read.batches.length === 0 ? Number.POSITIVE_INFINITY : 0
    for (const batch of read.batches) records += batch.count
  }
  return records
}

function isSame(a: ReadPosition, b: ReadPosition): boolean {
  return a.offset === b.offset && a.lineage === b.lineage && a.claim?.token === b.claim?.token
}

function placeKey({ stream, topic, partition }: ReadPosition): string {
  return `${stream}/${topic}/${partition}`
}
