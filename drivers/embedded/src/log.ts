import {
  type Anchor,
  type AppendOptions,
  type AppendResult,
  ClosedError,
  errorFromWire,
  type Identity,
  InvalidError,
  type LogReader,
  type MillraceError,
  murmur2,
  type PartitionLog,
  type Position,
  type ReaderOptions,
  type SealedBatch,
  type TopicDescription,
  type TopicName,
  type TopicPartition,
  type Watermarks,
  type WriterLimits,
} from "@millrace/contract"
import { EmbeddedBatchWriter } from "./batch/batch-writer.ts"
import { EmbeddedBatch } from "./batch/sealed-batch.ts"
import { newSlabPools } from "./batch/slab.ts"
import type { Channel } from "./channel.ts"
import type { Append } from "./engine/append.ts"
import type { Outcome } from "./engine/locate.ts"
import type { Identify } from "./engine/producers.ts"
import type { Stage } from "./engine/staged-append.ts"
import { EmbeddedReader } from "./reader.ts"
import { stagedWork } from "./transactions.ts"

/** The contract's log over a channel to the engine. */
export class EmbeddedLog implements PartitionLog {
  readonly #channel: Channel
  readonly #pools = newSlabPools()
  readonly #readers = new Set<EmbeddedReader>()
  #lastReader = 0
  #closed = false

  constructor(channel: Channel) {
    this.#channel = channel
  }

  keyHash(key: Uint8Array): number {
    return murmur2(key)
  }

  writer(
    { stream, topic, lineage, durability }: TopicDescription,
    partition: number,
    limits: WriterLimits,
  ): EmbeddedBatchWriter {
    const target = { topic: { stream, topic }, lineage, partition, durability }
    return new EmbeddedBatchWriter(target, this.#pools, limits)
  }

  identify({ stream, topic }: TopicName, bump?: Identity): Promise<Identity> {
    const args: Identify = {
      topic: { stream, topic },
      ...(bump === undefined ? {} : { bump: { producerId: bump.producerId, epoch: bump.epoch } }),
    }
    return this.#channel.call("log.identify", args)
  }

  async append(batch: SealedBatch, { identity, transaction }: AppendOptions): Promise<AppendResult> {
    if (!(batch instanceof EmbeddedBatch)) throw new InvalidError("the batch was not made by a writer of this backend")
    const { target, content } = batch
    const args: Append = {
      ...target,
      slab: content.slab.buffer,
      bytes: content.bytes,
      checksum: content.checksum,
      resend: content.stamp.resend,
      ...(identity === undefined
        ? {}
        : {
            identity: {
              producerId: identity.producerId,
              epoch: identity.epoch,
              sequence: identity.sequence,
            },
          }),
    }
    const work = transaction === undefined ? undefined : stagedWork(transaction)
    if (work !== undefined && target.durability === "synced") work.synced = true
    batch.pin()
    try {
      if (work === undefined) return await this.#channel.call<AppendResult>("log.append", args)
      const staged: Stage = { ...args, transaction: work.ref }
      return await this.#channel.call<AppendResult>("log.stage", staged)
    } finally {
      batch.unpin()
    }
  }

  openReader({ filters = [] }: ReaderOptions): LogReader {
    if (this.#closed) throw new ClosedError("the session is closed")
    const reader = new EmbeddedReader(this.#channel, ++this.#lastReader, {
      closed: (ended) => this.#readers.delete(ended),
      filters,
    })
    this.#readers.add(reader)
    return reader
  }

  async locate(queries: readonly (TopicPartition & { readonly at: Anchor })[]): Promise<(Position | MillraceError)[]> {
    const args = queries.map(({ stream, topic, partition, at }) => ({ stream, topic, partition, at }))
    return (await this.#channel.call<Outcome<Position>[]>("log.locate", args)).map(valueOrError)
  }

  async watermarks(partitions: readonly TopicPartition[]): Promise<(Watermarks | MillraceError)[]> {
    const args = partitions.map(({ stream, topic, partition }) => ({ stream, topic, partition }))
    return (await this.#channel.call<Outcome<Watermarks>[]>("log.watermarks", args)).map(valueOrError)
  }

  /** Ends all readers. */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#readers].map((reader) => reader.close()))
  }
}

function valueOrError<T>(outcome: Outcome<T>): T | MillraceError {
  return "error" in outcome ? errorFromWire(outcome.error) : outcome.value
}
