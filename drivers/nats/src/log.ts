import {
  type Anchor,
  type AppendOptions,
  type AppendResult,
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
  UnsupportedError,
  type Watermarks,
  type WriterLimits,
} from "@millrace/contract"
import { AppendLanes } from "./append-lanes.ts"
import { NatsBatchWriter } from "./batch-writer.ts"
import type { Connection } from "./connection.ts"
import { targetOf } from "./partition-target.ts"
import { Places } from "./places.ts"
import { NatsSealedBatch } from "./sealed-batch.ts"
import type { TopicLayouts } from "./topic-layout.ts"

/** The contract's log over JetStream. */
export class NatsLog implements PartitionLog {
  readonly #connection: Connection
  readonly #lanes: AppendLanes
  readonly #places: Places
  readonly #openReader: (options: ReaderOptions) => LogReader

  constructor(
    connection: Connection,
    layouts: TopicLayouts,
    parts: { readonly openReader: (options: ReaderOptions) => LogReader },
  ) {
    this.#connection = connection
    this.#lanes = new AppendLanes(connection, layouts)
    this.#places = new Places(connection, layouts)
    this.#openReader = parts.openReader
  }

  /** As Kafka's clients: NATS has no partitions, and no hash of its own. */
  keyHash(key: Uint8Array): number {
    return murmur2(key)
  }

  writer(topic: TopicDescription, partition: number, limits: WriterLimits): NatsBatchWriter {
    return new NatsBatchWriter(targetOf(topic, partition), {
      limits,
      maxPayloadBytes: this.#connection.maxPayloadBytes,
      allIds: topic.deduplicationWindowMs > 0,
    })
  }

  /** @throws UnsupportedError: NATS recognises a resend by its ids */
  async identify(_topic: TopicName, _bump?: Identity): Promise<Identity> {
    this.#connection.check()
    throw new UnsupportedError(
      "NATS JetStream has no producer identities: a resend is recognised by the ids of its records",
    )
  }

  async append(batch: SealedBatch, { confirm = "offsets", transaction }: AppendOptions): Promise<AppendResult> {
    if (!(batch instanceof NatsSealedBatch))
      throw new InvalidError("the batch was not made by a writer of this backend")
    if (transaction !== undefined) throw new UnsupportedError("NATS JetStream has no transactions in this release")
    this.#connection.check()
    return this.#lanes.append(batch, confirm)
  }

  openReader(options: ReaderOptions): LogReader {
    return this.#openReader(options)
  }

  locate(queries: readonly (TopicPartition & { readonly at: Anchor })[]): Promise<(Position | MillraceError)[]> {
    return this.#places.locate(queries)
  }

  watermarks(partitions: readonly TopicPartition[]): Promise<(Watermarks | MillraceError)[]> {
    return this.#places.watermarks(partitions)
  }
}
