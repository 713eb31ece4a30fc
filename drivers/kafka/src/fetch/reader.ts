/**
 * A reader over partitions of any topics. Every leader is asked at the same time, on connections of the reader's own, by one long poll;
 * what the long poll does not ask for yet (a partition that was just set, or handed over) goes out at once on a second, short one.
 *
 * At most one answer a partition is read ahead. One pump derives from the state which requests go out and whether `next` can answer;
 * whatever changes the state calls it.
 */
import {
  ClosedError,
  InvalidError,
  type LogReader,
  type MillraceError,
  type PartitionRead,
  type ReaderOptions,
  type ReadLimits,
  type ReadPosition,
} from "@millrace/contract"
import { backoffMs, type Clock, type Random, type Timer } from "@millrace/runtime"
import type { Cluster } from "../cluster/cluster.ts"
import { errorCode, kafkaError, meansNoTopic, meansOtherLeader } from "../errors.ts"
import { absorb, partsOf } from "./fetch-answer.ts"
import { covers, type FetchOrder, type FlightOutcome, type Lane } from "./lane.ts"
import { type Leader, Leaders } from "./leaders.ts"
import { defaultFetchSettings, type FetchSettings } from "./settings.ts"
import type { Slot } from "./slot.ts"
import { asMillraceError, checkRange, lookUp, placeText } from "./slot-lookup.ts"
import { Slots } from "./slots.ts"

/** What a reader works with. */
export interface ReaderTools {
  readonly cluster: Cluster
  readonly clock: Clock
  readonly random: Random
}

/** How long a broker may keep a short poll, in ms: the most that a partition waits that is set while both polls are under way. */
const shortPollMs = 25
/**
 * How long after a set the partitions that answered wait for those that have not, in ms: brokers answer one after the other, and the first
 * one is not to be drained alone.
 */
const settlingMs = 50
/** The pause after a failure, in ms: the first, and the longest. */
const firstPauseMs = 50
const longestPauseMs = 1000
/** A topic counts as gone when so many looks in a row did not find it: brokers learn of a topic one after the other. */
const looksForMissing = 2
/** So long after the last word of a partition, in ms, its leader is looked up and told of it anew: it may have moved, or a session lost it. */
const lookAgainMs = 30_000
/** The least that a request asks for, in bytes, however small the caller's limit. */
const leastFetchBytes = 65_536

/** Opens a reader. Nothing is sent before its first `next`. */
export function openKafkaReader(
  tools: ReaderTools,
  options: ReaderOptions & { readonly settings?: Partial<FetchSettings> },
): KafkaReader {
  return new KafkaReader(tools, options)
}

/** A `next` that waits. */
interface Waiter {
  readonly limits: ReadLimits
  readonly resolve: (reads: PartitionRead[]) => void
  readonly reject: (error: MillraceError) => void
  /** With a wait of 0: requests from this number on tell what is there. */
  readonly freshFrom: number | undefined
  timer: Timer | undefined
}

export class KafkaReader implements LogReader {
  readonly #cluster: Cluster
  readonly #clock: Clock
  readonly #random: Random
  readonly #committed: boolean
  readonly #settings: FetchSettings
  readonly #leaders: Leaders
  readonly #searching = new Set<string>()
  readonly #slots = new Slots()
  #waiter: Waiter | undefined
  #requests = 0
  /** The caller's limit at its last `next`: what a request asks for. */
  #wantedBytes = leastFetchBytes
  #alarm: { readonly atMs: number; readonly timer: Timer } | undefined
  /** Until then partitions that were just set are waited for. */
  #settledMs = 0
  #closed = false

  constructor(
    { cluster, clock, random }: ReaderTools,
    options: ReaderOptions & { readonly settings?: Partial<FetchSettings> },
  ) {
    this.#cluster = cluster
    this.#leaders = new Leaders(cluster)
    this.#clock = clock
    this.#random = random
    this.#committed = options.isolation === "committed"
    this.#settings = { ...defaultFetchSettings, ...options.settings }
  }

