import {
  type Anchor,
  MillraceError,
  NotFoundError,
  type Position,
  StorageError,
  type TopicPartition,
  type Watermarks,
} from "@millrace/contract"
import type { Connection } from "./connection.ts"
import { timeOf } from "./stream-info.ts"
import { isReplicated, type PartitionInfo, type TopicLayouts } from "./topic-layout.ts"

/** Requests for places that are under way at once. */
const atOnce = 32

/** From this version on a stream's leader finds a record by its time (ADR-31). */
const leaderKnowsTimes = [2, 11] as const

/** The answer of `$JS.API.STREAM.MSG.GET`. */
interface StoredRecord {
  readonly message: { readonly seq: number }
}

/** Where partitions begin and end, and where times lie in them. */
export class Places {
  readonly #connection: Connection
  readonly #layouts: TopicLayouts

  constructor(connection: Connection, layouts: TopicLayouts) {
    this.#connection = connection
    this.#layouts = layouts
  }

  watermarks(partitions: readonly TopicPartition[]): Promise<(Watermarks | MillraceError)[]> {
    return this.#each(partitions, async (at) => watermarksOf(at, await this.#layouts.partition(at)))
  }

  locate(queries: readonly (TopicPartition & { readonly at: Anchor })[]): Promise<(Position | MillraceError)[]> {
    return this.#each(queries, async (query) => {
      const found = await this.#layouts.partition(query)
      const { stream, topic, partition, first, end, lineage } = watermarksOf(query, found)
      const offset = await this.#offset(query.at, { first, end, found })
      return { stream, topic, partition, offset, lineage }
    })
  }

  async #offset(
    at: Anchor,
    { first, end, found }: { readonly first: bigint; readonly end: bigint; readonly found: PartitionInfo },
  ): Promise<bigint> {
    if (first === end) return first
    if (at.kind === "timestampMicros") {
      const known = { first, end, streamName: found.streamName }
      // A consumer may lie on a server that is behind the others, and has not heard of the time yet: only the leader is asked.
      const byLeader = isReplicated(found) && this.#connection.isAtLeast(...leaderKnowsTimes)
      return byLeader ? this.#offsetByLeader(at.value, known) : this.#offsetOfTime(at.value, known)
    }
    return at.kind === "first" ? first : at.kind === "last" ? end - 1n : end
  }

  async #offsetByLeader(
    micros: bigint,
    { end, streamName }: { readonly end: bigint; readonly streamName: string },
  ): Promise<bigint> {
    const body = { start_time: timeOf(micros), next_by_subj: ">" }
    try {
      const path = `STREAM.MSG.GET.${streamName}`
      const { message } = await this.#connection.api<StoredRecord>(path, body, { idempotent: true })
      const offset = BigInt(message.seq) - 1n
      return offset > end ? end : offset
    } catch (error) {
      if (error instanceof NotFoundError) return end
      throw error
    }
  }

  /**
   * The first record at or behind a time, by a consumer that begins there: JetStream looks the time up when it makes one. (A direct get
   * by time needs a newer server, and the stream's leave.)
   */
  async #offsetOfTime(
    micros: bigint,
    { first, end, streamName }: { readonly first: bigint; readonly end: bigint; readonly streamName: string },
  ): Promise<bigint> {
    const config = {
      deliver_policy: "by_start_time",
      opt_start_time: timeOf(micros),
      ack_policy: "none",
      replay_policy: "instant",
      inactive_threshold: 5_000_000_000,
      mem_storage: true,
      num_replicas: 1,
    }
    const info = await this.#connection.api<{
      readonly name: string
      readonly delivered?: { readonly stream_seq?: number }
    }>(`CONSUMER.CREATE.${streamName}`, { stream_name: streamName, config }, { idempotent: true })
    // Nobody waits for its end: a consumer that the server does not hear of ends by its inactivity.
    if (this.#connection.connected) {
      this.#connection.wire.publish(`$JS.API.CONSUMER.DELETE.${streamName}.${info.name}`, "", {
        payload: new Uint8Array(0),
      })
    }
    // The last sequence before the start is the offset of the record at the start.
    const offset = BigInt(info.delivered?.stream_seq ?? 0)
    return offset < first ? first : offset > end ? end : offset
  }

  /** One answer an item, in order: a failure is the answer of its item alone. */
  async #each<T, R>(items: readonly T[], ask: (item: T) => Promise<R>): Promise<(R | MillraceError)[]> {
    this.#connection.check()
    const answers: (R | MillraceError)[] = []
    for (let start = 0; start < items.length; start += atOnce) {
      const part = items.slice(start, start + atOnce)
      const outcomes = await Promise.allSettled(part.map(ask))
      answers.push(
        ...outcomes.map((outcome) => (outcome.status === "fulfilled" ? outcome.value : asMillrace(outcome.reason))),
      )
    }
    return answers
  }
}

/** A partition's first offset and its end: sequences count from 1, offsets from 0. */
export function watermarksOf(
  { stream, topic, partition }: TopicPartition,
  { layout, info }: PartitionInfo,
): Watermarks {
  const { first_seq, last_seq } = info.state
  const end = BigInt(last_seq)
  const first = first_seq === 0 ? end : BigInt(first_seq) - 1n
  return { stream, topic, partition, first: first > end ? end : first, end, lineage: layout.lineage }
}

function asMillrace(error: unknown): MillraceError {
  return error instanceof MillraceError ? error : new StorageError(String(error), { cause: error })
}
