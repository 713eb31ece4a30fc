/** Streams, topics and partitions. */
import {
  AlreadyExistsError,
  InvalidError,
  type StreamDescription,
  type TopicDescription,
  type TopicName,
  type TopicPartition,
  type TopicSpec,
  type Watermarks,
} from "@millrace/contract"
import { noPartition } from "./append.ts"
import { streamNotFound, topicText } from "./catalog-cache.ts"
import type { Access, ReadCommand, Room, TopicRow, WriteAccess, WriteCommand } from "./command.ts"
import { createPartition, firstBatchWhere, readPartition } from "./partition-state.ts"
import { carryProducers } from "./producers.ts"
import { cutBefore } from "./retention.ts"
import { throwPartitionAway } from "./sweep.ts"
import type { Transaction } from "./transaction.ts"

/** The most partitions of a topic. */
export const mostPartitions: number = 1000

/** What fits into an INTEGER of SQLite. */
const largestSize = (1n << 63n) - 1n

/** The commands of the catalog. `rooms` are told when a topic is purged or deleted, in the same transaction. */
export function catalogCommands(rooms: readonly Room[]): Room["commands"] {
  return [
    createStream,
    createTopic,
    describeStream,
    describeTopic,
    listStreams,
    listTopics,
    addPartitions,
    trim,
    change("catalog.purgeTopic", (access, name: TopicName) => purgeTopic(access, access.topic(name), rooms)),
    change("catalog.deleteTopic", (access, name: TopicName) => deleteTopic(access, access.topic(name), rooms)),
    change("catalog.deleteStream", (access, stream: string) => deleteStream(access, stream, rooms)),
  ]
}

const createStream = change("catalog.createStream", (access, stream: string): undefined => {
  if (findStream(access, stream) !== undefined) {
    throw new AlreadyExistsError(`stream ${JSON.stringify(stream)} exists already`, { context: { stream } })
  }
  access.statement("INSERT INTO stream (name, created) VALUES (?, ?)").run(stream, access.nowMicros)
})

const createTopic = change(
  "catalog.createTopic",
  (access, { name, spec }: { readonly name: TopicName; readonly spec: TopicSpec }): TopicDescription => {
    checkPartitions(name, spec.partitions)
    checkSize(name, spec.maxBytes)
    const stream = streamId(access, name.stream)
    const { stream: streamName, topic } = name
    if (access.statement("SELECT 1 FROM topic WHERE stream = ? AND name = ?").get(stream, topic) !== undefined) {
      throw new AlreadyExistsError(`topic ${topicText(name)} exists already`, {
        context: { stream: streamName, topic },
      })
    }
    const id = (access as Transaction).count("nextTopic")
    access
      .statement(
        `INSERT INTO topic (id, stream, name, history, expire_after_ms, max_bytes, durability, offset_durability, window_ms,
           deduplicate_ids, created, native) VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?)`,
      )
      .run(
        id,
        stream,
        topic,
        spec.expireAfterMs ?? null,
        spec.maxBytes ?? null,
        spec.durability,
        spec.offsetDurability,
        spec.deduplicationWindowMs,
        spec.deduplicateIds ? 1 : 0,
        access.nowMicros,
        spec.native === undefined ? null : JSON.stringify(spec.native),
      )
    newPartitions(access, id, { from: 0, count: spec.partitions })
    return describe(fresh(access, name))
  },
)

const describeStream: ReadCommand<string, StreamDescription> = {
  mode: "read",
  name: "catalog.describeStream",
  run(access, stream) {
    const id = streamId(access, stream)
    const row = access
      .statement(
        "SELECT created, (SELECT count(*) FROM topic WHERE topic.stream = stream.id) AS topics FROM stream WHERE id = ?",
      )
      .get(id)
    return { stream, topics: Number(row?.topics), createdMicros: row?.created as bigint }
  },
}

const describeTopic: ReadCommand<TopicName, TopicDescription> = {
  mode: "read",
  name: "catalog.describeTopic",
  run: (access, name) => describe(access.topic(name)),
}

const listStreams: ReadCommand<undefined, StreamDescription[]> = {
  mode: "read",
  name: "catalog.listStreams",
  run: (access) =>
    access
      .statement(
        `SELECT name, created, (SELECT count(*) FROM topic WHERE topic.stream = stream.id) AS topics
         FROM stream WHERE name <> '' ORDER BY name`,
      )
      .all()
      .map((row) => ({
        stream: row.name as string,
        topics: Number(row.topics),
        createdMicros: row.created as bigint,
      })),
}

const listTopics: ReadCommand<string, TopicDescription[]> = {
  mode: "read",
  name: "catalog.listTopics",
  run: (access, stream) =>
    topicsOf(access, streamId(access, stream)).map((topic) => describe(access.topic({ stream, topic }))),
}

const addPartitions = change(
  "catalog.addPartitions",
  (access, { name, count }: { readonly name: TopicName; readonly count: number }): TopicDescription => {
    const topic = access.topic(name)
    const present = topic.partitionKeys.length
    checkPartitions(name, count > 0 ? present + count : count)
    newPartitions(access, BigInt(topic.id), { from: present, count })
    return describe(fresh(access, name))
  },
)

