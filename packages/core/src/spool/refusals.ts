import {
  Headers,
  HeaderValue,
  MillraceError,
  type TopicDescription,
  type TopicName,
  type WireRecord,
} from "@millrace/contract"
import { backoffMs, type Clock, type Timer } from "@millrace/runtime"
import { longestBackoffMs } from "../client/attempts.ts"
import type { BackgroundOptions } from "../producer/background-options.ts"
import { FailureDesk } from "../producer/failure-desk.ts"
import { PublishFailedError } from "../producer/publish-failed.ts"
import { balanced } from "../producer/routing.ts"
import { type OutgoingRecord, prepareRecord, type SendableRecord } from "../record/outgoing-record.ts"
import { bufferBytesOf } from "../record/record-size.ts"
import { JournalReader, JournalWriter } from "./journal-bytes.ts"
import type { SpoolLane } from "./lane.ts"
import type { OffsetRun } from "./offset-runs.ts"
import type { RefusedRecord } from "./spool.ts"
import { SpooledRecord, spooledRecord } from "./spool-record.ts"
import type { SpoolStore } from "./spool-store.ts"

/** The header of a refused record: the target's stream and topic, and why. */
const refusedHeader = "millrace-refused"

/** What kept failures hold in memory at the most; beyond it they are in the spool alone, and counted. */
const mostKeptBytes = 1 << 20

/** What a call of `onError` may send beyond the limits of the spool, at the least. */
const leastGrantBytes = 1 << 20

/** A message is cut to this for the disk. */
const longestReason = 1000

/** What refusals work with. */
export interface RefusalsContext {
  readonly store: SpoolStore
  readonly topic: TopicDescription
  readonly clock: Clock
  readonly onError: BackgroundOptions["onError"]
  readonly onBroken: (error: unknown) => void
}

interface Refusal {
  readonly lane: SpoolLane
  readonly runs: readonly OffsetRun[]
  readonly failure: PublishFailedError
}

/**
 * What becomes of records that the backend refuses for good: `onError` takes them, one failure at a time; without it, and when it throws,
 * they are put aside in the spool. Only then is their place in the lane given up, so that a process that ends in between tells them again.
 */
export class Refusals {
  readonly #context: RefusalsContext
  readonly #desk: FailureDesk
  readonly #open = new Map<PublishFailedError, Refusal>()
  /** Whose records keep their place in the lane: they go out again, and are not told at the end. */
  readonly #inLane = new Set<PublishFailedError>()
  #aside: Promise<void> = Promise.resolve()
  readonly #freed = Promise.withResolvers<void>()
  #grantBytes = 0
  #isClosed = false
  #keptBytes = 0
  /** Records that `onError` is being told of. */
  telling = 0
  /** Records that are kept aside. */
  count: number
  /** What they take, as a buffer counts it. */
  bytes = 0
  #timer: Timer | undefined
  #wake: (() => void) | undefined

  /** @param count How many are kept aside from before. */
  constructor(context: RefusalsContext, count: number) {
    this.#context = context
    this.count = count
    const { onError } = context
    this.#desk = new FailureDesk(onError === undefined ? undefined : (failure) => this.#tell(onError, failure))
  }

  /** Settles when a shutdown was called from inside `onError`. */
  get freed(): Promise<void> {
    return this.#freed.promise
  }

  /** Whether this is asked from inside `onError`, which then must not wait for itself. */
  get isCaller(): boolean {
    return this.#desk.isInside
  }

