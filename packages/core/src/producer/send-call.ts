import type { MillraceError, TopicName, WireRecord } from "@millrace/contract"
import type { OutgoingRecord, SendableRecord } from "../record/outgoing-record.ts"
import type { Accumulator } from "./accumulator.ts"
import type { BatchOutcome } from "./batch-outcome.ts"
import { Call } from "./call.ts"
import type { Confirmation, SendResult } from "./confirmation.ts"
import { PublishFailedError } from "./publish-failed.ts"
import { type Route, routesItself } from "./routing.ts"

/** What a call is made of. */
export interface SendRequest {
  readonly records: readonly SendableRecord[]
  readonly route: Route
  /** The records come from a failed publish: see `BatchStamp.resend`. */
  readonly resend: boolean
}

/**
 * One call of a user on its way: the promise that it got, and the parts of batches that its records went into. It settles once, when
 * every part has.
 */
export class SendCall extends Call {
  readonly resend: boolean
  readonly count: number
  readonly payloadBytes: number
  readonly promise: Promise<SendResult>
  readonly highestPartition: number
  #records: readonly SendableRecord[]
  #openParts = 0
  #isTaken = false
  #isSettled = false
  /** Most calls have one part: the arrays are made when there is more to tell. */
  #confirmation: Confirmation | undefined
  #confirmed: Part<Confirmation>[] | undefined
  #duplicates = 0
  #unconfirmed: Part<OutgoingRecord[]>[] | undefined
  #failure: MillraceError | undefined
  #resolve!: (result: SendResult) => void
  #reject!: (error: Error) => void
  readonly #settled: (call: Call, failed: boolean) => void

  constructor(
    name: TopicName,
    request: SendRequest,
    owner: { readonly nowMs: number; readonly settled: (call: Call, failed: boolean) => void },
  ) {
    const { records, route, resend } = request
    super(name, route, owner.nowMs)
    this.resend = resend
    this.#records = records
    this.count = records.length
    this.#settled = owner.settled
    let bytes = 0
    let highest = route.kind === "partition" ? route.partition : -1
    for (let i = 0; i < records.length; i++) {
      const record = records[i] as SendableRecord
      if (record instanceof Uint8Array) {
        bytes += record.length
      } else {
        bytes += record.payload === null ? 0 : record.payload.length
        if (record.partition > highest) highest = record.partition
      }
    }
    this.payloadBytes = bytes
    this.highestPartition = highest
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
  }

  get records(): readonly SendableRecord[] {
    return this.#records
  }

  /** Whether any record has a key or a partition of its own. */
  get isMixed(): boolean {
    return this.#records.some(routesItself)
  }

  admit(accumulator: Accumulator): void {
    accumulator.append(this)
  }

  openPart(): void {
    this.#openParts++
  }

  confirmPart(index: number, count: number, outcome: BatchOutcome): void {
    const confirmation = outcome.confirmation(count)
    if (confirmation !== undefined) {
      if (this.#openParts === 1 && this.#isTaken && this.#confirmed === undefined) this.#confirmation = confirmation
      else {
        this.#confirmed ??= []
        this.#confirmed.push({ index, value: confirmation })
      }
    }
    this.#duplicates += outcome.duplicates(count)
    this.#closePart()
  }

  failPart(index: number, records: OutgoingRecord[], error: MillraceError): void {
    this.#unconfirmed ??= []
    this.#unconfirmed.push({ index, value: records })
    this.#failure = moreTelling(this.#failure, error)
    this.#closePart()
  }

  movePart(): void {
    this.#openParts--
  }

  /** Every record is in a batch: the caller's own array is not needed any more. */
  taken(): void {
    this.#isTaken = true
    this.#records = noRecords
    this.#settleWhenDone()
  }

  /** One record could not be taken; those around it go their way. A call of no other fails with this very error. */
  refuseOne(index: number, error: MillraceError): void {
    if (this.count === 1) {
      this.refuse(error)
      return
    }
    this.#unconfirmed ??= []
    this.#unconfirmed.push({ index, value: [toOutgoing(this.#records[index] as SendableRecord)] })
    this.#failure = moreTelling(this.#failure, error)
  }

  /** The records from `index` on could not be taken; those before it go their way. */
  refuseFrom(index: number, error: MillraceError): void {
    if (this.#openParts === 0 && this.#confirmed === undefined && this.#unconfirmed === undefined) {
      this.refuse(error)
      return
    }
    this.#unconfirmed ??= []
    this.#unconfirmed.push({ index, value: this.#records.slice(index).map(toOutgoing) })
    this.#failure = moreTelling(this.#failure, error)
    this.taken()
  }

  refuse(error: MillraceError): void {
    if (this.#isSettled) return
    this.#isSettled = true
    this.#records = noRecords
    this.#settled(this, true)
    this.#reject(error)
  }

  #closePart(): void {
    this.#openParts--
    this.#settleWhenDone()
  }

  #settleWhenDone(): void {
    if (this.#openParts > 0 || !this.#isTaken || this.#isSettled) return
    this.#isSettled = true
    this.#settled(this, this.#failure !== undefined)
    if (this.#failure === undefined) this.#resolve(this.#result())
    else this.#reject(this.#error(this.#failure))
  }

  #result(): SendResult {
    const confirmations = this.#confirmations()
    return this.#duplicates === 0 ? { confirmations } : { confirmations, duplicates: this.#duplicates }
  }

  #confirmations(): Confirmation[] {
    return this.#confirmation === undefined ? inOrder(this.#confirmed) : [this.#confirmation]
  }

  /** A topic that is not there fails the call as it would have failed before anything was sent. */
  #error(cause: MillraceError): MillraceError {
    const committed = this.#confirmations()
    if (cause.kind === "not-found" && cause.outcome === "rejected" && committed.length === 0) return cause
    const unconfirmed = inOrder(this.#unconfirmed).flat()
    return new PublishFailedError({ stream: this.name.stream, topic: this.name.topic, committed, unconfirmed, cause })
  }
}

const noRecords: readonly SendableRecord[] = []

/** Something about records of a call that stand together. */
export interface Part<T> {
  /** Of its first record within the call. */
  readonly index: number
  readonly value: T
}

/** Values in the order of the call. */
export function inOrder<T>(parts: Part<T>[] | undefined): T[] {
  if (parts === undefined) return []
  if (parts.length > 1) parts.sort((a, b) => a.index - b.index)
  return parts.map((part) => part.value)
}

/** The first failure counts, but a failure behind it that leaves the outcome open is never hidden by one that does not. */
export function moreTelling(known: MillraceError | undefined, next: MillraceError): MillraceError {
  if (known === undefined || (known.outcome === "rejected" && next.outcome === "unknown")) return next
  return known
}

/** A record as its sender can send it again. */
export function toOutgoing(record: SendableRecord): OutgoingRecord {
  if (record instanceof Uint8Array) return { payload: record }
  return unconfirmedRecord(record, record.partition)
}

/** Records as `PublishFailedError` gives them back: with all that their attempts used. */
export function unconfirmedRecords(records: readonly WireRecord[], partition: number): OutgoingRecord[] {
  return records.map((record) => unconfirmedRecord(record, partition))
}

function unconfirmedRecord(record: WireRecord, partition: number): OutgoingRecord {
  return {
    payload: record.payload,
    ...(record.key === null ? {} : { key: record.key }),
    ...(partition === -1 ? {} : { partition }),
    ...(record.headers.size === 0 ? {} : { headers: record.headers }),
    ...(record.id === undefined ? {} : { id: record.id }),
    ...(record.timestampMicros === undefined ? {} : { timestampMicros: record.timestampMicros }),
  }
}
