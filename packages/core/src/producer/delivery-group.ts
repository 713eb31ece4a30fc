import type { MillraceError, TopicName } from "@millrace/contract"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import type { BatchOutcome } from "./batch-outcome.ts"
import { Call, type Loss } from "./call.ts"
import type { Delivery } from "./delivery-call.ts"
import { PublishFailedError } from "./publish-failed.ts"
import type { Route } from "./routing.ts"

/** Told once when every record of the group has settled. */
export type GroupSettled = (group: DeliveryGroup, failed: boolean) => void

/** How records `from` and on, up to the next range, have ended. */
interface Range {
  readonly from: number
  readonly partition: number
  readonly offset: bigint | undefined
  readonly timestampMicros: bigint | undefined
  readonly failure: { readonly error: MillraceError; readonly records: readonly OutgoingRecord[] } | undefined
}

/**
 * Records in a row of one batch, each of which somebody waits for. They share one promise, and each delivery is made from it: that
 * costs a fraction of a promise and a call of its own for every record. Where the batch is split or moved, all settle with the last.
 */
export class DeliveryGroup extends Call {
  override readonly isExact = true
  /** What its records take of the producer's buffer. */
  bufferBytes = 0
  #count = 0
  #payloadBytes = 0
  #openParts = 0
  #confirmed = 0
  readonly #ranges: Range[] = []
  readonly #settled: GroupSettled
  #resolve!: () => void
  readonly #shared: Promise<void>

  constructor(name: TopicName, route: Route, owner: { readonly nowMs: number; readonly settled: GroupSettled }) {
    super(name, route, owner.nowMs)
    this.#settled = owner.settled
    this.#shared = new Promise((resolve) => {
      this.#resolve = resolve
    })
  }

  get count(): number {
    return this.#count
  }

  override get sends(): number {
    return this.#count
  }

  get payloadBytes(): number {
    return this.#payloadBytes
  }

  /** Its records are where they belong already. */
  get highestPartition(): number {
    return -1
  }

  /** One more record is in the batch. @returns its delivery, which rejects with PublishFailedError */
  joined(keyBytes: number, payloadBytes: number, bufferBytes: number): Promise<Delivery> {
    const index = this.#count++
    this.#payloadBytes += payloadBytes
    this.bufferBytes += bufferBytes
    return this.#shared.then(() => this.#deliveryOf(index, keyBytes, payloadBytes))
  }

  /** Each record is a call of its own: those that landed count. */
  override get loss(): Loss {
    const records = this.#count - this.#confirmed
    let payloadBytes = 0
    for (const { failure } of this.#ranges) {
      for (const { payload } of failure?.records ?? []) payloadBytes += payload?.length ?? 0
    }
    return { calls: records, records, payloadBytes }
  }

  /** Never asked, and `refuse` neither: a group is made of records that are in a batch already. */
  admit(): void {}

  refuse(): void {}

  openPart(): void {
    this.#openParts++
  }

  confirmPart(index: number, count: number, { partition, offset, timestampMicros }: BatchOutcome): void {
    this.#ranges.push({ from: index, partition, offset, timestampMicros, failure: undefined })
    this.#confirmed += count
    this.#closePart()
  }

  failPart(index: number, records: OutgoingRecord[], error: MillraceError): void {
    const failure = { error, records }
    this.#ranges.push({ from: index, partition: -1, offset: undefined, timestampMicros: undefined, failure })
    this.#closePart()
  }

  movePart(): void {
    this.#openParts--
  }

  #closePart(): void {
    this.#openParts--
    if (this.#openParts > 0) return
    if (this.#ranges.length > 1) this.#ranges.sort((one, other) => one.from - other.from)
    this.#resolve()
    this.#settled(this, this.#confirmed < this.#count)
  }

  #deliveryOf(index: number, keyBytes: number, payloadBytes: number): Delivery {
    const { from, partition, offset, timestampMicros, failure } = this.#rangeOf(index)
    if (failure !== undefined) throw this.#error(failure.error, failure.records[index - from])
    const own = offset === undefined ? undefined : offset + BigInt(index - from)
    return { partition, offset: own, timestampMicros, keyBytes, payloadBytes } as Delivery
  }

  /** The last one that does not begin behind the record. */
  #rangeOf(index: number): Range {
    const ranges = this.#ranges
    let at = ranges.length - 1
    while (at > 0 && (ranges[at] as Range).from > index) at--
    return ranges[at] as Range
  }

  #error(cause: MillraceError, record: OutgoingRecord | undefined): PublishFailedError {
    const { stream, topic } = this.name
    return new PublishFailedError({
      stream,
      topic,
      committed: [],
      unconfirmed: record === undefined ? [] : [record],
      cause,
    })
  }
}
