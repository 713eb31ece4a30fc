import type { MillraceError, TopicName } from "@millrace/contract"
import type { Accumulator } from "../producer/accumulator.ts"
import type { BatchOutcome } from "../producer/batch-outcome.ts"
import { Call } from "../producer/call.ts"
import { balanced, partitionOf } from "../producer/routing.ts"
import { toOutgoing } from "../producer/send-call.ts"
import { doubted } from "../producer/sender-entry.ts"
import type { OutgoingRecord, SendableRecord } from "../record/outgoing-record.ts"
import { payloadBytesOf } from "../record/record-size.ts"
import { type OffsetRun, sliceRuns } from "./offset-runs.ts"

/** What is told of records on their way out of the spool. */
export interface ForwardOwner {
  readonly name: TopicName
  readonly lane: number
  onConfirmed(runs: readonly OffsetRun[], outcome: BatchOutcome): void
  /** They were given up: refused for good, or, with outcome `unknown`, not to be resent. */
  onFailed(runs: readonly OffsetRun[], records: readonly OutgoingRecord[], error: MillraceError): void
  onSettled(call: ForwardCall, failed: boolean): void
}

/** What goes on its way together. */
export interface ForwardContent {
  readonly records: readonly SendableRecord[]
  /** The records' offsets, in their order. */
  readonly runs: readonly OffsetRun[]
  /** An earlier process may have stored them, and nothing can tell: whatever they fail with leaves that open. */
  readonly inDoubt?: boolean
}

/** Records of one lane on their way to the backend, each known by its offset in the spool. */
export class ForwardCall extends Call {
  override readonly isExact: boolean = true
  readonly owner: ForwardOwner
  readonly count: number
  readonly payloadBytes: number
  readonly highestPartition: number
  readonly #runs: readonly OffsetRun[]
  readonly #isInDoubt: boolean
  #records: readonly SendableRecord[]
  #openParts = 0
  #isTaken = false
  #hasFailed = false

  constructor(owner: ForwardOwner, content: ForwardContent, startedMs: number) {
    super(owner.name, balanced, startedMs)
    this.owner = owner
    this.#records = content.records
    this.#runs = content.runs
    this.#isInDoubt = content.inDoubt === true
    this.count = content.records.length
    let bytes = 0
    let highest = -1
    for (const record of content.records) {
      bytes += payloadBytesOf(record)
      highest = Math.max(highest, partitionOf(record, balanced))
    }
    this.payloadBytes = bytes
    this.highestPartition = highest
  }

  /** Where records of it lie in the spool. */
  runsOf(index: number, count: number): readonly OffsetRun[] {
    return sliceRuns(this.#runs, index, count)
  }

  admit(accumulator: Accumulator): void {
    const records = this.#records
    this.#records = []
    for (let index = 0; index < records.length; index++) {
      const record = records[index] as SendableRecord
      try {
        accumulator.checkedPartition(partitionOf(record, balanced))
        accumulator.appendOne(record, this, index)
      } catch (error) {
        this.#give(index, [toOutgoing(record)], error as MillraceError)
      }
    }
    this.taken()
  }

  /** Every record is in a batch, or given up. */
  taken(): void {
    this.#records = []
    this.#isTaken = true
    this.#settleWhenDone()
  }

  refuse(error: MillraceError): void {
    if (this.#isTaken) return
    const records = this.#records.map(toOutgoing)
    this.#give(0, records, error)
    this.taken()
  }

  openPart(): void {
    this.#openParts++
  }

  confirmPart(index: number, count: number, outcome: BatchOutcome): void {
    this.owner.onConfirmed(this.runsOf(index, count), outcome)
    this.#closePart()
  }

  failPart(index: number, records: OutgoingRecord[], error: MillraceError): void {
    this.#give(index, records, error)
    this.#closePart()
  }

  movePart(): void {
    this.#openParts--
  }

  #give(index: number, records: readonly OutgoingRecord[], error: MillraceError): void {
    this.#hasFailed = true
    const failure = this.#isInDoubt ? doubted(error) : error
    this.owner.onFailed(this.runsOf(index, records.length), records, failure)
  }

  #closePart(): void {
    this.#openParts--
    this.#settleWhenDone()
  }

  #settleWhenDone(): void {
    if (this.#isTaken && this.#openParts === 0) this.owner.onSettled(this, this.#hasFailed)
  }
}
