/**
 * Watches the partitions of one consumer for silence: looks from time to time where each stands, asks the backend where those end
 * that did not move, and tells of those that should have given something. `WatchdogMachine` judges; this one has the timers.
 */
import { MillraceError, type PartitionLog, type TopicPartition, type Watermarks } from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import type { Lane } from "../partition/lane.ts"
import type { ConsumerListeners } from "./consumer-events.ts"
import { LoopGauge } from "./loop-gauge.ts"
import { type PartitionSight, type SilentPartition, WatchdogMachine } from "./watchdog.machine.ts"

/** The consumer as the watchdog sees it. */
export interface Watched {
  readonly lanes: Iterable<Lane>
  /** A caller waits for something to be handed out. */
  readonly waiting: boolean
  /** Another number whenever something was handed out or asked for. */
  readonly turns: number
  /** Nothing can be handed out before a store has succeeded. */
  readonly held: boolean
  readonly listeners: ConsumerListeners
  /** Reads on with a fresh reader from where everything stands. */
  renew(): void
}

export interface WatchdogSettings {
  /** For how long a partition may be silent, in ms. */
  readonly stalledAfterMs: number
  /** From which delay on the event loop counts as blocked, in ms. */
  readonly loopBlockedAfterMs: number
  /** How long the reader may take by right: between two polls, and for more records than one. In ms. */
  readonly pollIntervalMs: number
  readonly minRecords: number
  readonly maxWaitMs: number
}

/**
 * Of how many quiet partitions the end is asked for at one look, at the most: on some backends each is a question of its own, and a reader that
 * has lost all of them is found out by any.
 */
const quietPerLook = 32

export class Watchdog {
  readonly #consumer: Watched
  readonly #log: PartitionLog
  readonly #clock: Clock
  readonly #patienceMs: number
  readonly #machine: WatchdogMachine
  readonly #gauge: LoopGauge
  #timer: Timer | undefined
  #turns = 0
  /** Which of the partitions that have not moved comes first at the next look. */
  #turn = 0
  /** A question that is not answered yet; there is never a second one. */
  #asking = false
  #started = false
  #closed = false

  constructor(
    consumer: Watched,
    { session, clock }: { readonly session: { readonly log: PartitionLog }; readonly clock: Clock },
    settings: WatchdogSettings,
  ) {
    this.#consumer = consumer
    this.#log = session.log
    this.#clock = clock
    const { stalledAfterMs, loopBlockedAfterMs, pollIntervalMs, minRecords, maxWaitMs } = settings
    this.#patienceMs = stalledAfterMs + pollIntervalMs + (minRecords > 1 ? maxWaitMs : 0)
    this.#machine = new WatchdogMachine(this.#patienceMs)
    this.#gauge = new LoopGauge(clock, loopBlockedAfterMs, (block) => consumer.listeners.tell("loopBlocked", block))
  }

  /** Begins to watch; later calls do nothing. */
  start(): void {
    if (this.#started || this.#closed) return
    this.#started = true
    this.#gauge.start()
    this.#arm()
  }

  /** No timer is left, and nothing is told any more. */
  close(): void {
    this.#closed = true
    this.#gauge.stop()
    this.#timer?.cancel()
  }

  #arm(): void {
    this.#timer = this.#clock.setTimer(this.#machine.intervalMs, () => this.#look(), { background: true })
  }

  #look(): void {
    const { turns } = this.#consumer
    const wanted = this.#consumer.waiting || turns !== this.#turns
    this.#turns = turns
    const asked = wanted ? this.#questionable() : []
    if (asked.length === 0 || this.#asking) this.#judge(wanted, new Map())
    else this.#ask(asked, (ends) => this.#judge(wanted, ends))
  }

  /** Partitions whose end is worth a question: those that are behind, and in turn some of those that have not moved. */
  #questionable(): Lane[] {
    const unmoved = this.#candidates().filter((lane) => this.#machine.positionOf(lane) === positionOf(lane))
    if (unmoved.length <= quietPerLook) return unmoved
    const first = this.#turn
    this.#turn = (first + quietPerLook) % unmoved.length
    return unmoved.filter((lane, index) => {
      const place = (index - first + unmoved.length) % unmoved.length
      return place < quietPerLook || this.#machine.isBehind(lane)
    })
  }

  /** Asks where partitions end. A backend that does not answer in time, or not well, leaves what was known before. */
  #ask(lanes: readonly Lane[], answer: (ends: ReadonlyMap<Lane, bigint>) => void): void {
    let open = true
    const settle = (marks: readonly (Watermarks | MillraceError)[]): void => {
      if (!open) return
      open = false
      this.#timer?.cancel()
      answer(endsOf(lanes, marks))
    }
    this.#timer = this.#clock.setTimer(this.#patienceMs / 2, () => settle([]), { background: true })
    this.#asking = true
    const done = (marks: readonly (Watermarks | MillraceError)[]): void => {
      this.#asking = false
      settle(marks)
    }
    this.#log.watermarks(lanes.map(({ partition }) => partition)).then(done, () => done([]))
  }

  #judge(wanted: boolean, ends: ReadonlyMap<Lane, bigint>): void {
    if (this.#closed) return
    const atMs = this.#clock.monotonicMs()
    const partitions = this.#candidates().map((lane) => sightOf(lane, ends.get(lane)))
    const silent = this.#machine.look({ atMs, wanted, partitions })
    this.#arm()
    this.#report(silent)
  }

  /** A fresh reader may mend what a reader has lost; it cannot mend a start that is not found, or a store that does not succeed. */
  #report(silent: readonly SilentPartition[]): void {
    if (silent.length === 0) return
    const renewed = silent.some(({ key }) => (key as Lane).machine.reading && !this.#holding(key as Lane))
    if (renewed) this.#consumer.renew()
    for (const { key, position, end, forMs } of silent) {
      const lane = key as Lane
      const { partition, machine } = lane
      const doing = this.#holding(lane) ? "holding" : machine.phase
      const stall = { ...placeOf(partition), position, head: end, forMs, doing, renewed }
      this.#consumer.listeners.tell("stalled", stall)
    }
  }

  #holding(lane: Lane): boolean {
    return this.#consumer.held || lane.stagedNext !== undefined
  }

  /** Partitions that could give something: what is read ahead is for the caller to take, unless it waits in vain. */
  #candidates(): Lane[] {
    const { waiting, lanes } = this.#consumer
    return [...lanes].filter(
      (lane) =>
        lane.live &&
        !lane.draining &&
        !lane.paused &&
        !lane.seeking &&
        !lane.held &&
        lane.suspended === undefined &&
        (waiting || lane.slice === undefined),
    )
  }
}

/** Behind what was handed out; 0 while the start is not found. */
function positionOf(lane: Lane): bigint {
  return lane.handedNext ?? lane.ranges.prefix
}

function sightOf(lane: Lane, end: bigint | undefined): PartitionSight {
  return { key: lane, position: positionOf(lane), end }
}

function endsOf(lanes: readonly Lane[], marks: readonly (Watermarks | MillraceError)[]): Map<Lane, bigint> {
  const ends = new Map<Lane, bigint>()
  for (const [index, lane] of lanes.entries()) {
    const mark = marks[index]
    if (mark !== undefined && !(mark instanceof MillraceError)) ends.set(lane, mark.end)
  }
  return ends
}

function placeOf({ stream, topic, partition }: TopicPartition): TopicPartition {
  return { stream, topic, partition }
}
