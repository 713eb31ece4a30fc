/** What the backend confirmed. */

/** A range of records that is stored, as durable as the topic says: offsets `baseOffset` to `baseOffset + count − 1`. */
export interface Confirmation {
  readonly stream: string
  readonly topic: string
  readonly partition: number
  readonly baseOffset: bigint
  readonly count: number
}

/** The outcome of a publish. */
export interface SendResult {
  /** One a request and partition, in the order of the call. Empty where the backend does not tell offsets. */
  readonly confirmations: readonly Confirmation[]
  /** How many records the backend recognised by their ids as already there and left out. Absent when there was none. */
  readonly duplicates?: number
}