const trim: WriteCommand<{ readonly at: TopicPartition; readonly before: bigint }, Watermarks> = {
  mode: "write",
  name: "catalog.trim",
  durability: () => "synced",
  run(access, { at, before }) {
    const topic = access.topic(at)
    const key = topic.partitionKeys[at.partition]
    if (key === undefined) throw noPartition(topic, at.partition)
    const state = readPartition(access, key)
    const number = firstBatchWhere(access, state, ({ base, count }) => base + count > before)
    const { first, next } = cutBefore(access as Transaction, state, number)
    const { stream, topic: name, partition } = at
    return { stream, topic: name, partition, first, end: next, lineage: topic.lineage }
  },
}

/** Every change of the catalog is synced, and makes all sessions look again. */
function change<A, R>(name: string, run: (access: WriteAccess, args: A) => R): WriteCommand<A, R> {
  return {
    mode: "write",
    name,
    durability: () => "synced",
    run(access, args) {
      const result = run(access, args)
      ;(access as Transaction).catalogChanged()
      return result
    },
  }
}

function purgeTopic(access: WriteAccess, topic: TopicRow, rooms: readonly Room[]): void {
  const transaction = access as Transaction
  transaction.statement("UPDATE topic SET history = history + 1 WHERE id = ?").run(topic.id)
  topic.partitionKeys.forEach((old, partition) => {
    const key = Number(transaction.count("nextPartition"))
    transaction
      .statement("UPDATE topic_partition SET key = ? WHERE topic = ? AND partition = ?")
      .run(key, topic.id, partition)
    createPartition(transaction, key)
    carryProducers(transaction, old, key)
    throwPartitionAway(transaction, old)
  })
  for (const room of rooms) room.topicPurged?.(access, topic.id)
}

function deleteTopic(access: WriteAccess, topic: TopicRow, rooms: readonly Room[]): void {
  const transaction = access as Transaction
  transaction.statement("DELETE FROM topic WHERE id = ?").run(topic.id)
  transaction.statement("DELETE FROM topic_partition WHERE topic = ?").run(topic.id)
  for (const key of topic.partitionKeys) throwPartitionAway(transaction, key)
  transaction.segments.seal(transaction, topic.id)
  for (const room of rooms) room.topicDeleted?.(access, topic.id)
}

function deleteStream(access: WriteAccess, stream: string, rooms: readonly Room[]): void {
  const id = streamId(access, stream)
  for (const topic of topicsOf(access, id)) deleteTopic(access, access.topic({ stream, topic }), rooms)
  if (stream !== "") access.statement("DELETE FROM stream WHERE id = ?").run(id)
}

function newPartitions(
  access: WriteAccess,
  topic: bigint,
  { from, count }: { readonly from: number; readonly count: number },
): void {
  const firstKey = Number((access as Transaction).count("nextPartition", count))
  const insert = access.statement("INSERT INTO topic_partition (topic, partition, key) VALUES (?, ?, ?)")
  for (let i = 0; i < count; i++) {
    insert.run(topic, from + i, firstKey + i)
    createPartition(access, firstKey + i)
  }
}

function fresh(access: WriteAccess, name: TopicName): TopicRow {
  ;(access as Transaction).catalogChanged()
  return access.topic(name)
}

function describe(topic: TopicRow): TopicDescription {
  return {
    stream: topic.stream,
    topic: topic.topic,
    lineage: topic.lineage,
    partitions: topic.partitionKeys.map((_, partition) => ({ partition })),
    createdMicros: topic.createdMicros,
    durability: topic.durability,
    offsetDurability: topic.offsetDurability,
    deduplicationWindowMs: topic.deduplicationWindowMs,
    deduplicateIds: topic.deduplicateIds,
    ...(topic.expireAfterMs === undefined ? {} : { expireAfterMs: topic.expireAfterMs }),
    ...(topic.maxBytes === undefined ? {} : { maxBytes: topic.maxBytes }),
    ...(topic.native === undefined ? {} : { native: JSON.parse(topic.native) as Record<string, unknown> }),
  }
}

function topicsOf(access: Access, stream: bigint): string[] {
  return access
    .statement("SELECT name FROM topic WHERE stream = ? ORDER BY name")
    .all(stream)
    .map((row) => row.name as string)
}

function streamId(access: Access, stream: string): bigint {
  const id = findStream(access, stream)
  if (id === undefined) throw streamNotFound(stream)
  return id
}

function findStream(access: Access, stream: string): bigint | undefined {
  return access.statement("SELECT id FROM stream WHERE name = ?").get(stream)?.id as bigint | undefined
}

function checkPartitions(name: TopicName, partitions: number): void {
  if (Number.isInteger(partitions) && partitions >= 1 && partitions <= mostPartitions) return
  throw new InvalidError(
    `topic ${topicText(name)} cannot have ${partitions} partitions: 1 to ${mostPartitions} are allowed`,
    { context: { ...name, partitions, limit: mostPartitions } },
  )
}

function checkSize(name: TopicName, maxBytes: bigint | undefined): void {
  if (maxBytes === undefined || (maxBytes > 0n && maxBytes <= largestSize)) return
  throw new InvalidError(
    `topic ${topicText(name)} cannot have ${maxBytes} bytes at most: 1 to ${largestSize} are allowed`,
    {
      context: { ...name, maxBytes, limit: largestSize },
    },
  )
}
