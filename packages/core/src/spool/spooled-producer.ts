import { type Manifest, type MillraceError, TimeoutError, type TopicName, UnsupportedError } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import type { RecordSealer } from "../encryption/encryptor.ts"
import { sealAll, sealerOf, sealOne } from "../encryption/sealing.ts"
import { allCarryingActive, carryingActive } from "../observe/traced-records.ts"
import type { BackgroundSettings } from "../producer/background-options.ts"
import type { SendResult } from "../producer/confirmation.ts"
import type { Delivery, DeliveryHandle } from "../producer/delivery-call.ts"
import type { Destination } from "../producer/lane.ts"
import { PooledBatch, type PooledContent, sendPooled } from "../producer/pooled-batch.ts"
import {
  nameOf,
  type Producer,
  preparedBatch,
  preparedSend,
  type SendBatchOptions,
  type SendOptions,
  type TopicRef,
} from "../producer/producer.ts"
import type { ProducerSettings } from "../producer/producer-options.ts"
import { Publisher } from "../producer/publisher.ts"
import { SendingEnd, type ShutdownOptions } from "../producer/sending-end.ts"
import { type ProducerStatistics, StatisticsCounter } from "../producer/statistics.ts"
import { type OutgoingRecord, prepareRecord, prepareRecords, type SendableRecord } from "../record/outgoing-record.ts"
import { DispatchLog } from "./dispatch-log.ts"
import type { SpoolLane } from "./lane.ts"
import { LaneSlots } from "./lane-slots.ts"
import type { RefusedRecord, Spool, SpoolDepth } from "./spool.ts"
import type { SpoolDelivery } from "./spool-delivery.ts"
import { SpoolEngine } from "./spool-engine.ts"
import { SpoolIntake } from "./spool-intake.ts"
import type { SpoolSettings } from "./spool-options.ts"
import { SpoolRoom } from "./spool-room.ts"
import { type SpoolPlace, tellBackpressure, tellSpool } from "./spool-tidings.ts"

/** Settings of a producer with a spool. */
export type SpooledSettings = ProducerSettings & {
  readonly background: BackgroundSettings & { readonly spool: SpoolSettings }
}

/** Refused records that are accepted anew at once. */
const mostResent = 1_000

/** What waits for the disk, in memory, where the buffer has no limit. */
const usualBufferBytes = 32 << 20

/**
 * A background producer whose queue lies on the disk: a send is accepted when its record is synced there, and from then on it will be
 * delivered, by this process or by a later one that opens the same directory.
 */