  /**
   * Whether a send from inside `onError` may go beyond the limits of the spool: the room behind the record that it is told of is not free
   * before it returns. It may take twice what it was told of, and a megabyte at least.
   */
  grant(bytes: number): boolean {
    if (!this.isCaller || bytes > this.#grantBytes) return false
    this.#grantBytes -= bytes
    return true
  }

  take(
    lane: SpoolLane,
    runs: readonly OffsetRun[],
    { records, error }: { readonly records: readonly OutgoingRecord[]; readonly error: MillraceError },
  ): void {
    const { stream, topic } = lane.name
    const failure = new PublishFailedError({ stream, topic, committed: [], unconfirmed: records, cause: error })
    const refusal = { lane, runs, failure }
    this.#inLane.add(failure)
    const bytes = bytesOf(records)
    if (this.#context.onError !== undefined) {
      this.#open.set(failure, refusal)
      this.#desk.report(failure, bytes)
      return
    }
    if (this.#mayKeep(records)) this.#desk.report(failure, bytes)
    void this.#putAside(refusal)
  }

  /** Settles when everything that was refused has been taken, or put aside. */
  async finished(): Promise<void> {
    await this.#desk.finished()
    await this.#aside
  }

  /** Lets a shutdown that is called from inside `onError` go on without it. */
  freeCaller(): void {
    if (!this.isCaller) return
    this.#desk.freeCaller()
    this.#freed.resolve()
  }

  /** Everything that nobody took, as one failure, when the spool closes. What is still queued stays in its lane. */
  async close(): Promise<PublishFailedError | undefined> {
    this.#isClosed = true
    this.#timer?.cancel()
    this.#wake?.()
    await this.#aside
    this.#desk.keepQueued()
    return this.#desk.takeKept((failure) => !this.#inLane.has(failure))
  }

  /** What is kept aside, up to the present end, oldest first. */
  async *list(): AsyncGenerator<RefusedRecord & { readonly offset: bigint }> {
    const { store, topic } = this.#context
    const { first, end } = await store.watermarks(topic)
    const reader = store.reader(topic, first)
    try {
      for (let at = first; at < end; ) {
        const read = await reader.next()
        for (const batch of read.batches) {
          for (let i = batch.indexOf(at); i < batch.count; i++) {
            const { name, reason } = readMark(batch.headers(i))
            const record = outgoing(spooledRecord(batch, i, true))
            yield { ...name, record, reason, offset: batch.offset(i) }
          }
        }
        at = read.nextOffset
      }
    } finally {
      await reader.close()
    }
  }

  /** Finds out what is kept aside takes, when the spool is opened. */
  async measure(): Promise<void> {
    if (this.count === 0) return
    for await (const { record } of this.list()) this.bytes += bufferBytesOf(sendable(record))
  }

  /** Forgets what is kept aside below an offset. */
  async forget(before: bigint, { count, bytes }: { readonly count: number; readonly bytes: number }): Promise<void> {
    await this.#context.store.trim(this.#context.topic, before)
    this.count -= count
    this.bytes -= bytes
  }

  async #tell(onError: NonNullable<BackgroundOptions["onError"]>, failure: PublishFailedError): Promise<void> {
    const refusal = this.#open.get(failure) as Refusal
    this.#open.delete(failure)
    this.telling = failure.unconfirmed.length
    this.#grantBytes = Math.max(leastGrantBytes, 2 * bytesOf(failure.unconfirmed))
    try {
      await onError(failure)
    } catch (error) {
      await this.#putAside(refusal)
      if (this.#mayKeep(failure.unconfirmed)) throw error
      return
    } finally {
      this.telling = 0
    }
    this.#inLane.delete(failure)
    refusal.lane.handOver(refusal.runs)
  }

  /** Whether the failure is kept in memory for `close`; else it is only counted. */
  #mayKeep(records: readonly OutgoingRecord[]): boolean {
    const bytes = bytesOf(records)
    if (this.#keptBytes + bytes > mostKeptBytes) return false
    this.#keptBytes += bytes
    return true
  }

  /** Never rejects: what cannot be put aside keeps its place in the lane. */
  #putAside(refusal: Refusal): Promise<void> {
    this.#aside = this.#aside.then(() => this.#write(refusal)).catch((error) => this.#context.onBroken(error))
    return this.#aside
  }

  async #write({ lane, runs, failure }: Refusal): Promise<void> {
    const { store, topic } = this.#context
    let writer = store.writer(topic)
    const scratch = new SpooledRecord()
    for (const record of failure.unconfirmed) {
      const wire = marked(scratch.fill(sendable(record), balanced), lane.name, (failure.cause as Error).message)
      if (writer.tryAppend(wire)) continue
      if (!(await this.#append(writer))) return
      writer = store.writer(topic)
      writer.tryAppend(wire)
    }
    if (writer.count > 0 && !(await this.#append(writer))) return
    this.count += failure.unconfirmed.length
    this.bytes += bytesOf(failure.unconfirmed)
    this.#inLane.delete(failure)
    lane.handOver(runs)
  }

  /** False when the spool closes before there is room. */
  async #append(writer: ReturnType<SpoolStore["writer"]>): Promise<boolean> {
    const { store, clock } = this.#context
    const batch = store.seal(writer)
    try {
      for (let retry = 0; !this.#isClosed; retry++) {
        try {
          await store.appendSealed(batch)
          return true
        } catch (error) {
          if (!(error instanceof MillraceError) || !error.retryable) throw error
          await new Promise<void>((resolve) => {
            this.#wake = resolve
            this.#timer = clock.setTimer(backoffMs(retry, 100, longestBackoffMs), resolve)
          })
        }
      }
      return false
    } finally {
      batch.release()
    }
  }
}

function bytesOf(records: readonly OutgoingRecord[]): number {
  let bytes = 0
  for (const record of records) bytes += bufferBytesOf(sendable(record))
  return bytes
}

function marked(record: WireRecord, name: TopicName, reason: string): WireRecord {
  const writer = new JournalWriter()
  writer.text(name.stream)
  writer.text(name.topic)
  writer.text(reason.slice(0, longestReason).toWellFormed())
  const headers = Headers.ofStored([...record.headers, [refusedHeader, HeaderValue.raw(writer.finish().slice())]])
  return { ...record, headers }
}

function readMark(headers: Headers): { readonly name: TopicName; readonly reason: string } {
  const reader = new JournalReader(headers.get(refusedHeader)?.bytes ?? new Uint8Array())
  return { name: { stream: reader.text(), topic: reader.text() }, reason: reader.text() }
}

/** A record of a failure, as a batch writer takes it: with the id, the time and the partition of its attempts. */
function sendable(record: OutgoingRecord): SendableRecord {
  return prepareRecord(record, noLimits, { resend: true })
}

/** It passed its checks once. */
const noLimits = {
  payloadBytes: Number.POSITIVE_INFINITY,
  headersBytes: Number.POSITIVE_INFINITY,
  headerNameBytes: Number.POSITIVE_INFINITY,
  headerValueBytes: Number.POSITIVE_INFINITY,
  keyBytes: Number.POSITIVE_INFINITY,
  nameBytes: Number.POSITIVE_INFINITY,
  partitions: Number.POSITIVE_INFINITY,
  batchBytes: Number.POSITIVE_INFINITY,
  batchRecords: Number.POSITIVE_INFINITY,
} as const

function outgoing(record: SendableRecord): OutgoingRecord {
  if (record instanceof Uint8Array) return { payload: record }
  const { payload, key, partition, id, timestampMicros } = record
  const headers = Headers.ofStored([...record.headers].filter(([name]) => name !== refusedHeader))
  return {
    payload,
    ...(key === null ? {} : { key }),
    ...(partition === -1 ? {} : { partition }),
    ...(headers.size === 0 ? {} : { headers }),
    ...(id === undefined ? {} : { id }),
    ...(timestampMicros === undefined ? {} : { timestampMicros }),
  }
}
