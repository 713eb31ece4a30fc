import type { AppendResult, TopicName } from "@millrace/contract"
import type { Confirmation } from "./confirmation.ts"

/**
 * What the backend said of a stored batch, as its parts are told one after the other: `start` is moved along, so that a part costs no
 * object. To be read during the call only.
 */
export class BatchOutcome {
  readonly partition: number
  /** Where in the batch the part begins. */
  start = 0
  readonly #name: TopicName
  readonly #result: AppendResult
  readonly #count: number
  readonly #isOwnEcho: boolean

  /** @param resent Whether the batch went out more than once: then a backend that knows all of it has met our own first attempt. */
  constructor(
    name: TopicName,
    result: AppendResult,
    batch: { readonly partition: number; readonly count: number; readonly resent: boolean },
  ) {
    this.partition = batch.partition
    this.#name = name
    this.#result = result
    this.#count = batch.count
    this.#isOwnEcho = batch.resent && result.duplicates === batch.count
  }

  /** The append time, where the backend tells. */
  get timestampMicros(): bigint | undefined {
    return this.#result.timestampMicros
  }

  /** Of the part's first record. Absent where the backend does not tell, and where some records of the batch were duplicates. */
  get offset(): bigint | undefined {
    const { base, contiguous } = this.#result
    return base === undefined || !contiguous ? undefined : base + BigInt(this.start)
  }

  confirmation(count: number): Confirmation | undefined {
    const baseOffset = this.offset
    if (baseOffset === undefined) return undefined
    return { stream: this.#name.stream, topic: this.#name.topic, partition: this.partition, baseOffset, count }
  }

  /** How many of the part's records had been there before; 0 where only the batch as a whole is known. */
  duplicates(count: number): number {
    if (this.#isOwnEcho) return 0
    if (this.#result.duplicates === this.#count) return count
    return count === this.#count ? this.#result.duplicates : 0
  }
}
