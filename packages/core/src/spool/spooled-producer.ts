import { ClosedError, type TimeoutError, type TopicName, UnsupportedError } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { allCarryingActive, carryingActive } from "../observe/traced-records.ts"
import type { BackgroundSettings } from "../producer/background-options.ts"
import { CheckedProducer } from "../producer/checked-producer.ts"
import type { SendResult } from "../producer/confirmation.ts"
import type { Delivery, DeliveryHandle } from "../producer/delivery-call.ts"
import type { Destination } from "../producer/lane.ts"
import type { ProducerSettings } from "../producer/producer-options.ts"
import { Publisher } from "../producer/publisher.ts"
import { SendingEnd, type ShutdownOptions } from "../producer/sending-end.ts"
import { type ProducerStatistics, StatisticsCounter } from "../producer/statistics.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"
import { DispatchLog } from "./dispatch-log.ts"
import type { SpoolLane } from "./lane.ts"
import { LaneSlots } from "./lane-slots.ts"
import { RefusedResend } from "./refused-resend.ts"
import type { RefusedRecord, Spool, SpoolDepth } from "./spool.ts"
import type { SpoolDelivery } from "./spool-delivery.ts"
import { SpoolEngine } from "./spool-engine.ts"
import { SpoolIntake } from "./spool-intake.ts"
import type { SpoolSettings } from "./spool-options.ts"
import { leftBehind, stillOpening, tooManyRefused } from "./spool-refusal.ts"
import { SpoolRoom } from "./spool-room.ts"
import { type SpoolPlace, tellBackpressure, tellSpool } from "./spool-tidings.ts"

/** Settings of a producer with a spool. */
export type SpooledSettings = ProducerSettings & {
  readonly background: BackgroundSettings & { readonly spool: SpoolSettings }
}

/** What waits for the disk, in memory, where the buffer has no limit. */
const usualBufferBytes = 32 << 20

/**
 * A background producer whose queue lies on the disk: a send is accepted when its record is synced there, and from then on it will be
 * delivered, by this process or by a later one that opens the same directory.
 */
