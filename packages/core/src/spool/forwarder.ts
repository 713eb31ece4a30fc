import type { EncodedBatch } from "@millrace/contract"
import { type Clock, Signal } from "@millrace/runtime"
import type { Publisher } from "../producer/publisher.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"
import { ForwardCall } from "./forward-call.ts"
import type { SpoolLane } from "./lane.ts"
import { appendOffsets, type OffsetRun } from "./offset-runs.ts"
import { Recovery, type RecoveryContext } from "./recovery.ts"
import { spooledRecord } from "./spool-record.ts"
import type { SpoolReader, SpoolStore } from "./spool-store.ts"

/** What a forwarder works with. */
export interface ForwarderContext extends RecoveryContext {
  readonly store: SpoolStore
  readonly publisher: Publisher
  readonly clock: Clock
  /** How many bytes may be read beyond the low-water mark, now. */
  readonly windowBytes: () => number
  /** Whether records carry the time of their acceptance. */
  readonly keepTimes: boolean
  /** The lane cannot be read. */
  readonly onBroken: (error: unknown) => void
}

/**
 * Takes the records of one lane to the backend, in order: first, after a restart, the batches that were on their way, then what follows,
 * never more than the window beyond the oldest record that is not done.
 */
export class Forwarder {
  readonly #lane: SpoolLane
  readonly #context: ForwarderContext
  readonly #changed = new Signal()
  #reader: SpoolReader | undefined
  #isStopped = false
  /** Waits for more to read, or for room to read it; or has not begun. */
  #isIdle = true
  /** What was before is on its way again. */
  #isForwarding = false
  #ended: Promise<void> | undefined
  #marks: { readonly offset: bigint; readonly reached: () => void }[] = []

  constructor(lane: SpoolLane, context: ForwarderContext) {
    this.#lane = lane
    this.#context = context
    lane.wake = () => this.#changed.wake()
  }

  start(): void {
    this.#ended = this.#run()
      .catch((error: unknown) => {
        if (!this.#isStopped) this.#context.onBroken(error)
      })
      .finally(() => this.#tellMarks(true))
  }

  /** Settles when everything that is in the lane now was handed to the publisher, or as much of it as the window lets through. */
  handedOn(): Promise<void> {
    const { end } = this.#lane.progress
    if (this.#isStopped || (this.#isForwarding && this.#isHeld)) return Promise.resolve()
    return new Promise((reached) => {
      this.#marks.push({ offset: end, reached })
    })
  }

  /** Reads no more. What is on its way is the publisher's. */
  async stop(): Promise<void> {
    this.#isStopped = true
    this.#changed.wake()
    await this.#reader?.close()
    if (!this.#isIdle) await this.#ended
  }

  async #run(): Promise<void> {
    const { store } = this.#context
    const { progress, topic } = this.#lane
    this.#isIdle = false
    const recovery = new Recovery(this.#lane, this.#context)
    let at = progress.low
    this.#reader = store.reader(topic, at)
    while (at < recovery.end && !this.#isStopped) at = recovery.take(await this.#accepted(this.#reader), at)
    if (this.#isStopped) return
    await recovery.submit()
    this.#isForwarding = true
    this.#lane.moveOn()
    while (!this.#isStopped) {
      this.#tellMarks(this.#isHeld)
      if (this.#isHeld) {
        this.#isIdle = true
        await this.#changed.next()
        this.#isIdle = false
        continue
      }
      const read = await this.#accepted(this.#reader)
      if (this.#isStopped) return
      this.#forward(read.batches, at, read.nextOffset)
      at = read.nextOffset
    }
  }

  /** Reads on. What is stored, but has not had its answer yet, must not be delivered before it is accepted. */
  async #accepted(reader: SpoolReader): ReturnType<SpoolReader["next"]> {
    const read = await reader.next()
    while (read.nextOffset > this.#lane.progress.end && !this.#isStopped) await this.#changed.next()
    return read
  }

  /** There is nothing more to read, or no room to read it. */
  get #isHeld(): boolean {
    const { readEnd, end, readBytes } = this.#lane.progress
    return readEnd >= end || readBytes >= this.#context.windowBytes()
  }

  /** @param all Nothing more goes on for now. */
  #tellMarks(all: boolean): void {
    if (this.#marks.length === 0) return
    const { readEnd } = this.#lane.progress
    this.#marks = this.#marks.filter(({ offset, reached }) => {
      if (!all && offset > readEnd) return true
      reached()
      return false
    })
  }

  #forward(batches: readonly EncodedBatch[], from: bigint, to: bigint): void {
    const { clock, publisher, keepTimes } = this.#context
    const records: SendableRecord[] = []
    const runs: OffsetRun[] & { first: bigint; length: number }[] = []
    let bytes = 0
    for (const batch of batches) {
      const start = batch.indexOf(from)
      for (let i = start; i < batch.count; i++) records.push(spooledRecord(batch, i, keepTimes))
      if (start < batch.count) appendOffsets(runs, batch.offset(start), batch.count - start)
      bytes += batch.bytes
    }
    this.#lane.progress.read(to, bytes, 0)
    if (records.length === 0) return
    const call = new ForwardCall(this.#lane, { records, runs }, clock.monotonicMs())
    publisher.take(call)
    publisher.dispatch(call)
  }
}
