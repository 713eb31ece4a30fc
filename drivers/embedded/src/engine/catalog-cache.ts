import { NotFoundError, type TopicName } from "@millrace/contract"
import type { TopicRow } from "./command.ts"
import type { Store } from "./store.ts"

/** Topics that are kept. Above it the cache starts over. */
const mostTopics = 4096

/** The catalog as far as it was asked for. Dropped as a whole whenever anybody changes the catalog. */
export class CatalogCache {
  readonly #topics = new Map<string, TopicRow>()
  #version = 0n

  /** Called at the start of each transaction: forgets everything when the catalog has changed since. */
  validate(store: Store): void {
    const version = store.statement("SELECT value FROM store_value WHERE name = 'catalog'").get()?.value as bigint
    if (version === this.#version) return
    this.#topics.clear()
    this.#version = version
  }

  /** After a change in this transaction, and after one that was undone. */
  forget(): void {
    this.#topics.clear()
    this.#version = 0n
  }

  /** What was last known of a topic, perhaps out of date. */
  peek(name: TopicName): TopicRow | undefined {
    return this.#topics.get(topicKey(name))
  }

  /** @throws NotFoundError */
  topic(store: Store, name: TopicName): TopicRow {
    const key = topicKey(name)
    const known = this.#topics.get(key)
    if (known !== undefined) return known
    const topic = readTopic(store, name)
    if (this.#topics.size >= mostTopics) this.#topics.clear()
    this.#topics.set(key, topic)
    return topic
  }
}

/** One text for a topic's name that no other name has. */
export function topicKey(name: TopicName): string {
  return `${name.stream}\u0000${name.topic}`
}

/** How messages name a topic. */
export function topicText(name: TopicName): string {
  return JSON.stringify(name.stream === "" ? name.topic : `${name.stream}/${name.topic}`)
}

/** The error for a stream that is not there. */
export function streamNotFound(stream: string): NotFoundError {
  return new NotFoundError(`stream ${JSON.stringify(stream)} does not exist`, { context: { stream } })
}

function readTopic(store: Store, name: TopicName): TopicRow {
  const row = store
    .statement(
      `SELECT topic.* FROM topic JOIN stream ON stream.id = topic.stream WHERE stream.name = ? AND topic.name = ?`,
    )
    .get(name.stream, name.topic)
  if (row === undefined) {
    const stream = store.statement("SELECT 1 FROM stream WHERE name = ?").get(name.stream)
    if (stream === undefined) throw streamNotFound(name.stream)
    throw new NotFoundError(`topic ${topicText(name)} does not exist`, { context: { ...nameOf(name) } })
  }
  const keys = store
    .statement("SELECT key FROM topic_partition WHERE topic = ? ORDER BY partition")
    .all(row.id as bigint)
  return {
    id: Number(row.id),
    stream: name.stream,
    topic: name.topic,
    lineage: `${row.id}.${row.history}`,
    partitionKeys: keys.map(({ key }) => Number(key)),
    durability: row.durability as TopicRow["durability"],
    offsetDurability: row.offset_durability as TopicRow["offsetDurability"],
    deduplicationWindowMs: row.window_ms as number,
    deduplicateIds: row.deduplicate_ids === 1n,
    expireAfterMs: (row.expire_after_ms as number | null) ?? undefined,
    maxBytes: (row.max_bytes as bigint | null) ?? undefined,
    createdMicros: row.created as bigint,
    native: (row.native as string | null) ?? undefined,
  }
}

function nameOf({ stream, topic }: TopicName): TopicName {
  return { stream, topic }
}
