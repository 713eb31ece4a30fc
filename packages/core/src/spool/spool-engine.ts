import { MillraceError, type Session, StorageError, type TopicDescription, type TopicName } from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import { topicKey } from "../client/names.ts"
import type { BackgroundOptions } from "../producer/background-options.ts"
import type { Publisher } from "../producer/publisher.ts"
import type { ForwardCall } from "./forward-call.ts"
import { Forwarder } from "./forwarder.ts"
import { Journal } from "./journal.ts"
import { SpoolLane, type SpoolLaneContext } from "./lane.ts"
import { Refusals } from "./refusals.ts"
import type { SpoolDepth } from "./spool.ts"
import type { SpoolSettings } from "./spool-options.ts"
import { SpoolStore } from "./spool-store.ts"

/** Of what a lane may read ahead, whatever the buffer's size. */
const leastWindowBytes = 1 << 20

/** How long the end waits for the last marks to be stored, in ms. */
const lastMarksMs = 1_000

/** What an engine works with. */
export interface SpoolEngineContext {
  readonly clock: Clock
  readonly random: Random
  readonly settings: SpoolSettings
  /** How much may be on its way to the backend, of all lanes together. */
  readonly bufferBytes: number
  readonly patienceMs: number
  readonly keepTimes: boolean
  readonly onError: BackgroundOptions["onError"]
  /** The publisher of what leaves the spool, which writes down in this journal what it sends. */
  readonly publisher: (journal: Journal, onDoubt: (records: number) => void) => Publisher
  readonly onGroup: (bytes: number) => void
  readonly onFreed: (bytes: number) => void
}

/**
 * An open spool: its lanes, the forwarders that empty them, and what was refused. It stops for good when its store fails; then nothing is
 * accepted any more, and what is in it goes out at the next opening.
 */
export class SpoolEngine {
  readonly store: SpoolStore
  readonly journal: Journal
  readonly refusals: Refusals
  readonly publisher: Publisher
  readonly #context: SpoolEngineContext
  readonly #lanes = new Map<string, SpoolLane>()
  readonly #forwarders: Forwarder[] = []
  #onStop: (error: MillraceError) => void = () => {}
  #nextLane = 0
  #possiblyDoubled = 0
  #isHalted = false
  /** Why nobody is to wait any more. */
  #ended: MillraceError | undefined
  /** Those who wait for what may not come. */
  readonly #waiters = new Set<(error: MillraceError) => void>()
  /** Of the records that an earlier process left. */
  inheritedPayloadBytes = 0
  /** Why the spool has stopped. */
  error: MillraceError | undefined

  private constructor(
    parts: { readonly store: SpoolStore; readonly journal: Journal },
    refused: { readonly topic: TopicDescription; readonly count: number },
    context: SpoolEngineContext,
  ) {
    this.store = parts.store
    this.journal = parts.journal
    this.#context = context
    const { clock, onError } = context
    const onBroken = (error: unknown): void => this.#stop(error)
    this.refusals = new Refusals({ store: this.store, topic: refused.topic, clock, onError, onBroken }, refused.count)
    this.publisher = context.publisher(this.journal, (records) => {
      this.#possiblyDoubled += records
    })
    this.journal.listen({
      onLow: (lane, offset) => this.#laneOf(lane)?.trim(offset),
      onFailed: onBroken,
    })
  }

  /** Opens the spool in a session, which is the engine's from here on. What is in it goes on by `start`. */
  static async open(session: Session, context: SpoolEngineContext): Promise<SpoolEngine> {
    const { clock, random, settings } = context
    const store = await SpoolStore.open(session, { clock, random, directory: settings.directory })
    try {
      const journal = await Journal.open(store, clock)
      const topic = await store.topic("refused")
      const { first, end } = await store.watermarks(topic)
      const engine = new SpoolEngine({ store, journal }, { topic, count: Number(end - first) }, context)
      await engine.refusals.measure()
      for (const known of journal.state.lanes.values()) await engine.#reopen(known)
      return engine
    } catch (error) {
      await store.close().catch(() => {})
      throw error
    }
  }