  set(positions: readonly ReadPosition[]): void {
    if (this.#closed) return
    this.#slots.set(positions)
    if (this.#slots.unheard) this.#settledMs = this.#clock.monotonicMs() + settlingMs
    this.#pump({ ahead: false })
  }

  next(limits: ReadLimits): Promise<PartitionRead[]> {
    if (this.#closed) return Promise.reject(new ClosedError("the reader is closed"))
    if (this.#waiter !== undefined) {
      return Promise.reject(new InvalidError("a poll of this reader is under way: one `next` at a time"))
    }
    this.#wantedBytes = Math.max(leastFetchBytes, limits.maxBytes)
    return new Promise((resolve, reject) => {
      const urgent = limits.maxWaitMs <= 0
      const freshFrom = urgent ? this.#requests + 1 : undefined
      const waiter: Waiter = { limits, resolve, reject, freshFrom, timer: undefined }
      this.#waiter = waiter
      const waitMs = urgent ? this.#cluster.requestTimeoutMs : limits.maxWaitMs
      waiter.timer = this.#clock.setTimer(waitMs, () => this.#settle(this.#slots.take(limits)))
      this.#pump({ ahead: false })
    })
  }

  /** Nothing is waited for: connections are cut, and a lookup that is under way for others too ends without effect. */
  close(): Promise<void> {
    if (!this.#closed) {
      this.#closed = true
      this.#slots.set([])
      this.#alarm?.timer.cancel()
      this.#alarm = undefined
      this.#leaders.close()
      this.#settle([])
    }
    return Promise.resolve()
  }

  /** @param options.ahead Whether requests may go out although nobody waits: behind an answer, so that the next finds something. */
  #pump({ ahead }: { readonly ahead: boolean }): void {
    if (this.#closed) return
    const waiter = this.#waiter
    if (waiter !== undefined && !this.#settling && this.#slots.canAnswer(waiter.limits, waiter.freshFrom)) {
      this.#settle(this.#slots.take(waiter.limits))
      this.#pump({ ahead: true })
      return
    }
    if (waiter === undefined && !ahead) return
    this.#seek()
    this.#fetch()
    this.#setAlarm()
  }

  /** Whether some partition is about to be heard of for the first time. */
  get #settling(): boolean {
    return this.#clock.monotonicMs() < this.#settledMs && this.#slots.unheard
  }

  // ---- answering ------------------------------------------------------------------------------------------

  #settle(reads: PartitionRead[]): void {
    const waiter = this.#waiter
    this.#waiter = undefined
    waiter?.timer?.cancel()
    waiter?.resolve(reads)
  }

  #reject(error: MillraceError): void {
    const waiter = this.#waiter
    this.#waiter = undefined
    waiter?.timer?.cancel()
    waiter?.reject(error)
  }

  // ---- finding leaders ------------------------------------------------------------------------------------

  #seek(): void {
    const nowMs = this.#clock.monotonicMs()
    const topics = new Map<string, Slot[]>()
    for (const slot of this.#slots) {
      if (slot.phase !== "seeking" || slot.retryAtMs > nowMs) continue
      const name = slot.kafkaName
      if (this.#searching.has(name)) continue
      const slots = topics.get(name)
      if (slots === undefined) topics.set(name, [slot])
      else slots.push(slot)
    }
    for (const [topic, slots] of topics) this.#run(this.#search(topic, slots))
  }

