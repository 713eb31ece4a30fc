/** Rows of work queues: found, made, compared, forgotten. */
import { InvalidError, NotFoundError, type QueueSpec, type QueueStart, type TopicName } from "@millrace/contract"
import { topicText } from "./catalog-cache.ts"
import type { Access, TopicRow, WriteAccess } from "./command.ts"
import { offsetOf } from "./locate.ts"
import { type PartitionState, readPartition } from "./partition-state.ts"

/** A queue as the store has it. */
export interface QueueRow {
  /** Never used again, not even when a queue of the same name is made. */
  readonly id: number
  readonly topic: number
  readonly name: string
  readonly spec: string
  readonly createdMicros: bigint
  readonly nextLease: number
  /** Records that are handed out and not settled. */
  readonly pending: number
}

/** A queue named by its session: by number, so that one that was deleted and made again is another one. */
export interface QueueCall {
  readonly topic: TopicName
  readonly queue: number
  readonly name: string
}

/** How far a queue is in one partition. */
export interface QueuePlace {
  readonly partition: number
  readonly state: PartitionState
  /** The first offset that was never handed out. */
  next: bigint
  /** Leases may hold offsets that are gone. */
  readonly stale: boolean
  /** There is no row yet. */
  readonly fresh: boolean
}

const columns = "id, topic, name, spec, created, next_lease, pending"

/** The queue of a topic, if there is one. */
export function findQueue(access: Access, topicId: number, name: string): QueueRow | undefined {
  const row = access.statement(`SELECT ${columns} FROM work_queue WHERE topic = ? AND name = ?`).get(topicId, name)
  return row === undefined ? undefined : queueOf(row)
}

/** @throws NotFoundError for the topic or the queue */
export function requireQueue(access: Access, { topic, queue, name }: QueueCall): { row: QueueRow; topic: TopicRow } {
  const found = access.statement(`SELECT ${columns} FROM work_queue WHERE id = ?`).get(queue)
  const topicRow = access.topic(topic)
  if (found === undefined || Number(found.topic) !== topicRow.id) throw noSuchQueue(name, topic)
  return { row: queueOf(found), topic: topicRow }
}

/** Whether there is still a queue of that number. */
export function isThere(access: Access, queue: number): boolean {
  return access.statement("SELECT 1 FROM work_queue WHERE id = ?").get(queue) !== undefined
}

/** All queues of a topic, by name. */
export function queuesOf(access: Access, topicId: number): QueueRow[] {
  return access.statement(`SELECT ${columns} FROM work_queue WHERE topic = ? ORDER BY name`).all(topicId).map(queueOf)
}

/** Makes a queue; the caller has seen that there is none. */
export function insertQueue(
  access: WriteAccess,
  topic: TopicRow,
  made: { readonly name: string; readonly spec: QueueSpec },
): QueueRow {
  const { name, spec } = made
  access
    .statement("INSERT INTO work_queue (topic, name, spec, created, next_lease, pending) VALUES (?, ?, ?, ?, 1, 0)")
    .run(topic.id, name, specText(spec), access.nowMicros)
  const row = findQueue(access, topic.id, name) as QueueRow
  topic.partitionKeys.forEach((key, partition) => {
    const state = readPartition(access, key)
    savePlace(access, row.id, { partition, next: startOf(access, state, spec.startAt), trimmed: state.first })
  })
  return row
}

/** Forgets a queue. */
export function deleteQueue(access: WriteAccess, queue: number): void {
  emptyQueue(access, queue)
  access.statement("DELETE FROM work_queue WHERE id = ?").run(queue)
}

/** Forgets what was handed out and how far the queue is: it begins anew, at the first record of each partition. */
export function emptyQueue(access: WriteAccess, queue: number): void {
  access.statement("DELETE FROM queue_lease WHERE queue = ?").run(queue)
  access.statement("DELETE FROM queue_partition WHERE queue = ?").run(queue)
  access.statement("UPDATE work_queue SET pending = 0 WHERE id = ?").run(queue)
}

