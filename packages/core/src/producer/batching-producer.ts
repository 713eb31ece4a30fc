import type { HeadersInit, MillraceError, TopicName } from "@millrace/contract"
import type { Timer } from "@millrace/runtime"
import type { ClientContext } from "../client/context.ts"
import { topicText } from "../client/names.ts"
import type { RecordSealer } from "../encryption/encryptor.ts"
import { sealerOf, sealOne } from "../encryption/sealing.ts"
import { headersCarryingActive } from "../observe/traced-records.ts"
import { type PreparedRecord, prepareRecord, type SendableRecord } from "../record/outgoing-record.ts"
import { type BatchingLimits, BatchingMachine, type BatchingStep } from "./batching.machine.ts"
import { flushFailure, joined, withRecords } from "./batching-failure.ts"
import { type PooledBatch, sendPooled } from "./pooled-batch.ts"
import { batchPool, PooledBatchBuilder } from "./pooled-batch-builder.ts"
import type { PublishFailedError } from "./publish-failed.ts"
import { connectionSettings, Publisher } from "./publisher.ts"
import { balanced, type Route } from "./routing.ts"
import { unconfirmedRecords } from "./send-call.ts"
import { SendingEnd, type ShutdownOptions } from "./sending-end.ts"
import { type ProducerStatistics, StatisticsCounter } from "./statistics.ts"

/** How a batching producer works. Checked and complete. */
export interface BatchingSettings extends BatchingLimits {
  /** Of every record; absent: each flush goes to the next partition in balance. */
  readonly partitionKey: Uint8Array | undefined
}

/** Queues begin with slabs of this size and double them. */
const firstSlabBytes = 4096
/** Shared: a send that only queues costs no promise. */
const accepted: Promise<void> = Promise.resolve()

/**
 * Collects records on the client and sends each flush as one append (seed 000, "Batching producers"). A flush runs when `maxRecords`
 * wait, when their payload reaches `maxBytes`, or when `linger` expires. Flushes go out one at a time, so that batches reach the log
 * in queue order, with the connection's publish timeout and retries. Nothing is created.
 */
export class BatchingProducer implements AsyncDisposable {
  readonly #client: ClientContext
  readonly #name: TopicName
  readonly #route: Route
  readonly #machine: BatchingMachine
  readonly #publisher: Publisher
  readonly #sealer: RecordSealer | undefined
  readonly #statistics: StatisticsCounter
  readonly #end: SendingEnd
  #queue: PooledBatchBuilder
  #timer: Timer | undefined
  /** Settles when the last flush that was cut has landed. Never rejects. */
  #tail: Promise<unknown> = accepted
  #kept: PublishFailedError | undefined
  /** The deadline of `close` has passed: nothing more is handed to the backend. */
  #expired: MillraceError | undefined
  #lastFlush: Promise<PublishFailedError | undefined> | undefined
  #closing: Promise<void> | undefined

