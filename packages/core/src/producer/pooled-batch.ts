import { InvalidError } from "@millrace/contract"
import type { OutgoingRecord, SendableRecord } from "../record/outgoing-record.ts"
import type { SendResult } from "./confirmation.ts"
import type { PooledSlabs } from "./pooled-slabs.ts"
import { PublishFailedError } from "./publish-failed.ts"
import { millraceError } from "./sender.ts"

/** What a finished builder leaves behind: records that passed their checks, in slabs that are theirs until the send has ended. */
export class PooledContent {
  readonly records: readonly SendableRecord[]
  readonly payloadBytes: number
  readonly slabs: PooledSlabs

  constructor(records: readonly SendableRecord[], payloadBytes: number, slabs: PooledSlabs) {
    this.records = records
    this.payloadBytes = payloadBytes
    this.slabs = slabs
  }
}

/** Given by the class itself: nobody else ends a batch. */
let takeOver: (batch: PooledBatch) => PooledContent

/**
 * Records whose payloads share pooled buffers, made by `topic.batchBuilder()` (seed 002, "Publishing with rented batches"; table 3.3 of
 * the options). `producer.send(batch)` takes it over, and the buffers go back to the pool however the send ends. From then on every
 * use of the batch throws InvalidError: nobody reads memory that belongs to another batch by now.
 */
export class PooledBatch implements Disposable {
  #content: PooledContent | undefined
  #end = "disposed"

  constructor(content: PooledContent) {
    this.#content = content
  }

  static {
    takeOver = (batch) => {
      const content = batch.#open("send")
      batch.#content = undefined
      batch.#end = "sent"
      return content
    }
  }

  /** Its records. @throws InvalidError once it was sent or disposed, as all that follows */
  get count(): number {
    return this.#open("count").records.length
  }

  /** Of all payloads, in bytes. */
  get payloadBytes(): number {
    return this.#open("payloadBytes").payloadBytes
  }

  /**
   * The payload of record `index`, from 0, as a view of the pooled buffer: valid until the batch is sent or disposed, so copy what is
   * kept longer. `null` for a tombstone.
   * @throws InvalidError for an index that the batch does not have
   */
  payload(index: number): Uint8Array | null {
    const { records } = this.#open("payload()")
    const record = records[index]
    if (record === undefined) {
      throw new InvalidError(`the pooled batch has no record ${index}: it has ${records.length}, counted from 0`)
    }
    return record instanceof Uint8Array ? record : record.payload
  }

  /** Gives the buffers back without sending. Does nothing once the batch was sent or disposed. */
  [Symbol.dispose](): void {
    this.#content?.slabs.release()
    this.#content = undefined
  }

  #open(what: string): PooledContent {
    if (this.#content !== undefined) return this.#content
    throw new InvalidError(
      `${what}: this pooled batch was ${this.#end} and its buffers are given back; build a new one with batchBuilder()`,
    )
  }
}

/**
 * Takes the batch over, sends its records, and gives its buffers back in every outcome. What a failure gives back as unconfirmed is
 * copied before.
 * @throws InvalidError when the batch was sent or disposed before; else what `submit` throws
 */
export async function sendPooled(
  batch: PooledBatch,
  submit: (content: PooledContent) => Promise<SendResult>,
): Promise<SendResult> {
  const content = takeOver(batch)
  try {
    return await submit(content)
  } catch (error) {
    throw error instanceof PublishFailedError ? withOwnBytes(error, content.slabs) : error
  } finally {
    content.slabs.release()
  }
}

/** The failure with copies of what lies in the slabs. */
function withOwnBytes(error: PublishFailedError, slabs: PooledSlabs): PublishFailedError {
  const { stream, topic, committed, unconfirmed, outcome } = error
  if (!unconfirmed.some((record) => isHeld(record.payload, slabs) || isHeld(record.key, slabs))) return error
  return new PublishFailedError({
    stream,
    topic,
    committed,
    unconfirmed: unconfirmed.map((record) => withOwnParts(record, slabs)),
    cause: millraceError(error.cause),
    outcome,
  })
}

function withOwnParts(record: OutgoingRecord, slabs: PooledSlabs): OutgoingRecord {
  const { payload, key } = record
  return {
    ...record,
    payload: isHeld(payload, slabs) ? payload.slice() : payload,
    ...(isHeld(key, slabs) ? { key: key.slice() } : {}),
  }
}

function isHeld(bytes: unknown, slabs: PooledSlabs): bytes is Uint8Array {
  return bytes instanceof Uint8Array && slabs.holds(bytes)
}
