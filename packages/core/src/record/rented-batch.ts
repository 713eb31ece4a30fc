import { type DecodeError, type Headers, InvalidError, type MessageId } from "@millrace/contract"
import { DecodedMessage } from "../typed/decoded-message.ts"
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
export class RentedBatch<M extends Message = Message> implements Iterable<M>, Disposable {
  /** At least 1. */
  readonly count: number
  readonly stream: string
  readonly topic: string
  readonly partition: number
  readonly firstOffset: bigint
  readonly lastOffset: bigint
  readonly #lease: Lease

  /** Made by the consumer. */
  constructor(batch: MessageBatch<M>) {
    this.count = batch.count
    this.stream = batch.stream
    this.topic = batch.topic
    this.partition = batch.partition
    this.firstOffset = batch.firstOffset
    this.lastOffset = batch.lastOffset
    this.#lease = new Lease(batch)
  }

  /** @param index From 0 to `count` − 1. @throws InvalidError beyond, and once the batch was given back */
  message(index: number): M {
    const message = this.#lease.batch.message(index)
    const rented =
      message instanceof DecodedMessage
        ? new RentedTypedMessage(this.#lease, index)
        : new RentedMessage(this.#lease, index)
    return rented as Message as M
  }

  *[Symbol.iterator](): Iterator<M> {
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

  protected get inside(): Message {
    return this.#lease.batch.message(this.#index)
  }

  get stream(): string {
    return this.inside.stream
  }
  get topic(): string {
    return this.inside.topic
  }
  get position(): Position {
    return this.inside.position
  }
  get payload(): Uint8Array | null {
    return this.inside.payload
  }
  get key(): Uint8Array | null {
    return this.inside.key
  }
  get headers(): Headers {
    return this.inside.headers
  }
  get headersError(): DecodeError | undefined {
    return this.inside.headersError
  }
  get id(): MessageId | undefined {
    return this.inside.id
  }
  get timestampMicros(): bigint {
    return this.inside.timestampMicros
  }
  get originTimestampMicros(): bigint | undefined {
    return this.inside.originTimestampMicros
  }
  get checksum(): bigint | undefined {
    return this.inside.checksum
  }
  get partitionHead(): bigint {
    return this.inside.partitionHead
  }
  checkpoint(): Checkpoint {
    return this.inside.checkpoint()
  }
  copy(): Message {
    return this.inside.copy()
  }
  toJSON(): MessageJson {
    return this.inside.toJSON()
  }
}

/** The same of a typed consumer. A value that was taken out of it is the caller's, and stays. */
class RentedTypedMessage extends RentedMessage {
  get kind(): DecodedMessage["kind"] {
    return (this.inside as DecodedMessage).kind
  }
  get value(): unknown {
    return (this.inside as DecodedMessage).value
  }
  get error(): DecodeError | undefined {
    return (this.inside as DecodedMessage).error
  }
}
