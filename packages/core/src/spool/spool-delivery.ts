import { MillraceError, type TopicName } from "@millrace/contract"
import type { BatchOutcome } from "../producer/batch-outcome.ts"
import type { Delivery, DeliveryHandle } from "../producer/delivery-call.ts"
import { PublishFailedError } from "../producer/publish-failed.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import type { DeliveryListener } from "./lane.ts"

/** One record that lies in the spool, and a promise for its delivery where somebody wants one in this process. */
export class SpoolDelivery implements DeliveryListener, DeliveryHandle {
  /** Settles when the record is in the spool. */
  accepted: Promise<void> = Promise.resolve()
  readonly #name: TopicName
  readonly #size: { readonly keyBytes: number; readonly payloadBytes: number }
  #wanted: PromiseWithResolvers<Delivery> | undefined
  #result: Delivery | undefined
  #failure: MillraceError | undefined

  constructor(name: TopicName, size: { readonly keyBytes: number; readonly payloadBytes: number }) {
    this.#name = name
    this.#size = size
  }

  /** @throws PublishFailedError when it was refused; what ended the producer, while the record stays in the spool */
  get delivery(): Promise<Delivery> {
    if (this.#wanted === undefined) {
      this.#wanted = Promise.withResolvers<Delivery>()
      if (this.#result !== undefined) this.#wanted.resolve(this.#result)
      if (this.#failure !== undefined) this.#wanted.reject(this.#failure)
    }
    return this.#wanted.promise
  }

  confirmed(outcome: BatchOutcome, index: number): void {
    const { partition, offset, timestampMicros } = outcome
    this.#result = {
      partition,
      ...(offset === undefined ? {} : { offset: offset + BigInt(index) }),
      ...(timestampMicros === undefined ? {} : { timestampMicros }),
      ...this.#size,
    }
    this.#wanted?.resolve(this.#result)
  }

  failed(record: OutgoingRecord | undefined, error: MillraceError): boolean {
    const { stream, topic } = this.#name
    this.#failure =
      record === undefined
        ? openEnded(error)
        : new PublishFailedError({ stream, topic, committed: [], unconfirmed: [record], cause: error })
    this.#wanted?.reject(this.#failure)
    return this.#wanted !== undefined
  }
}

/** The record stays in the spool and goes out with the next process: this one does not learn how it ends. */
function openEnded({ kind, message, context, cause }: MillraceError): MillraceError {
  return new MillraceError(kind, `${message} (the record is in the spool, and goes out when it is opened again)`, {
    retryable: false,
    outcome: "unknown",
    context,
    cause,
  })
}
