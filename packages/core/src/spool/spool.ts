import type { OutgoingRecord } from "../record/outgoing-record.ts"

/** What waits in a spool. */
export interface SpoolDepth {
  /** Records that were accepted and are not delivered, nor handed to anybody. */
  readonly records: number
  /** What they take of `maxSpoolBytes`. */
  readonly bytes: number
  /** When the oldest of them was accepted, in µs since 1970; absent when there is none. */
  readonly oldestMicros?: bigint
  /** Records that the backend refuses and nobody took: they stay until `resendRefused`. Not part of `records`. */
  readonly refused: number
  /** Records, since the producer was opened, that went out again although they may have been stored and cannot be recognised. */
  readonly possiblyDoubled: number
}

/** A record that the backend refused, as it is kept. */
export interface RefusedRecord {
  readonly stream: string
  readonly topic: string
  readonly record: OutgoingRecord
  /** The message of the failure. */
  readonly reason: string
}

/** The spool of a background producer. */
export interface Spool {
  /** As it was given. */
  readonly directory: string
  /** As far as it is known: all zero while the spool is being opened. */
  depth(): SpoolDepth
  /** The records that were refused and that nobody took, oldest first. @throws what keeps the spool from being read */
  refused(): AsyncIterable<RefusedRecord>
  /**
   * Accepts the refused records anew, at the end of what waits, and forgets the refusal. Answers how many.
   * @throws as a send does when there is no room; what was accepted before then goes out, and all stay refused
   */
  resendRefused(): Promise<number>
}