/** How far the queue is in every partition that the topic has. */
export function placesOf(access: Access, topic: TopicRow, queue: number): QueuePlace[] {
  const rows = access
    .statement("SELECT partition, next, trimmed FROM queue_partition WHERE queue = ? ORDER BY partition")
    .all(queue)
  let at = 0
  return topic.partitionKeys.map((key, partition) => {
    const state = readPartition(access, key)
    const row = rows[at]
    if (row === undefined || Number(row.partition) !== partition)
      return { partition, state, next: state.first, stale: false, fresh: true }
    at += 1
    const next = row.next as bigint
    return {
      partition,
      state,
      next: atLeast(state.first, next),
      stale: (row.trimmed as bigint) < state.first,
      fresh: false,
    }
  })
}

/** Writes how far the queue is in a partition. */
export function savePlace(
  access: WriteAccess,
  queue: number,
  { partition, next, trimmed }: { readonly partition: number; readonly next: bigint; readonly trimmed: bigint },
): void {
  access
    .statement(
      `INSERT INTO queue_partition (queue, partition, next, trimmed) VALUES (?, ?, ?, ?)
       ON CONFLICT DO UPDATE SET next = excluded.next, trimmed = excluded.trimmed`,
    )
    .run(queue, partition, next, trimmed)
}

/** The settings of the text in a row. */
export function specOf(text: string): QueueSpec {
  const { startAt, ...rest } = JSON.parse(text) as Omit<QueueSpec, "startAt"> & {
    startAt: { kind: string; value?: string }
  }
  const value = startAt.value === undefined ? {} : { value: BigInt(startAt.value) }
  return { ...rest, startAt: { kind: startAt.kind, ...value } as QueueStart }
}

/** How long a record is waited for at its so-many-th delivery. */
export function waitOf({ ackWaitMs, backoffMs }: QueueSpec, deliveries: number): number {
  return backoffMs[Math.min(deliveries, backoffMs.length) - 1] ?? ackWaitMs
}

/**
 * Where a queue begins speaks of its making alone, so it is not compared.
 * @throws InvalidError that names what differs
 */
export function checkSame(
  made: QueueSpec,
  wanted: QueueSpec,
  where: { readonly topic: TopicName; readonly queue: string },
): void {
  const differing = (["ackPolicy", "ackWaitMs", "backoffMs", "maxDeliver", "maxAckPending"] as const).filter(
    (key) => valueText(made[key]) !== valueText(wanted[key]),
  )
  if (differing.length === 0) return
  const list = differing.map((key) => `${key} is ${valueText(made[key])} there and ${valueText(wanted[key])} here`)
  throw new InvalidError(
    `queue ${JSON.stringify(where.queue)} of ${topicText(where.topic)} exists with other settings: ${list.join("; ")}`,
    { context: { stream: where.topic.stream, topic: where.topic.topic, queue: where.queue } },
  )
}

/** The error for a queue that is not there. */
export function noSuchQueue(queue: string, { stream, topic }: TopicName): NotFoundError {
  return new NotFoundError(`queue ${JSON.stringify(queue)} of ${topicText({ stream, topic })} does not exist`, {
    context: { stream, topic, queue },
  })
}

function valueText(value: unknown): string {
  if (value === undefined) return "without a bound"
  return Array.isArray(value) ? `[${value.join(", ")}]` : String(value)
}

function startOf(access: Access, state: PartitionState, start: QueueStart): bigint {
  const offset = start.kind === "offset" ? start.value : offsetOf(access, state, start)
  return atLeast(state.first, offset)
}

function queueOf(row: Readonly<Record<string, unknown>>): QueueRow {
  return {
    id: Number(row.id),
    topic: Number(row.topic),
    name: row.name as string,
    spec: row.spec as string,
    createdMicros: row.created as bigint,
    nextLease: Number(row.next_lease),
    pending: Number(row.pending),
  }
}

function atLeast(least: bigint, offset: bigint): bigint {
  if (offset < least) return least
  return offset
}

/** The settings as text, the same for the same settings. */
function specText(spec: QueueSpec): string {
  const { ackWaitMs, backoffMs, maxDeliver, maxAckPending, ackPolicy, startAt } = spec
  const start = "value" in startAt ? { kind: startAt.kind, value: `${startAt.value}` } : { kind: startAt.kind }
  return JSON.stringify({ ackPolicy, ackWaitMs, backoffMs, maxDeliver, maxAckPending, startAt: start })
}