  async #search(topic: string, slots: readonly Slot[]): Promise<void> {
    this.#searching.add(topic)
    const found = await lookUp(this.#cluster, topic, slots)
    this.#searching.delete(topic)
    if (this.#closed) return
    for (const [index, slot] of slots.entries()) {
      const outcome = found[index]
      if (outcome === undefined || slot.phase !== "seeking") continue
      switch (outcome.kind) {
        case "leader":
          slot.found(outcome, this.#clock.monotonicMs())
          break
        case "leaderless":
          this.#trouble(slot, kafkaError(errorCode.leaderNotAvailable, { what: `reading ${placeText(slot.position)}` }))
          break
        case "missing":
          slot.missing++
          if (slot.missing >= looksForMissing) slot.fail(outcome.error)
          else this.#trouble(slot, outcome.error)
          break
        case "error":
          if (outcome.error.retryable) this.#trouble(slot, outcome.error)
          else slot.fail(outcome.error)
          break
      }
    }
  }

  /** What may pass: the leader is looked up again after a pause. */
  #trouble(slot: Slot, error: MillraceError): void {
    this.#cluster.invalidate(slot.kafkaName)
    slot.phase = "seeking"
    slot.trouble = error
    slot.retryAtMs = this.#clock.monotonicMs() + this.#pauseMs(slot.failures++)
  }

  // ---- fetching -------------------------------------------------------------------------------------------

  #fetch(): void {
    const nowMs = this.#clock.monotonicMs()
    const orders = new Map<number, Slot[]>()
    const hungry = this.#waiter !== undefined && this.#slots.queuedBytes < 2 * this.#wantedBytes
    for (const slot of this.#slots) {
      if (slot.phase !== "fetching" || slot.error !== undefined) continue
      if (slot.queue.length > 0 && !hungry) continue
      const slots = orders.get(slot.leader)
      if (slots === undefined) orders.set(slot.leader, [slot])
      else slots.push(slot)
    }
    for (const [nodeId, slots] of orders) {
      const leader = this.#leaders.of(nodeId)
      if (leader.retryAtMs <= nowMs) this.#order(nodeId, leader, slots)
    }
  }

