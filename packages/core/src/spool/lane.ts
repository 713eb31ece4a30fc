import type { MillraceError, TopicDescription, TopicName } from "@millrace/contract"
import type { BatchOutcome } from "../producer/batch-outcome.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import { Acceptance, type AcceptanceContext, type AcceptedGroup } from "./acceptance.ts"
import type { ForwardCall, ForwardOwner } from "./forward-call.ts"
import type { Journal } from "./journal.ts"
import type { Dispatch } from "./journal-entry.ts"
import { LaneProgress } from "./lane-progress.ts"
import { endOf, type OffsetRun } from "./offset-runs.ts"
import type { SpoolStore } from "./spool-store.ts"

/** Room that is given back to the disk at once: less than this waits for more. */
const trimBytes = 4 << 20

/** Who waits for one record. */
export interface DeliveryListener {
  /** @param index Where in the part that the outcome speaks of the record stands. */
  confirmed(outcome: BatchOutcome, index: number): void
  /** Answers whether anybody took note. The record is absent when it stays in the spool. */
  failed(record: OutgoingRecord | undefined, error: MillraceError): boolean
}

/** What a lane works with. */
export interface SpoolLaneContext extends Omit<AcceptanceContext, "owner"> {
  readonly store: SpoolStore
  readonly journal: Journal
  /** A group is stored, or refused: its bytes are not in memory any more. */
  readonly onGroup: (bytes: number) => void
  /** Room on the disk is free again. */
  readonly onFreed: (bytes: number) => void
  /** Records were given up; the lane hears of it by `done` when somebody has them. */
  readonly onFailed: (
    lane: SpoolLane,
    runs: readonly OffsetRun[],
    failure: { readonly records: readonly OutgoingRecord[]; readonly error: MillraceError },
  ) => void
  readonly onCallSettled: (call: ForwardCall, failed: boolean) => void
  /** The store fails in a way that nothing here mends. */
  readonly onBroken: (error: unknown) => void
}

/** The records of one target topic in the spool: accepted at one end, forwarded from the other. */
export class SpoolLane implements ForwardOwner {
  readonly lane: number
  readonly name: TopicName
  readonly topic: TopicDescription
  readonly progress: LaneProgress
  readonly acceptance: Acceptance
  readonly #context: SpoolLaneContext
  readonly #listeners = new Map<bigint, DeliveryListener>()
  /** Why nobody hears of deliveries any more. */
  #silence: MillraceError | undefined
  #passed: { readonly offset: bigint; readonly resolve: () => void }[] = []
  #untrimmedBytes = 0
  #trimming = false
  /** There is more to read, or more room to read it. */
  wake: () => void = () => {}

  constructor(
    place: { readonly lane: number; readonly name: TopicName; readonly topic: TopicDescription; readonly low: bigint },
    context: SpoolLaneContext,
  ) {
    this.lane = place.lane
    this.name = place.name
    this.topic = place.topic
    this.progress = new LaneProgress(place.low)
    this.#context = context
    this.acceptance = new Acceptance(place.topic, { ...context, owner: this })
  }

  /** Settles when every record that was accepted before is done. */
  passed(): Promise<void> {
    const offset = this.progress.end
    if (this.progress.low >= offset) return Promise.resolve()
    return new Promise((resolve) => {
      this.#passed.push({ offset, resolve })
    })
  }

  onAccepted(group: AcceptedGroup, base: bigint): void {
    for (const { index, told } of group.listeners) told(base + BigInt(index))
    this.progress.accepted(group.count, group.bytes, group.sinceMicros)
    this.#context.onGroup(group.bytes)
    this.wake()
  }

  onRefused(group: AcceptedGroup, failure: { readonly error: unknown; readonly isBroken: boolean }): void {
    if (failure.isBroken) this.#context.onBroken(failure.error)
    this.#context.onGroup(group.bytes)
    this.#context.onFreed(group.bytes)
  }

