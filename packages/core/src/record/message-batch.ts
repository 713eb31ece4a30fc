import { InvalidError } from "@millrace/contract"
import { messageOf } from "../typed/decoded-message.ts"
import type { BatchMessage, Message, MessageSource } from "./message.ts"

/**
 * Messages of one partition that were stored together, in order (seed 001, "Consumer": `batches`). They are made as they are looked at,
 * and again each time. Like any message they are views of the bytes that came from the backend, which live as long as one of them.
 */
export class MessageBatch<M extends Message = Message> implements Iterable<M> {
  /** At least 1. */
  readonly count: number
  readonly #source: MessageSource
  readonly #from: number
  /** Where records are encrypted, or typed: the messages, decrypted and decoded. */
  readonly #opened: readonly BatchMessage[] | undefined

  /**
   * Records `from` to `to` − 1. Made by the consumer.
   * @throws what the first fails with, which cannot be decrypted or decoded. Where a later one cannot, the batch ends before it.
   */
  constructor(source: MessageSource, from: number, to: number) {
    this.#source = source
    this.#from = from
    const asItIs = source.opener === undefined && source.decoder === undefined
    this.#opened = asItIs ? undefined : openedOf(source, from, to)
    this.count = this.#opened?.length ?? to - from
  }

  get stream(): string {
    return this.#source.stream
  }
  get topic(): string {
    return this.#source.topic
  }
  get partition(): number {
    return this.#source.partition
  }
  get firstOffset(): bigint {
    return this.#source.batch.offset(this.#from)
  }
  get lastOffset(): bigint {
    return this.#source.batch.offset(this.#from + this.count - 1)
  }

  /** @param index From 0 to `count` − 1. @throws InvalidError beyond */
  message(index: number): M {
    if (!Number.isInteger(index) || index < 0 || index >= this.count) {
      throw new InvalidError(`message ${index} is not in this batch: it has ${this.count}, counted from 0`)
    }
    // Whoever says which messages it has also gives the decoder that makes them.
    return (this.#opened?.[index] ?? messageOf(this.#source, this.#from + index)) as Message as M
  }

  *[Symbol.iterator](): Iterator<M> {
    for (let index = 0; index < this.count; index++) yield this.message(index)
  }
}

function openedOf(source: MessageSource, from: number, to: number): readonly BatchMessage[] {
  const opened: BatchMessage[] = []
  try {
    for (let index = from; index < to; index++) opened.push(messageOf(source, index).open())
  } catch (error) {
    // Whatever it is comes again when the record is the first of a batch.
    if (opened.length === 0) throw error
  }
  return opened
}