  /** @throws ClosedError when the client was closed */
  constructor(client: ClientContext, name: TopicName, settings: BatchingSettings) {
    this.#client = client
    this.#name = name
    const { partitionKey } = settings
    this.#route = partitionKey === undefined ? balanced : { kind: "key", key: partitionKey }
    this.#machine = new BatchingMachine(settings, client.clock.monotonicMs())
    this.#statistics = new StatisticsCounter(client.clock)
    const owner = `batching producer of topic "${topicText(name)}"`
    const sending = { ...connectionSettings(client), owner, batchRecords: settings.maxRecords }
    this.#publisher = new Publisher(client, sending, this.#statistics)
    this.#sealer = sealerOf(client, undefined)
    this.#queue = this.#newQueue()
    const parts = {
      owner,
      publishers: [this.#publisher],
      flush: () => this.#flushLast(),
      giveUp: (error: MillraceError) => {
        this.#expired = error
      },
      reports: { name, statistics: () => this.statistics },
    }
    this.#end = new SendingEnd(client, parts, { shutdown: (options) => this.close(options) })
  }

  /** Of the flushes: what only waits in the queue is not counted yet. */
  get statistics(): ProducerStatistics {
    return this.#statistics.snapshot()
  }

  /**
   * Queues one record; `null` is a tombstone. The bytes are copied: they are the caller's again at once. Resolves when the record is
   * accepted, or, where it makes the queue reach a limit, when the flush that it began has ended.
   * @throws InvalidError, RecordTooLargeError for this record alone; PublishFailedError of the flush that it began, or of an earlier
   *   flush by the timer: then this record is not queued, and is the last of `unconfirmed`; ClosedError after close
   */
  send(payload: Uint8Array | null, headers?: HeadersInit): Promise<void> {
    try {
      this.#end.assertOpen()
      const carried = headersCarryingActive(this.#client.telemetry, headers, this.#limits)
      const kept = this.#kept
      if (kept !== undefined) return Promise.reject(this.#refused(kept, payload, carried))
      const before = this.#queue.payloadBytes
      if (carried === undefined) this.#queue.add(payload)
      else this.#queue.add(payload, { headers: carried })
      // Only the first record of a batch sets the timer.
      const nowMs = this.#machine.records === 0 ? this.#client.clock.monotonicMs() : 0
      const step = this.#machine.queued(this.#queue.payloadBytes - before, nowMs)
      return step.kind === "flush" ? this.#inline(step) : this.#follow(step)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /**
   * Sends what waits and settles when it, and every flush before it, has ended.
   * @throws PublishFailedError of this flush together with those that the timer's flushes left behind, with all of their records
   */
  async flush(): Promise<void> {
    const own = await this.#drain()
    const failure = joined(this.#kept, own)
    this.#kept = undefined
    if (failure !== undefined) throw failure
  }

  /**
   * Takes no more, stops the timer, and flushes. A second call waits for the first; what failed is reported by the first alone.
   * @throws as `flush`; at the deadline PublishFailedError with TimeoutError as its cause and every record that was not confirmed
   */
  close(options?: ShutdownOptions): Promise<void> {
    if (this.#closing !== undefined) return this.#closing.then(ignore, ignore)
    try {
      this.#closing = this.#end.begin(options, (late) => this.#lastWords(late))
      return this.#closing
    } catch (error) {
      return Promise.reject(error)
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #flushLast(): Promise<void> {
    this.#lastFlush = this.#drain()
    await this.#lastFlush
  }

  /** At the deadline everything under way has failed by now: its records are told, rather than that it was late. */
  async #lastWords(late: MillraceError | undefined): Promise<void> {
    // Read behind the wait: flushes of the timer that were under way keep their failures meanwhile.
    const last = await this.#lastFlush
    const failure = joined(this.#kept, last)
    this.#kept = undefined
    this.#queue[Symbol.dispose]()
    if (failure !== undefined) throw failure
    if (late !== undefined) throw late
  }

  /** A send that trips a limit waits for its flush and hears of its failure. */
  async #inline(step: BatchingStep & { kind: "flush" }): Promise<void> {
    const failure = await this.#cut(step, "told")
    if (failure !== undefined) throw failure
  }

  #follow(step: BatchingStep): Promise<void> {
    if (step.kind === "setTimer") {
      this.#timer = this.#client.clock.setTimer(step.delayMs, () => {
        this.#timer = undefined
        this.#flushUnasked(this.#machine.expired())
      })
    }
    return accepted
  }

  /** By the timer, or since it expired during an earlier flush: nobody waits for the outcome, so a failure is kept. */
  #flushUnasked(step: BatchingStep): void {
    if (step.kind === "flush") void this.#cut(step, "kept")
  }

  async #drain(): Promise<PublishFailedError | undefined> {
    const step = this.#machine.drain()
    if (step.kind === "flush") return await this.#cut(step, "told")
    await this.#tail
    return undefined
  }

  /** Takes what waits out of the queue and appends it behind the flushes before it. Never rejects. */
  #cut(step: BatchingStep & { kind: "flush" }, failures: "told" | "kept"): Promise<PublishFailedError | undefined> {
    if (step.cancelTimer) this.#timer?.cancel()
    if (step.cancelTimer) this.#timer = undefined
    const batch = this.#queue.build()
    this.#queue = this.#newQueue()
    const turn = this.#tail.then(async () => {
      const failure = await this.#append(batch)
      if (failures === "kept") this.#kept = joined(this.#kept, failure)
      this.#flushUnasked(this.#machine.landed())
      return failures === "told" ? failure : undefined
    })
    this.#tail = turn
    return turn
  }

  async #append(batch: PooledBatch): Promise<PublishFailedError | undefined> {
    try {
      await sendPooled(batch, async ({ records }) => {
        try {
          if (this.#expired !== undefined) throw this.#expired
          return await this.#publisher.submit(this.#name, { records, route: this.#route, resend: false })
        } catch (error) {
          throw flushFailure(error, this.#name, unconfirmedRecords(records.map(this.#routed), -1))
        }
      })
      return undefined
    } catch (error) {
      return error as PublishFailedError
    }
  }

  #refused(kept: PublishFailedError, payload: Uint8Array | null, headers: HeadersInit | undefined): PublishFailedError {
    const own = prepareRecord(headers === undefined ? { payload } : { payload, headers }, this.#limits)
    const copy = { ...own, payload: own.payload === null ? null : own.payload.slice() }
    const record = sealOne(this.#sealer, this.#name, copy)
    this.#kept = undefined
    return withRecords(kept, unconfirmedRecords([this.#routed(record)], -1))
  }

  /** The record with the key that it would have been stored with. */
  readonly #routed = (record: SendableRecord): PreparedRecord => {
    const own = record instanceof Uint8Array ? prepareRecord({ payload: record }, this.#limits) : record
    return this.#route.kind === "key" ? { ...own, key: this.#route.key } : own
  }

  #newQueue(): PooledBatchBuilder {
    const sealer = this.#sealer
    const seal = sealer && ((record: SendableRecord) => sealer.seal(this.#name, record))
    return new PooledBatchBuilder({ limits: this.#limits, pool: batchPool, sizeHintBytes: firstSlabBytes, seal })
  }

  get #limits(): ClientContext["session"]["manifest"]["limits"] {
    return this.#client.session.manifest.limits
  }
}

function ignore(): void {}