  /** Somebody waits for the record with this offset. */
  listen(offset: bigint, listener: DeliveryListener): void {
    // What is stored after the end of this process was given up stays in the spool.
    if (this.#silence !== undefined) listener.failed(undefined, this.#silence)
    else this.#listeners.set(offset, listener)
  }

  onConfirmed(runs: readonly OffsetRun[], outcome: BatchOutcome): void {
    if (this.#listeners.size > 0) {
      let index = 0
      for (const { first, length } of runs) {
        for (let i = 0; i < length; i++, index++) this.#take(first + BigInt(i))?.confirmed(outcome, index)
      }
    }
    this.done(runs)
  }

  onFailed(runs: readonly OffsetRun[], records: readonly OutgoingRecord[], error: MillraceError): void {
    this.#context.onFailed(this, runs, { records, error })
  }

  onSettled(call: ForwardCall, failed: boolean): void {
    this.#context.onCallSettled(call, failed)
  }

  /**
   * Takes those out whom somebody waits for: they hear of the failure themselves, and are done.
   * @returns what is left for `onError`
   */
  tellFailure(
    runs: readonly OffsetRun[],
    failure: { readonly records: readonly OutgoingRecord[]; readonly error: MillraceError },
  ): { readonly runs: readonly OffsetRun[]; readonly records: readonly OutgoingRecord[] } {
    const { records, error } = failure
    if (this.#listeners.size === 0) return { runs, records }
    const left: OffsetRun[] = []
    const leftRecords: OutgoingRecord[] = []
    const told: OffsetRun[] = []
    let index = 0
    for (const { first, length } of runs) {
      for (let i = 0; i < length; i++, index++) {
        const offset = first + BigInt(i)
        const record = records[index] as OutgoingRecord
        const listener = this.#take(offset)
        if (listener?.failed(record, error) !== true) {
          left.push({ first: offset, length: 1 })
          leftRecords.push(record)
        } else {
          told.push({ first: offset, length: 1 })
        }
      }
    }
    if (told.length > 0) this.handOver(told)
    return { runs: left, records: leftRecords }
  }

  /**
   * Somebody else has these records now, so that they must not go out again: what the low-water mark does not tell, since records ahead
   * of them are not done, the journal is told as a batch that has settled.
   */
  handOver(runs: readonly OffsetRun[]): void {
    this.done(runs)
    if (endOf(runs) <= this.progress.low) return
    const { journal } = this.#context
    const nothing = { lineage: "", partition: 0, identity: undefined, id: 0n, timestampMicros: 0n, sentMicros: 0n }
    const dispatch: Dispatch = {
      ordinal: journal.takeOrdinal(),
      lane: this.lane,
      runs,
      ...nothing,
      resend: false,
      isMoved: false,
      skipped: 0,
    }
    journal.note({ kind: "dispatch", dispatch, settled: true })
    journal.flushSoon()
  }

  /** These records are delivered, or somebody else has them. */
  done(runs: readonly OffsetRun[]): void {
    this.progress.done(runs)
    this.moveOn()
  }

  /** Moves the low-water mark, tells the journal, and gives room back. */
  moveOn(): void {
    const { progress } = this
    const freed = progress.advance()
    if (freed === undefined) return
    this.#context.journal.note({ kind: "low", lane: this.lane, offset: progress.low })
    this.#untrimmedBytes += freed
    if (freed > 0) this.#context.onFreed(freed)
    if (progress.low === progress.end) this.#context.journal.flushSoon()
    this.#passed = this.#passed.filter(({ offset, resolve }) => {
      if (offset > progress.low) return true
      resolve()
      return false
    })
    this.wake()
  }

  /** The mark is stored: what lies below can go from the disk. */
  trim(offset: bigint): void {
    if (this.#trimming || this.#untrimmedBytes < trimBytes) return
    this.#trimming = true
    const bytes = this.#untrimmedBytes
    this.#untrimmedBytes = 0
    this.#context.store.trim(this.topic, offset).then(
      () => {
        this.#trimming = false
      },
      (error: unknown) => {
        this.#trimming = false
        this.#untrimmedBytes += bytes
        if (!isPassing(error)) this.#context.onBroken(error)
      },
    )
  }

  /** Nobody will hear of a delivery any more. */
  refuseListeners(error: MillraceError): void {
    this.#silence ??= error
    for (const listener of this.#listeners.values()) listener.failed(undefined, error)
    this.#listeners.clear()
  }

  #take(offset: bigint): DeliveryListener | undefined {
    const listener = this.#listeners.get(offset)
    if (listener !== undefined) this.#listeners.delete(offset)
    return listener
  }
}

/** For want of room on the disk now, which the next trim may find. */
function isPassing(error: unknown): boolean {
  return (error as MillraceError).retryable === true || (error as MillraceError).kind === "closed"
}
