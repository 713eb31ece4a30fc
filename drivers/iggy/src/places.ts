/** Where partitions begin and end, and where a time leads. */
import {
  type Anchor,
  type Lineage,
  MillraceError,
  OffsetOutOfRangeError,
  type Position,
  StorageError,
  type TopicPartition,
  type Watermarks,
} from "@millrace/contract"
import { readBatches } from "./batch/encoded-batch.ts"
import type { Partition } from "./codec/catalog-structures.ts"
import type { Consumer } from "./codec/identifier.ts"
import { pollMessages } from "./codec/message-commands.ts"
import type { PollingStrategy } from "./codec/message-structures.ts"
import type { Requests } from "./requests.ts"
import { endOf, keyOf, lookUpTopic, missingPartition, nameOf, partitionOf, type TopicView } from "./topic-lookup.ts"

/** Who polls where nothing is stored for anybody. */
export const passer: Consumer = { kind: "consumer", id: "millrace" }

export class Places {
  readonly #requests: Requests

  constructor(requests: Requests) {
    this.#requests = requests
  }

  async watermarks(partitions: readonly TopicPartition[]): Promise<(Watermarks | MillraceError)[]> {
    return this.#each(partitions, async (place, { partition, lineage }) => ({
      ...place,
      first: await this.first(place, partition),
      end: endOf(partition),
      lineage,
    }))
  }

  async locate(queries: readonly (TopicPartition & { readonly at: Anchor })[]): Promise<(Position | MillraceError)[]> {
    return this.#each(queries, async (place, { partition, lineage, query }) => ({
      ...place,
      offset: await this.#find(place, partition, query.at),
      lineage,
    }))
  }

  /** The first retained offset; the end where there is none. */
  async first(place: TopicPartition, partition: Partition): Promise<bigint> {
    const end = endOf(partition)
    if (partition.messagesCount === 0n || partition.messagesCount === end) return end - partition.messagesCount
    return (await this.#offsetOf(place, { kind: "first", value: 0n })) ?? end
  }

  /** The error for a position that the partition does not hold. */
  async outOfRange(position: Position, partition: Partition): Promise<OffsetOutOfRangeError> {
    return outOfRange(position, await this.first(position, partition), endOf(partition))
  }

  /** Batches share one append time, and a poll by time begins with the first batch at or behind it. */
  async #find(place: TopicPartition, partition: Partition, anchor: Anchor): Promise<bigint> {
    const end = endOf(partition)
    switch (anchor.kind) {
      case "first":
        return this.first(place, partition)
      case "last":
        return partition.messagesCount === 0n ? end : end - 1n
      case "end":
        return end
      case "timestampMicros":
        return (await this.#offsetOf(place, { kind: "timestamp", value: anchor.value < 0n ? 0n : anchor.value })) ?? end
    }
  }

  /** The offset of the first record that a poll answers. */
  async #offsetOf(
    { stream, topic, partition }: TopicPartition,
    strategy: PollingStrategy,
  ): Promise<bigint | undefined> {
    const poll = { consumer: passer, stream, topic, partition, strategy, count: 1, autoCommit: false }
    const { records } = await this.#requests.request(pollMessages, poll)
    return readBatches(records)[0]?.firstOffset
  }

  /** Topics are looked up once each; what fails for one partition is its answer, and no other's. A session that is closed fails as a whole. */
  async #each<Q extends TopicPartition, A>(
    queries: readonly Q[],
    answer: (
      place: TopicPartition,
      found: { readonly partition: Partition; readonly lineage: Lineage; readonly query: Q },
    ) => Promise<A>,
  ): Promise<(A | MillraceError)[]> {
    this.#requests.assertOpen()
    const views = new Map<string, Promise<TopicView>>()
    for (const query of queries) {
      const key = keyOf(query)
      if (!views.has(key)) views.set(key, lookUpTopic(this.#requests, query))
    }
    const answers = queries.map(async (query) => {
      const { stream, topic, partition } = query
      const view = await (views.get(keyOf(query)) as Promise<TopicView>)
      const found = partitionOf(view, partition)
      if (found === undefined) throw missingPartition(query, partition, view.topic.partitions.length)
      return answer({ stream, topic, partition }, { partition: found, lineage: view.lineage, query })
    })
    return orErrors(answers)
  }
}

/** Names the offset, and what the partition holds. */
export function outOfRange(position: Omit<Position, "lineage">, first: bigint, end: bigint): OffsetOutOfRangeError {
  const { stream, topic, partition, offset } = position
  return new OffsetOutOfRangeError(
    `offset ${offset} is out of range: partition ${partition} of topic ${nameOf(position)} holds ${first} to ${end} (the end)`,
    { context: { stream, topic, partition, offset, first, end } },
  )
}

/** Each outcome in its place. Failures that a pause may mend (the server is gone) fail the whole call. */
export async function orErrors<T>(answers: readonly Promise<T>[]): Promise<(T | MillraceError)[]> {
  const outcomes = await Promise.allSettled(answers)
  return outcomes.map((outcome) => {
    if (outcome.status === "fulfilled") return outcome.value
    const error: unknown = outcome.reason
    if (!(error instanceof MillraceError)) throw new StorageError(String(error), { cause: error })
    if (error.retryable || error.kind === "closed") throw error
    return error
  })
}