  #order(nodeId: number, leader: Leader, slots: readonly Slot[]): void {
    const { long, short } = leader
    const freshFrom = this.#waiter?.freshFrom
    // What is there already comes at once, and a long poll does not hide it.
    const unheard = slots.some((slot) => slot.unheard)
    if (long.idle) {
      const waitMs = freshFrom === undefined && !unheard ? this.#settings.fetchMaxWaitMs : 0
      this.#run(this.#send(nodeId, long, slots, waitMs))
      return
    }
    if (!short.idle || long.flight === undefined) return
    const flight = long.flight
    const left = slots.filter((slot) => !covers(flight, slot, freshFrom))
    if (left.length > 0)
      this.#run(this.#send(nodeId, short, left, freshFrom === undefined && !unheard ? shortPollMs : 0))
  }

  async #send(nodeId: number, lane: Lane, slots: readonly Slot[], waitMs: number): Promise<void> {
    if (!lane.open) {
      try {
        await lane.connect()
      } catch (error) {
        this.#leaderFailed(nodeId, slots, asMillraceError(error))
      }
      // What is to be asked for may have changed meanwhile: the pump decides anew.
      return
    }
    const maxBytes = Math.min(this.#settings.fetchMaxBytes, this.#wantedBytes)
    const order: FetchOrder = {
      slots,
      number: ++this.#requests,
      waitMs,
      maxBytes,
      partitionMaxBytes: Math.min(this.#settings.partitionFetchBytes, maxBytes),
      committed: this.#committed,
    }
    this.#arrived(nodeId, await lane.fetch(order))
  }

  #arrived(nodeId: number, outcome: FlightOutcome): void {
    const { flight } = outcome
    if (outcome.error !== undefined) {
      this.#leaderFailed(nodeId, flight.order.slots, asMillraceError(outcome.error))
      return
    }
    const leader = this.#leaders.of(nodeId)
    leader.failures = 0
    for (const slot of flight.order.slots) {
      slot.answered = flight.order.number
      if (slot.phase === "fetching") slot.trouble = undefined
    }
    for (const { slot, data } of partsOf(outcome)) {
      if (!this.#slots.has(slot)) continue
      slot.heardAtMs = this.#clock.monotonicMs()
      const code = absorb(slot, data, { from: flight.offsets.get(slot) as bigint, committed: this.#committed })
      if (code !== errorCode.none) this.#refused(slot, code)
    }
    this.#lookAgain(leader, flight.order.slots)
  }

  #lookAgain({ long }: Leader, slots: readonly Slot[]): void {
    const silentSinceMs = this.#clock.monotonicMs() - lookAgainMs
    for (const slot of slots) {
      if (slot.phase !== "fetching" || slot.heardAtMs > silentSinceMs) continue
      long.beginAgain()
      this.#cluster.invalidate(slot.kafkaName)
      slot.phase = "seeking"
    }
  }

  #refused(slot: Slot, code: number): void {
    const error = kafkaError(code, {
      what: `reading ${placeText(slot.position)} from offset ${slot.fetchFrom}`,
      context: { stream: slot.position.stream, topic: slot.position.topic, partition: slot.position.partition },
      readOnly: true,
    })
    if (code === errorCode.offsetOutOfRange) {
      slot.phase = "checking"
      this.#run(this.#check(slot))
    } else if (meansNoTopic(code) || meansOtherLeader(code) || error.retryable) this.#trouble(slot, error)
    else slot.fail(error)
  }

  async #check(slot: Slot): Promise<void> {
    const error = await checkRange(this.#cluster, slot)
    if (slot.phase !== "checking") return
    if (error === undefined) slot.phase = "seeking"
    else if (error.retryable || error.kind === "not-found") this.#trouble(slot, error)
    else slot.fail(error)
  }

  /** A leader that cannot be asked: its partitions may have another one soon. */
  #leaderFailed(nodeId: number, slots: readonly Slot[], error: MillraceError): void {
    if (this.#closed) return
    const leader = this.#leaders.of(nodeId)
    leader.retryAtMs = this.#clock.monotonicMs() + this.#pauseMs(leader.failures++)
    for (const slot of slots) if (slot.phase === "fetching") this.#trouble(slot, error)
    if (!error.retryable) this.#reject(error)
  }

  /** The poll as a whole has failed when no partition can be read at the moment. */
  #checkTrouble(): void {
    if (this.#waiter === undefined || this.#slots.size === 0) return
    let error: MillraceError | undefined
    for (const slot of this.#slots) {
      if (slot.phase === "failed" && slot.error === undefined) continue
      if (slot.tellable || !slot.outage) return
      error = slot.trouble
    }
    if (error !== undefined) this.#reject(error)
  }

  // ---- housekeeping ---------------------------------------------------------------------------------------

  /** Runs work whose end may change what is to be done. */
  #run(work: Promise<void>): void {
    const proceed = (): void => {
      if (this.#closed) return
      this.#checkTrouble()
      this.#pump({ ahead: false })
    }
    work.then(proceed, (error) => {
      this.#reject(asMillraceError(error))
      proceed()
    })
  }

  /** Half of the pause is chance, so that readers do not all come back at one moment. */
  #pauseMs(failures: number): number {
    const pauseMs = backoffMs(failures, firstPauseMs, longestPauseMs)
    return pauseMs / 2 + (pauseMs / 2) * (this.#random.uint32() / 2 ** 32)
  }

  /** Wakes the pump when the first pause is over. */
  #setAlarm(): void {
    const nowMs = this.#clock.monotonicMs()
    let atMs = this.#settling ? this.#settledMs : Number.POSITIVE_INFINITY
    for (const slot of this.#slots) {
      if (slot.phase === "seeking" && slot.retryAtMs > nowMs) atMs = Math.min(atMs, slot.retryAtMs)
      if (slot.phase === "fetching") {
        const { retryAtMs } = this.#leaders.of(slot.leader)
        if (retryAtMs > nowMs) atMs = Math.min(atMs, retryAtMs)
      }
    }
    if (this.#alarm?.atMs === atMs) return
    this.#alarm?.timer.cancel()
    this.#alarm = undefined
    if (atMs === Number.POSITIVE_INFINITY) return
    const timer = this.#clock.setTimer(atMs - nowMs, () => {
      this.#alarm = undefined
      this.#pump({ ahead: false })
    })
    this.#alarm = { atMs, timer }
  }
}