  /** Goes on with what is in the spool. To be called once. @param onStop Told when the spool stops by itself. */
  start(onStop: (error: MillraceError) => void): void {
    this.#onStop = onStop
    for (const forwarder of this.#forwarders) forwarder.start()
  }

  /** Settles as the work does; or rejects when the spool stops by itself, or is closed, before. */
  whileOpen<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      work.finally(() => this.#waiters.delete(reject)).then(resolve, reject)
      const error = this.error ?? this.#ended
      if (error === undefined) this.#waiters.add(reject)
      else reject(error)
    })
  }

  depth(): SpoolDepth {
    let records = 0
    let bytes = 0
    let oldestMicros: bigint | undefined
    for (const { progress } of this.#lanes.values()) {
      records += progress.waiting
      bytes += progress.bytes
      const since = progress.oldestMicros
      if (since !== undefined && (oldestMicros === undefined || since < oldestMicros)) oldestMicros = since
    }
    return {
      records,
      bytes,
      ...(oldestMicros === undefined ? {} : { oldestMicros }),
      refused: this.refusals.count,
      possiblyDoubled: this.#possiblyDoubled,
    }
  }

  /** The lane of a topic that has one. */
  knownLane(name: TopicName): SpoolLane | undefined {
    return this.#lanes.get(topicKey(name))
  }

  /** Makes a lane for a topic. Not to be asked twice for one. */
  async newLane(name: TopicName): Promise<SpoolLane> {
    const lane = this.#nextLane++
    const { stream, topic } = name
    const description = await this.store.topic(laneName(lane))
    await this.journal.tell({ kind: "lane", lane, stream, topic })
    const { end } = await this.store.watermarks(description)
    const made = this.#add({ lane, name: { stream, topic }, topic: description, low: end })
    this.#forwarders.at(-1)?.start()
    return made
  }

  /** Settles when everything that was accepted before is delivered or handed over. */
  async passed(): Promise<void> {
    await Promise.all([...this.#lanes.values()].map((lane) => lane.acceptance.settled()))
    await Promise.all([...this.#lanes.values()].map((lane) => lane.passed()))
    await this.refusals.finished()
  }

  /** Settles when everything that was accepted before has had its answer, as far as it goes while `onError` has not returned. */
  async answered(): Promise<void> {
    await Promise.all([...this.#lanes.values()].map((lane) => lane.acceptance.settled()))
    await Promise.all(this.#forwarders.map((forwarder) => forwarder.handedOn()))
    await this.publisher.flush()
  }

  /** Nothing goes out any more, and what comes back from now on stays in the spool. */
  halt(error: MillraceError): void {
    this.#isHalted = true
    for (const lane of this.#lanes.values()) {
      lane.acceptance.close(error)
      lane.refuseListeners(error)
    }
  }

  /**
   * Ends everything and closes the store. The publisher has settled, or was given up.
   * @param left What those are told who wait for something that stays in the spool; absent when nothing does.
   */
  async close(left?: MillraceError): Promise<void> {
    this.#isHalted = true
    this.#ended = left
    if (left !== undefined) {
      for (const lane of this.#lanes.values()) lane.refuseListeners(left)
      for (const refuse of this.#waiters) refuse(left)
    }
    this.publisher.end()
    await Promise.all(this.#forwarders.map((forwarder) => forwarder.stop()))
    try {
      if (this.error === undefined) await this.#lastMarks()
    } finally {
      this.journal.close()
      await this.store.close()
    }
  }

  /** What is not stored in time, for want of room, costs resends at the next opening, and no more. */
  #lastMarks(): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = this.#context.clock.setTimer(lastMarksMs, resolve)
      this.journal
        .flush()
        .finally(() => timer.cancel())
        .then(resolve, reject)
    })
  }

  async #reopen(known: { readonly lane: number; readonly name: TopicName; readonly low: bigint }): Promise<void> {
    this.#nextLane = Math.max(this.#nextLane, known.lane + 1)
    const topic = await this.store.topic(laneName(known.lane))
    const { first, end } = await this.store.watermarks(topic)
    // The mark may be older than the trim that followed it.
    let { low } = known
    if (first > low) low = first
    const { progress } = this.#add({ ...known, topic, low })
    const reader = this.store.reader(topic, low)
    try {
      while (progress.end < end) {
        const read = await reader.next()
        for (const batch of read.batches) {
          const start = batch.indexOf(progress.end)
          if (start < batch.count) progress.accepted(batch.count - start, batch.bytes, batch.timestampMicros(start))
          for (let i = start; i < batch.count; i++) this.inheritedPayloadBytes += batch.payload(i)?.length ?? 0
        }
      }
    } finally {
      await reader.close()
    }
  }

  #add(place: ConstructorParameters<typeof SpoolLane>[0]): SpoolLane {
    const { clock, patienceMs, onGroup, onFreed, keepTimes, settings } = this.#context
    const { store, journal, publisher } = this
    const onBroken = (error: unknown): void => this.#stop(error)
    const context: SpoolLaneContext = {
      store,
      journal,
      clock,
      patienceMs,
      onGroup,
      onFreed,
      onBroken,
      onFailed: (lane, runs, failure) => this.#failed(lane, runs, failure),
      onCallSettled: (call: ForwardCall, failed: boolean) => publisher.settled(call, failed),
    }
    const lane = new SpoolLane(place, context)
    this.#lanes.set(topicKey(place.name), lane)
    this.#forwarders.push(
      new Forwarder(lane, {
        store,
        journal,
        publisher,
        clock,
        keepTimes,
        onExpired: settings.onExpired,
        onDoubt: (records) => {
          this.#possiblyDoubled += records
        },
        windowBytes: () => Math.max(leastWindowBytes, this.#context.bufferBytes / this.#lanes.size),
        onBroken,
      }),
    )
    return lane
  }

  #laneOf(number: number): SpoolLane | undefined {
    for (const lane of this.#lanes.values()) if (lane.lane === number) return lane
    return undefined
  }

  #failed(...[lane, runs, failure]: Parameters<SpoolLaneContext["onFailed"]>): void {
    // What the end of the connection, or of the producer, has cut off is no refusal: it goes out at the next opening.
    if (this.#isHalted || failure.error.kind === "closed" || failure.error.kind === "cancelled") return
    const left = lane.tellFailure(runs, failure)
    if (left.records.length > 0) this.refusals.take(lane, left.runs, { ...failure, records: left.records })
  }

  #stop(thrown: unknown): void {
    if (this.error !== undefined) return
    const { directory } = this.#context.settings
    this.error = asError(thrown, directory)
    this.halt(this.error)
    this.publisher.abort(this.error)
    for (const refuse of this.#waiters) refuse(this.error)
    this.#onStop(this.error)
  }
}

function laneName(lane: number): string {
  return `lane-${lane}`
}

function asError(thrown: unknown, directory: string): MillraceError {
  const message = `the spool in "${directory}" has stopped: ${thrown instanceof Error ? thrown.message : String(thrown)}`
  if (!(thrown instanceof MillraceError)) return new StorageError(message, { cause: thrown })
  return new MillraceError(thrown.kind, message, {
    retryable: false,
    outcome: "rejected",
    context: { ...thrown.context, directory },
    cause: thrown,
  })
}