export class SpooledProducer extends CheckedProducer {
  readonly spool: Spool
  readonly #settings: SpooledSettings
  readonly #statistics: StatisticsCounter
  readonly #room: SpoolRoom
  readonly #end: SendingEnd
  readonly #slots: LaneSlots
  readonly #intake: SpoolIntake
  readonly #place: SpoolPlace
  readonly #opening: Promise<SpoolEngine>
  #engine: SpoolEngine | undefined
  /** The deadline of the shutdown has passed. */
  #isLate = false
  /** Why the spool could not be opened, and whether anybody heard. */
  #openError: unknown
  #isOpenErrorTold = false
  /** @throws UnsupportedError where the client has no way to open one */
  constructor(client: ClientContext, name: TopicName, settings: SpooledSettings) {
    super(client, { name, route: settings.route }, settings)
    const { background, publisher } = settings
    const { spool } = background
    this.#settings = settings
    this.#statistics = new StatisticsCounter(client.clock)
    this.#place = { name, directory: spool.directory, depth: () => this.#depth() }
    this.#room = new SpoolRoom(client.clock, {
      ...background,
      ...spool,
      owner: publisher.owner,
      onFull: (what, outcome) => this.#tellFull(what, outcome),
    })
    this.#slots = new LaneSlots((topic) => this.#bringLane(topic))
    this.#intake = new SpoolIntake({
      room: this.#room,
      slots: this.#slots,
      statistics: this.#statistics,
      mayExceed: (bytes) => this.#engine?.refusals.grant(bytes) === true,
    })
    const resend = new RefusedResend(this.#intake, this.limits)
    this.spool = {
      directory: spool.directory,
      depth: () => this.#depth(),
      refused: () => this.#refused(),
      resendRefused: () => resend.run(() => this.#openEngine()),
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

  async flush(): Promise<void> {
    const engine = await this.#opened()
    await engine.whileOpen(engine.refusals.isCaller ? this.#answered(engine) : this.#passed(engine))
  }

  async shutdown(options?: ShutdownOptions): Promise<void> {
    const ended = this.#end.begin(options, (late) => this.#lastWords(late))
    this.#engine?.refusals.freeCaller()
    await ended
  }

  /** How errors call it. */
  get #names(): { readonly owner: string; readonly directory: string } {
    const { publisher, background } = this.#settings
    return { owner: publisher.owner, directory: background.spool.directory }
  }

  // ---- accepting

  protected take(record: SendableRecord, to: Destination): Promise<SendResult> {
    return this.#intake.accept(carryingActive(this.client.telemetry, record, this.limits), to)
  }

  protected takeAll(records: readonly SendableRecord[], to: Destination): Promise<SendResult> {
    return this.#intake.acceptAll(allCarryingActive(this.client.telemetry, records, this.limits), to)
  }

  protected async confirm(record: SendableRecord): Promise<Delivery> {
    const delivery = this.#deliver(record)
    // Somebody waits from the start: a failure is theirs, and goes nowhere else.
    const settled = delivery.delivery
    settled.catch(() => {})
    await delivery.accepted
    return await settled
  }

  protected async accept(record: SendableRecord): Promise<DeliveryHandle> {
    const delivery = this.#deliver(record)
    await delivery.accepted
    return delivery
  }

  /** Refused records that nobody takes have as much room as the others have; then no more is accepted. */
  protected assertTaking(): void {
    this.#end.assertOpen()
    const bytes = this.#engine?.refusals.bytes ?? 0
    const { spool } = this.#settings.background
    if (bytes < spool.maxSpoolBytes) return
    throw tooManyRefused(bytes, { ...this.#names, limitBytes: spool.maxSpoolBytes })
  }

  #deliver(record: SendableRecord): SpoolDelivery {
    return this.#intake.deliver(carryingActive(this.client.telemetry, record, this.limits), this.to)
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
    const { clock, random, session } = this.client
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
            this.client,
            { ...publisher, journal: new DispatchLog(journal, clock), onDoubt },
            this.#statistics,
          ),
        onGroup: (bytes) => this.#room.leftMemory(bytes),
        onFreed: (bytes) => {
          this.#room.freed(bytes)
          tellSpool(this.#place, "forwarded")
        },
      })
      const { bytes, records } = engine.depth()
      this.#room.begin(bytes, background.spool.maxSpoolBytes)
      if (records > 0) this.#statistics.submitted(records, engine.inheritedPayloadBytes, clock.monotonicMs())
      // Its shutdown has given up waiting for it.
      if (this.#isLate) return engine
      this.#engine = engine
      if (bytes > 0) tellSpool(this.#place, "resumed")
      engine.start((error) => tellSpool(this.#place, "stopped", error))
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
      tellBackpressure(this.to.name, outcome, { bufferedBytes: this.#room.memoryBytes, maxBufferBytes })
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

  async #openEngine(): Promise<SpoolEngine> {
    this.#end.assertOpen()
    return await this.#opened()
  }

  // ---- the end

  async #passed(engine: SpoolEngine): Promise<void> {
    await this.#slots.entered()
    await this.#room.entered()
    await engine.passed()
  }

  /** The same for a caller inside `onError`: what waits for room may wait for that to return. */
  async #answered(engine: SpoolEngine): Promise<void> {
    await this.#slots.entered()
    await engine.answered()
  }

  /** Settles when nothing is left to wait for; why that is so, the last words tell. */
  async #drain(): Promise<void> {
    try {
      const engine = await this.#opening
      const freed = engine.refusals.freed.then(() => this.#answered(engine))
      await engine.whileOpen(Promise.race([this.#passed(engine), freed]))
    } catch {
      // The error of the opening, or that of the spool that has stopped: `#lastWords` has both.
    }
  }

  #giveUp(error: TimeoutError): void {
    this.#isLate = true
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
    const ended = late ?? new ClosedError(`${this.#settings.publisher.owner} was shut down`)
    this.#room.refuse(ended)
    this.#slots.refuse(ended)
    const kept = await engine.refusals.close()
    const left = engine.depth().records - engine.refusals.telling
    const stays = left > 0 ? leftBehind(left, { ...this.#names, cause: late }) : undefined
    await engine.close(stays)
    if (kept !== undefined) throw kept
    if (engine.error !== undefined) throw engine.error
    if (stays !== undefined) throw stays
  }

  /** The spool is still being opened: it is closed as soon as it is there. */
  async #closeLate(late: TimeoutError): Promise<never> {
    this.#opening.then((engine) => engine.close()).catch(() => {})
    throw stillOpening({ ...this.#names, cause: late })
  }
}

/** How long a send may wait for a disk that is full. */
function patienceMs({ failureMode, blockTimeoutMs }: BackgroundSettings): number {
  if (failureMode === "block") return Number.POSITIVE_INFINITY
  return failureMode === "blockWithTimeout" ? blockTimeoutMs : 0
}
