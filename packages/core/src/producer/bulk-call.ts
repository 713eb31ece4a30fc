import type { MillraceError, TopicName } from "@millrace/contract"
import type { OutgoingRecord, SendableRecord } from "../record/outgoing-record.ts"
import { heldRecord, payloadBytesOf } from "../record/record-size.ts"
import type { Accumulator } from "./accumulator.ts"
import type { BatchOutcome } from "./batch-outcome.ts"
import { Call } from "./call.ts"
import type { Confirmation } from "./confirmation.ts"
import { PublishFailedError } from "./publish-failed.ts"
import { partitionOf, type Route } from "./routing.ts"
import { inOrder, moreTelling, type Part, toOutgoing } from "./send-call.ts"

/** Told once, when everything of a closed call has settled. */
export type BulkSettled = (call: BulkCall, failure: PublishFailedError | undefined) => void

/**
 * The background sends of one flush, together: they were accepted long ago, so that nobody awaits them one by one, and a send costs
 * neither a promise nor an object. What fails of them becomes one `PublishFailedError`.
 */
export class BulkCall extends Call {
  /** What its sends take of the producer's buffer. */
  bufferBytes = 0
  #sends = 0
  #count = 0
  #payloadBytes = 0
  #highestPartition = -1
  #openParts = 0
  #isClosed = false
  /** Records that wait for their topic, in copies: their senders have gone on. */
  #held: SendableRecord[] | undefined
  /** Which record of the call the first one held is. */
  #heldFrom = 0
  #committed: Part<Confirmation>[] = []
  #unconfirmed: Part<OutgoingRecord[]>[] = []
  #failure: MillraceError | undefined
  readonly #settled: BulkSettled

  constructor(name: TopicName, route: Route, owner: { readonly nowMs: number; readonly settled: BulkSettled }) {
    super(name, route, owner.nowMs)
    this.#settled = owner.settled
    if (route.kind === "partition") this.#highestPartition = route.partition
  }

  get count(): number {
    return this.#count
  }

  get payloadBytes(): number {
    return this.#payloadBytes
  }

  get highestPartition(): number {
    return this.#highestPartition
  }

  /** Whether its records wait for their topic. */
  get isWaiting(): boolean {
    return this.#held !== undefined
  }

  override get sends(): number {
    return this.#sends
  }

  /** Every record of one more send is in it. @param bufferBytes What the send takes of the producer's buffer */
  holds(bufferBytes: number): void {
    this.#sends++
    this.bufferBytes += bufferBytes
  }

  /** A record of it is in a batch. */
  joined(payloadBytes: number): void {
    this.#count++
    this.#payloadBytes += payloadBytes
  }

  /** Keeps a copy of the record until the topic is ready. */
  hold(record: SendableRecord): void {
    if (this.#held === undefined) {
      this.#held = []
      this.#heldFrom = this.#count
    }
    this.#held.push(heldRecord(record))
    this.joined(payloadBytesOf(record))
    this.#highestPartition = Math.max(this.#highestPartition, partitionOf(record, this.route))
  }

  /** One record was accepted, but no batch can take it. It is copied: its sender has gone on. */
  refuseRecord(record: SendableRecord, index: number, error: MillraceError): void {
    this.#give([heldRecord(record)], index, error)
  }

  /** No more records join it. */
  close(): void {
    this.#isClosed = true
    this.#settleWhenDone()
  }

  admit(accumulator: Accumulator): void {
    const held = this.#held ?? []
    this.#held = undefined
    // The part that is open from here to the end keeps the call from settling while its records are put in.
    this.#openParts++
    for (let i = 0; i < held.length; i++) {
      const record = held[i] as SendableRecord
      const index = this.#heldFrom + i
      try {
        accumulator.checkedPartition(partitionOf(record, this.route))
        accumulator.appendOne(record, this, index)
      } catch (error) {
        this.refuseRecord(record, index, error as MillraceError)
      }
    }
    if (this.#isClosed) accumulator.release()
    this.#closePart()
  }

  refuse(error: MillraceError): void {
    const held = this.#held ?? []
    this.#held = undefined
    this.#give(held, this.#heldFrom, error)
    this.#settleWhenDone()
  }

  openPart(): void {
    this.#openParts++
  }

  confirmPart(index: number, count: number, outcome: BatchOutcome): void {
    const value = outcome.confirmation(count)
    if (value !== undefined) this.#committed.push({ index, value })
    this.#closePart()
  }

  failPart(index: number, records: OutgoingRecord[], error: MillraceError): void {
    this.#unconfirmed.push({ index, value: records })
    this.#failure = moreTelling(this.#failure, error)
    this.#closePart()
  }

  movePart(): void {
    this.#openParts--
  }

  #give(records: readonly SendableRecord[], index: number, error: MillraceError): void {
    this.#unconfirmed.push({ index, value: records.map(toOutgoing) })
    this.#failure = moreTelling(this.#failure, error)
  }

  #closePart(): void {
    this.#openParts--
    this.#settleWhenDone()
  }

  #settleWhenDone(): void {
    if (!this.#isClosed || this.#openParts > 0 || this.#held !== undefined) return
    this.#settled(this, this.#error())
  }

  #error(): PublishFailedError | undefined {
    if (this.#failure === undefined) return undefined
    const { stream, topic } = this.name
    const committed = inOrder(this.#committed)
    const unconfirmed = inOrder(this.#unconfirmed).flat()
    return new PublishFailedError({ stream, topic, committed, unconfirmed, cause: this.#failure })
  }
}
