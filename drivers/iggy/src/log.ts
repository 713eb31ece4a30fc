import {
  type Anchor,
  type AppendOptions,
  type AppendResult,
  ClosedError,
  type Identity,
  InvalidError,
  type LogReader,
  type MillraceError,
  NotFoundError,
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
import { type Clock, SlabPool } from "@millrace/runtime"
import { IggyBatchWriter } from "./batch/batch-writer.ts"
import { keyHash } from "./batch/checksum.ts"
import { type BatchTarget, IggySealedBatch } from "./batch/sealed-batch.ts"
import type { Incarnations } from "./incarnations.ts"
import type { Places } from "./places.ts"
import { IggyReader } from "./reader.ts"
import { code, refusedWith } from "./requests.ts"
import type { SessionRequests } from "./session-requests.ts"
import { lookUpTopic, missingPartition, nameOf, partitionOf } from "./topic-lookup.ts"

interface LogTools {
  readonly requests: SessionRequests
  readonly places: Places
  readonly incarnations: Incarnations
  readonly clock: Clock
}

/** The partitions of a session: batches go in, readers and positions come out. */
export class IggyLog implements PartitionLog {
  readonly #tools: LogTools
  readonly #pool = new SlabPool()
  readonly #readers = new Set<IggyReader>()
  #closed = false

  constructor(tools: LogTools) {
    this.#tools = tools
  }

  /** XXH32 with seed 0, as the server has it for keys (iggy-wire.md: Batches). */
  keyHash(key: Uint8Array): number {
    return keyHash(key)
  }

  writer({ stream, topic, lineage }: TopicDescription, partition: number, limits: WriterLimits): IggyBatchWriter {
    return new IggyBatchWriter({ topic: { stream, topic }, lineage, partition }, this.#pool, limits)
  }

  /** @throws UnsupportedError: the server knows no producers */
  async identify(_topic: TopicName, _bump?: Identity): Promise<Identity> {
    this.#tools.requests.assertOpen()
    throw noIdentities()
  }

  async append(batch: SealedBatch, { identity, transaction }: AppendOptions): Promise<AppendResult> {
    if (!(batch instanceof IggySealedBatch))
      throw new InvalidError("the batch was not made by a writer of this backend")
    if (identity !== undefined) throw noIdentities()
    if (transaction !== undefined) throw new UnsupportedError("Apache Iggy has no transactions")
    const { requests, incarnations } = this.#tools
    requests.assertOpen()
    batch.pin()
    try {
      const confirmations = await incarnations.guard(batch.target.topic, batch.target.lineage, () =>
        requests.send(batch),
      )
      const base = confirmations[0]?.baseOffset
      return { ...(base === undefined ? {} : { base }), contiguous: true, duplicates: 0 }
    } catch (error) {
      throw refusedWith(error, code.resourceNotFound) ? await this.#missing(batch.target) : error
    } finally {
      batch.unpin()
    }
  }

  openReader(_options: ReaderOptions): LogReader {
    if (this.#closed) throw new ClosedError("the session is closed")
    const reader = new IggyReader(this.#tools, (ended) => this.#readers.delete(ended))
    this.#readers.add(reader)
    return reader
  }

  locate(queries: readonly (TopicPartition & { readonly at: Anchor })[]): Promise<(Position | MillraceError)[]> {
    return this.#tools.places.locate(queries)
  }

  watermarks(partitions: readonly TopicPartition[]): Promise<(Watermarks | MillraceError)[]> {
    return this.#tools.places.watermarks(partitions)
  }

  /** Ends all readers. */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#readers].map((reader) => reader.close()))
  }

  /** The server says only that something on the way to the partition is missing; nothing was stored. */
  async #missing({ topic, partition }: BatchTarget): Promise<MillraceError> {
    this.#tools.incarnations.forget(topic)
    try {
      const view = await lookUpTopic(this.#tools.requests, topic)
      if (partitionOf(view, partition) === undefined) {
        return missingPartition(topic, partition, view.topic.partitions.length)
      }
    } catch (error) {
      if (error instanceof NotFoundError) return error
    }
    return new NotFoundError(`topic ${nameOf(topic)} did not take the batch: it was just deleted or recreated`, {
      context: { stream: topic.stream, topic: topic.topic, partition },
    })
  }
}

function noIdentities(): UnsupportedError {
  return new UnsupportedError("Apache Iggy knows no producer identities on wire 0.11: a resend may be stored twice")
}
