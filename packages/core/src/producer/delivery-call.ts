import type { MillraceError, TopicName } from "@millrace/contract"
import type { SendSpan } from "../observe/telemetry.ts"
import type { OutgoingRecord, SendableRecord } from "../record/outgoing-record.ts"
import { heldRecord, keyBytesOf, payloadBytesOf } from "../record/record-size.ts"
import type { Accumulator } from "./accumulator.ts"
import type { BatchOutcome } from "./batch-outcome.ts"
import { Call } from "./call.ts"
import { PublishFailedError } from "./publish-failed.ts"
import { partitionOf, type Route } from "./routing.ts"
import { toOutgoing } from "./send-call.ts"

/** Where one record was stored (seed 004, `RecordMetadata`). */
export interface Delivery {
  readonly partition: number
  /** Absent where the backend does not tell, or not for background sends: see the manifest's `append.inFlight`. */
  readonly offset?: bigint
  /** The append time, in µs since 1970, where the backend tells it. */
  readonly timestampMicros?: bigint
  /** 0 without a key. */
  readonly keyBytes: number
  /** 0 for a tombstone. */
  readonly payloadBytes: number
}

/** A record that was accepted, and the way to hear of its delivery. Forgetting it does not take the record back. */
export interface DeliveryHandle {
  /**
   * Settles when the record is confirmed or given up; rejects with PublishFailedError. A failure that comes before anybody has looked
   * here goes to the producer's `onError` as well, like that of a plain background send.
   */
  readonly delivery: Promise<Delivery>
}

/** Told once when the record has settled. `observed`: somebody waits for it. */
export type DeliverySettled = (call: DeliveryCall, failure: PublishFailedError | undefined, observed: boolean) => void

/** One record, and a promise for it where somebody wants one. */
export class DeliveryCall extends Call implements DeliveryHandle {
  readonly count = 1
  readonly payloadBytes: number
  readonly keyBytes: number
  readonly highestPartition: number
  /** What it takes of the producer's buffer. */
  bufferBytes = 0
  /** Of a send that somebody waits for. */
  span: SendSpan | undefined = undefined
  #held: SendableRecord | undefined
  #delivery: Promise<Delivery> | undefined
  #resolve: ((delivery: Delivery) => void) | undefined
  #reject: ((error: PublishFailedError) => void) | undefined
  #result: Delivery | undefined
  #failure: PublishFailedError | undefined
  readonly #settled: DeliverySettled

  constructor(
    name: TopicName,
    record: SendableRecord,
    owner: { readonly route: Route; readonly nowMs: number; readonly settled: DeliverySettled },
  ) {
    super(name, owner.route, owner.nowMs)
    this.#settled = owner.settled
    this.payloadBytes = payloadBytesOf(record)
    this.keyBytes = keyBytesOf(record, owner.route)
    this.highestPartition = partitionOf(record, owner.route)
  }

  /** Where the record is, once it is confirmed. */
  get partition(): number | undefined {
    return this.#result?.partition
  }

  get delivery(): Promise<Delivery> {
    this.#delivery ??= new Promise((resolve, reject) => {
      if (this.#result !== undefined) resolve(this.#result)
      else if (this.#failure !== undefined) reject(this.#failure)
      this.#resolve = resolve
      this.#reject = reject
    })
    return this.#delivery
  }

  /** Keeps the record until its topic is ready. */
  hold(record: SendableRecord): void {
    this.#held = record
  }

  /** Its sender goes on: a record that still waits for its topic has bytes of its own from here on. */
  keepOwnBytes(): void {
    if (this.#held !== undefined) this.#held = heldRecord(this.#held)
  }

  admit(accumulator: Accumulator): void {
    const record = this.#held as SendableRecord
    this.#held = undefined
    try {
      accumulator.checkedPartition(this.highestPartition)
      accumulator.appendOne(record, this, 0)
    } catch (error) {
      this.#fail(this.#publishFailed([toOutgoing(record)], error as MillraceError))
      return
    }
    accumulator.release()
  }

  refuse(error: MillraceError): void {
    const records = this.#held === undefined ? [] : [toOutgoing(this.#held)]
    this.#held = undefined
    this.#fail(this.#publishFailed(records, error))
  }

  openPart(): void {}

  confirmPart(_index: number, _count: number, outcome: BatchOutcome): void {
    const { offset, timestampMicros, partition } = outcome
    const delivery = { partition, offset, timestampMicros, keyBytes: this.keyBytes, payloadBytes: this.payloadBytes }
    this.#result = delivery as Delivery
    this.#settled(this, undefined, this.#delivery !== undefined)
    this.#resolve?.(this.#result)
  }

  failPart(_index: number, records: OutgoingRecord[], error: MillraceError): void {
    this.#fail(this.#publishFailed(records, error))
  }

  movePart(): void {}

  #fail(error: PublishFailedError): void {
    this.#failure = error
    this.#settled(this, error, this.#delivery !== undefined)
    this.#reject?.(error)
  }

  #publishFailed(unconfirmed: readonly OutgoingRecord[], cause: MillraceError): PublishFailedError {
    const { stream, topic } = this.name
    return new PublishFailedError({ stream, topic, committed: [], unconfirmed, cause })
  }
}
