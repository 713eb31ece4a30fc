import { type DecodeError, type Headers, InvalidError, type MessageId } from "@millrace/contract"
import type { Checkpoint } from "./checkpoint.ts"
import type { Message, MessageJson, Position } from "./message.ts"
import type { MessageBatch } from "./message-batch.ts"

/**
 * A batch that is looked at for a while and then given back (seed 002, "Consuming with rented buffers"): `using batch = await
 * consumer.receiveRented()`. From then on nothing of it can be looked at any more, and nobody who kept one of its messages keeps the
 * bytes alive: what is to stay is taken by `message.copy()`. A batch that is never given back costs what any batch costs: it goes when
 * nobody holds it.
 *
 * Giving it back says nothing about its messages being handled: asking for the next batch does, or `commit`.
 */
export class RentedBatch implements Iterable<Message>, Disposable {
  /** At least 1. */
  readonly count: number
  readonly stream: string
  readonly topic: string
  readonly partition: number
  readonly firstOffset: bigint
  readonly lastOffset: bigint
  readonly #lease: Lease

  /** Made by the consumer. */
  constructor(batch: MessageBatch) {
    this.count = batch.count
    this.stream = batch.stream
    this.topic = batch.topic
    this.partition = batch.partition
    this.firstOffset = batch.firstOffset
    this.lastOffset = batch.lastOffset
    this.#lease = new Lease(batch)
  }

  /** @param index From 0 to `count` − 1. @throws InvalidError beyond, and once the batch was given back */
  message(index: number): Message {
    this.#lease.batch.message(index)
    return new RentedMessage(this.#lease, index)
  }

  *[Symbol.iterator](): Iterator<Message> {
    for (let index = 0; index < this.count; index++) yield this.message(index)
  }

  /** Gives the batch back. The second call does nothing. */
  [Symbol.dispose](): void {
    this.#lease.end()
  }
}

class Lease {
  #batch: MessageBatch | undefined

  constructor(batch: MessageBatch) {
    this.#batch = batch
  }

  get batch(): MessageBatch {
    if (this.#batch !== undefined) return this.#batch
    throw new InvalidError(
      "the rented batch was given back: look at its messages before that, and keep them by message.copy()",
    )
  }

  end(): void {
    this.#batch = undefined
  }
}

/** A message of a rented batch: every look asks the lease first. */
class RentedMessage implements Message {
  readonly #lease: Lease
  readonly #index: number

  constructor(lease: Lease, index: number) {
    this.#lease = lease
    this.#index = index
  }

  get #message(): Message {
    return this.#lease.batch.message(this.#index)
  }

  get stream(): string {
    return this.#message.stream
  }
  get topic(): string {
    return this.#message.topic
  }
  get position(): Position {
    return this.#message.position
  }
  get payload(): Uint8Array | null {
    return this.#message.payload
  }
  get key(): Uint8Array | null {
    return this.#message.key
  }
  get headers(): Headers {
    return this.#message.headers
  }
  get headersError(): DecodeError | undefined {
    return this.#message.headersError
  }
  get id(): MessageId | undefined {
    return this.#message.id
  }
  get timestampMicros(): bigint {
    return this.#message.timestampMicros
  }
  get originTimestampMicros(): bigint | undefined {
    return this.#message.originTimestampMicros
  }
  get checksum(): bigint | undefined {
    return this.#message.checksum
  }
  get partitionHead(): bigint {
    return this.#message.partitionHead
  }
  checkpoint(): Checkpoint {
    return this.#message.checkpoint()
  }
  copy(): Message {
    return this.#message.copy()
  }
  toJSON(): MessageJson {
    return this.#message.toJSON()
  }
}