export class SpooledProducer implements Producer {
  readonly spool: Spool
  readonly #client: ClientContext
  readonly #settings: SpooledSettings
  readonly #to: Destination
  readonly #limits: Manifest["limits"]
  readonly #sealer: RecordSealer | undefined
  readonly #statistics: StatisticsCounter
  readonly #room: SpoolRoom
  readonly #end: SendingEnd
  readonly #slots: LaneSlots
  readonly #intake: SpoolIntake
  readonly #place: SpoolPlace
  readonly #opening: Promise<SpoolEngine>
  #engine: SpoolEngine | undefined
  /** Why the spool could not be opened, and whether anybody heard. */
  #openError: unknown
  #isOpenErrorTold = false
  /** @throws UnsupportedError where the client has no way to open one */
  constructor(client: ClientContext, name: TopicName, settings: SpooledSettings) {
    const { background, publisher, route } = settings
    const { spool } = background
    this.#client = client
    this.#settings = settings
    this.#to = { name, route }
    this.#limits = client.session.manifest.limits
    this.#sealer = sealerOf(client, settings.encryptor)
    this.#statistics = new StatisticsCounter(client.clock)
    this.#place = { name, directory: spool.directory, depth: () => this.#depth() }
    this.#room = new SpoolRoom(client.clock, {
      ...background,
      ...spool,
      owner: publisher.owner,
      onFull: (what, outcome) => this.#tellFull(what, outcome),
    })
    this.#slots = new LaneSlots((topic) => this.#bringLane(topic))
    this.#intake = new SpoolIntake({ room: this.#room, slots: this.#slots, statistics: this.#statistics })
    this.spool = {
      directory: spool.directory,
      depth: () => this.#depth(),
      refused: () => this.#refused(),
      resendRefused: () => this.#resendRefused(),
    }
    const open = client.openSpool
    if (open === undefined) {
      throw new UnsupportedError(
        `${publisher.owner}: this client has nothing to keep a spool in: use the client that connect() of the package millrace gives`,
      )
    }
    this.#end = new SendingEnd(
      client,
      {
        owner: publisher.owner,
        publishers: [],
        flush: () => this.#drain(),
        giveUp: (error) => this.#giveUp(error),
        reports: { name, statistics: () => this.statistics },
      },
      this,
    )
    this.#opening = this.#open(open)
    // Whoever asks for the spool hears of it; and `shutdown` tells what nobody asked for.
    this.#opening.catch(() => {})
  }

  get statistics(): ProducerStatistics {
    return this.#statistics.snapshot()
  }

  /** Settles when the spool is open. The backend need not be there. */
  async init(): Promise<void> {
    this.#end.assertOpen()
    await this.#opened()
  }

  send(what: Uint8Array | null | PooledBatch, options?: SendOptions): Promise<SendResult> {
    return what instanceof PooledBatch ? this.sendBatch(what, options) : this.#send(this.#to, what, options)
  }

  sendTo(topic: TopicRef, payload: Uint8Array | null, options?: SendOptions): Promise<SendResult> {
    try {
      const name = nameOf(topic, this.#client.session.manifest)
      return this.#send({ name, route: this.#to.route }, payload, options)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  sendBatch(
    batch: readonly (Uint8Array | OutgoingRecord)[] | PooledBatch,
    options?: SendBatchOptions,
  ): Promise<SendResult> {
    if (batch instanceof PooledBatch) return sendPooled(batch, (content) => this.#sendBatch(content, options))
    return this.#sendBatch(batch, options)
  }

  async sendAndConfirm(payload: Uint8Array | null, options?: SendOptions): Promise<Delivery> {
    this.#end.assertOpen()
    const delivery = this.#deliver(preparedSend(payload, options, this.#limits))
    // Somebody waits from the start: a failure is theirs, and goes nowhere else.
    const settled = delivery.delivery
    settled.catch(() => {})
    await delivery.accepted
    return await settled
  }

  async enqueue(record: OutgoingRecord): Promise<DeliveryHandle> {
    this.#end.assertOpen()
    const delivery = this.#deliver(prepareRecord(record, this.#limits))
    await delivery.accepted
    return delivery
  }

  async flush(): Promise<void> {
    const engine = await this.#opened()
    await Promise.race([this.#passed(engine), engine.broken])
  }

  waitUntilAllSends(): Promise<void> {
    return this.flush()
  }

  async shutdown(options?: ShutdownOptions): Promise<void> {
    const ended = this.#end.begin(options, (late) => this.#lastWords(late))
    this.#engine?.refusals.freeCaller()
    await ended
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.shutdown()
  }

  // ---- accepting

  async #sendBatch(
    batch: readonly (Uint8Array | OutgoingRecord)[] | PooledContent,
    options: SendBatchOptions | undefined,
  ): Promise<SendResult> {
    this.#end.assertOpen()
    const { name } = this.#to
    const prepared = preparedBatch(batch, options, { route: this.#to.route, limits: this.#limits })
    const sealed = sealAll(this.#sealer, name, prepared.records)
    const records = allCarryingActive(this.#client.telemetry, sealed, this.#limits)
    return await this.#intake.acceptAll(records, { name, route: prepared.route })
  }

  /** As it goes to the disk, and from there to the backend. */
  #sealed(record: SendableRecord, name: TopicName): SendableRecord {
    return carryingActive(this.#client.telemetry, sealOne(this.#sealer, name, record), this.#limits)
  }

  #send(to: Destination, payload: Uint8Array | null, options: SendOptions | undefined): Promise<SendResult> {
    try {
      this.#end.assertOpen()
      const record = this.#sealed(preparedSend(payload, options, this.#limits), to.name)
      return this.#intake.accept(record, to)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #deliver(record: SendableRecord): SpoolDelivery {
    return this.#intake.deliver(this.#sealed(record, this.#to.name), this.#to)
  }

  // ---- opening

  async #bringLane(name: TopicName): Promise<SpoolLane> {
    const engine = await this.#opened()
    return engine.knownLane(name) ?? (await engine.newLane(name))
  }

  async #opened(): Promise<SpoolEngine> {
    try {
      return await this.#opening
    } catch (error) {
      this.#isOpenErrorTold = true
      throw error
    }
  }

  async #open(open: NonNullable<ClientContext["openSpool"]>): Promise<SpoolEngine> {
    const { background, publisher } = this.#settings
    const { clock, random, session } = this.#client
    try {
      const store = await open(background.spool.directory)
      const engine = await SpoolEngine.open(store, {
        clock,
        random,
        settings: background.spool,
        bufferBytes: background.maxBufferBytes === 0 ? usualBufferBytes : background.maxBufferBytes,
        patienceMs: patienceMs(background),
        keepTimes: session.manifest.read.originTimestamp !== "given",
        onError: background.onError,
        publisher: (journal, onDoubt) =>
          new Publisher(
            this.#client,
            { ...publisher, journal: new DispatchLog(journal, clock), onDoubt },
            this.#statistics,
          ),
        onGroup: (bytes) => this.#room.leftMemory(bytes),
        onFreed: (bytes) => {
          this.#room.freed(bytes)
          tellSpool(this.#place, "forwarded")
        },
      })
      const { bytes } = engine.depth()
      this.#room.begin(bytes, background.spool.maxSpoolBytes)
      this.#engine = engine
      if (bytes > 0) tellSpool(this.#place, "resumed")
      engine.broken.catch((error: MillraceError) => tellSpool(this.#place, "stopped", error))
      return engine
    } catch (error) {
      this.#openError = error
      throw error
    }
  }

  #tellFull(what: "memory" | "disk", outcome: "waits" | "refused"): void {
    if (what === "disk") tellSpool(this.#place, "full")
    else {
      const { maxBufferBytes } = this.#settings.background
      tellBackpressure(this.#to.name, outcome, { bufferedBytes: this.#room.memoryBytes, maxBufferBytes })
    }
  }

  // ---- what is asked of it

  #depth(): SpoolDepth {
    return this.#engine?.depth() ?? { records: 0, bytes: 0, refused: 0, possiblyDoubled: 0 }
  }

  async *#refused(): AsyncGenerator<RefusedRecord> {
    const engine = await this.#opened()
    for await (const { offset: _, ...refused } of engine.refusals.list()) yield refused
  }

  async #resendRefused(): Promise<number> {
    this.#end.assertOpen()
    const engine = await this.#opened()
    let count = 0
    let end = 0n
    let promises: Promise<SendResult>[] = []
    for await (const { stream, topic, record, offset } of engine.refusals.list()) {
      const [prepared] = prepareRecords([record], this.#limits, { resend: true })
      const to: Destination = { name: { stream, topic }, route: { kind: "balanced" } }
      promises.push(this.#intake.acceptAll([prepared as SendableRecord], to))
      count++
      end = offset + 1n
      if (promises.length < mostResent) continue
      await Promise.all(promises)
      promises = []
    }
    await Promise.all(promises)
    if (count > 0) await engine.refusals.forget(end, count)
    return count
  }

  // ---- the end

  async #passed(engine: SpoolEngine): Promise<void> {
    await this.#slots.entered()
    await this.#room.entered()
    await engine.passed()
  }

  /** Settles when nothing is left to wait for; why that is so, the last words tell. */
  async #drain(): Promise<void> {
    try {
      const engine = await this.#opening
      await Promise.race([this.#passed(engine), engine.broken])
    } catch {
      // The error of the opening, or that of the spool that has stopped: `#lastWords` has both.
    }
  }

  #giveUp(error: TimeoutError): void {
    this.#room.refuse(error)
    this.#slots.refuse(error)
    this.#engine?.halt(error)
    this.#engine?.publisher.abort(error)
  }

  async #lastWords(late: TimeoutError | undefined): Promise<void> {
    const engine = this.#engine
    if (engine === undefined) {
      if (this.#openError !== undefined && !this.#isOpenErrorTold) throw this.#openError
      if (late !== undefined) await this.#closeLate(late)
      return
    }
    const kept = await engine.refusals.close()
    const left = engine.depth().records - engine.refusals.telling
    await engine.close()
    if (kept !== undefined) throw kept
    if (engine.error !== undefined) throw engine.error
    if (late !== undefined && left > 0) throw this.#leftBehind(left, late)
  }

  /** The spool is still being opened: it is closed as soon as it is there. */
  async #closeLate(late: TimeoutError): Promise<never> {
    this.#opening.then((engine) => engine.close()).catch(() => {})
    throw late
  }

  #leftBehind(records: number, late: TimeoutError): TimeoutError {
    const { directory } = this.#settings.background.spool
    const what = records === 1 ? "1 record stays" : `${records} records stay`
    return new TimeoutError(
      `${this.#settings.publisher.owner}: ${what} in the spool "${directory}": ` +
        "nothing is lost, and what stays goes out when a producer opens the spool again",
      { outcome: "unknown", context: { spooledRecords: records, directory }, cause: late },
    )
  }
}

/** How long a send may wait for a disk that is full. */
function patienceMs({ failureMode, blockTimeoutMs }: BackgroundSettings): number {
  if (failureMode === "block") return Number.POSITIVE_INFINITY
  return failureMode === "blockWithTimeout" ? blockTimeoutMs : 0
}
