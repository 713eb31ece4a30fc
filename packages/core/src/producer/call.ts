import type { MillraceError, TopicName } from "@millrace/contract"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import type { Accumulator } from "./accumulator.ts"
import type { BatchOutcome } from "./batch-outcome.ts"
import type { Route } from "./routing.ts"

/** What a failure took, as statistics count it. */
export interface Loss {
  readonly calls: number
  readonly records: number
  readonly payloadBytes: number
}

/**
 * What stands between records on their way and whoever sent them. Its records go into parts of batches; it hears of each part how it
 * ended, and settles when every part has. What it does then is what distinguishes a direct send from a background one.
 */
export abstract class Call {
  readonly name: TopicName
  readonly route: Route
  /** When its first record was handed in, on the monotonic clock. */
  readonly startedMs: number
  /** Neighbours in the list of unsettled calls, and the place in their order. */
  older: Call | undefined = undefined
  newer: Call | undefined = undefined
  ordinal = 0

  constructor(name: TopicName, route: Route, startedMs: number) {
    this.name = name
    this.route = route
    this.startedMs = startedMs
  }

  /** Whether a part of it is records that stand together in the call too, so that their indexes are known. */
  readonly isExact: boolean = false

  /** Its records. */
  abstract get count(): number
  /** Of its payloads together, in bytes. */
  abstract get payloadBytes(): number
  /** The highest partition that the call names, −1 without one. */
  abstract get highestPartition(): number

  /** How many calls of a user it stands for. */
  get sends(): number {
    return 1
  }

  /** What is lost when it fails: it stands for one call of a user, which fails as a whole, unless it says otherwise. */
  get loss(): Loss {
    return { calls: 1, records: this.count, payloadBytes: this.payloadBytes }
  }

  /** Its turn has come: it puts its records into the accumulator of its topic, or refuses itself. */
  abstract admit(accumulator: Accumulator): void
  /** Nothing of the call was taken; it fails with this very error. */
  abstract refuse(error: MillraceError): void

  /** Records of the call are in one more batch. */
  abstract openPart(): void
  /** A part was stored. @param index Which record of the call its first one is. */
  abstract confirmPart(index: number, count: number, outcome: BatchOutcome): void
  /** A part was given up. Its records come with the ids and the partition of their attempts. */
  abstract failPart(index: number, records: OutgoingRecord[], error: MillraceError): void
  /** The records of a part went into other batches, whose parts are open by now. */
  abstract movePart(): void
}
