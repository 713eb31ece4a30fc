import {
  type Anchor,
  type AppendOptions,
  type AppendResult,
  type BatchWriter,
  ClosedError,
  type Identity,
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
import { type Clock, type Random, SlabPool } from "@millrace/runtime"
import type { TopicFacts } from "../catalog/topic-facts.ts"
import type { Cluster } from "../cluster/cluster.ts"
import type { CodecName } from "../compression/codecs.ts"
import { openKafkaReader } from "../fetch/reader.ts"
import type { FetchSettings } from "../fetch/settings.ts"
import { kafkaTopic } from "../names.ts"
import type { Pauses } from "../pauses.ts"
import { KafkaBatchWriter } from "../records/batch-writer.ts"
import type { KafkaSealedBatch } from "../records/sealed-batch.ts"
import { Appender } from "./appender.ts"
import { identify } from "./identities.ts"
import { locate, watermarks } from "./places.ts"

export interface PartitionLogParts {
  readonly cluster: Cluster
  readonly clock: Clock
  readonly random: Random
  readonly pauses: Pauses
  readonly facts: TopicFacts
  readonly compression: CodecName
  readonly fetch: Partial<FetchSettings>
}

/** The log of a Kafka cluster. */
export class KafkaPartitionLog implements PartitionLog {
  readonly #parts: PartitionLogParts
  readonly #pool = new SlabPool()
  readonly #appender: Appender
  readonly #readers = new Set<LogReader>()
  #closed = false

  constructor(parts: PartitionLogParts) {
    this.#parts = parts
    this.#appender = new Appender({
      cluster: parts.cluster,
      fact: (kafka) => parts.facts.known(kafka),
    })
  }

  keyHash(key: Uint8Array): number {
    return murmur2(key)
  }

  /** Batches are as large as the topic takes at most; whether a compressed one fits, only the broker can tell. */
  writer(topic: TopicDescription, partition: number, limits: WriterLimits): BatchWriter {
    const { compression = this.#parts.compression } = limits
    const limitBytes = compression === "none" ? this.#parts.facts.known(kafkaTopic(topic))?.limitBytes : undefined
    return new KafkaBatchWriter({ topic, partition }, this.#pool, {
      records: limits.records,
      bytes: Math.min(limits.bytes, limitBytes ?? limits.bytes),
      compression,
      ...(limitBytes === undefined ? {} : { recordBytes: limitBytes }),
    })
  }

  async identify(_topic: TopicName, bump?: Identity): Promise<Identity> {
    this.#checkOpen()
    return identify(this.#parts, bump)
  }

  append(batch: SealedBatch, options: AppendOptions): Promise<AppendResult> {
    return this.#appender.append(batch as KafkaSealedBatch, options)
  }

  openReader(options: ReaderOptions): LogReader {
    this.#checkOpen()
    const { cluster, clock, random, fetch } = this.#parts
    const reader = openKafkaReader({ cluster, clock, random }, { isolation: options.isolation, settings: fetch })
    this.#readers.add(reader)
    return {
      set: (positions) => reader.set(positions),
      next: (limits) => reader.next(limits),
      close: () => {
        this.#readers.delete(reader)
        return reader.close()
      },
    }
  }

  async locate(queries: readonly (TopicPartition & { readonly at: Anchor })[]): Promise<(Position | MillraceError)[]> {
    this.#checkOpen()
    return locate(this.#parts, queries)
  }

  async watermarks(partitions: readonly TopicPartition[]): Promise<(Watermarks | MillraceError)[]> {
    this.#checkOpen()
    return watermarks(this.#parts, partitions)
  }

  /** Readers end; what was not sent yet fails. Appends that were sent settle when the cluster is closed. */
  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#appender.close()
    await Promise.all([...this.#readers].map((reader) => reader.close()))
  }

  #checkOpen(): void {
    if (this.#closed) throw new ClosedError("the session is closed")
  }
}
