/**
 * Retention by age and by size. What falls out of it stops counting at once (the first offset of its partition moves); the rows and
 * files go in the small steps of `sweep.ts`. Only whole batches go, oldest first, and the newest batch of a partition stays under a
 * size limit.
 */
import type { TopicRow } from "./command.ts"
import { batchRowId, firstBatchWhere, type PartitionState, readBatchRow, readPartition } from "./partition-state.ts"
import type { Transaction } from "./transaction.ts"

/** A topic's size is looked at when it has grown by this part of its limit. */
const looksPerLimit = 32

/** A topic's age is looked at that often while it is written to, and at most so often. */
const looksPerExpiry = 10
const shortestAgeLookMs = 50
const longestAgeLookMs = 1000

/** How many batches one look at a topic's size takes out at most; the next look goes on. */
const mostBatchesPerLook = 1024

/** What one engine remembers of the topics that it writes to. */
export class Retention {
  readonly #grownBytes = new Map<number, number>()
  readonly #agedMs = new Map<number, number>()

  /** After the appends of a transaction, before its commit. */
  afterAppends(transaction: Transaction): void {
    for (const { topic, bytes } of transaction.grown.values()) {
      if (topic.maxBytes !== undefined && this.#hasGrown(topic, topic.maxBytes, bytes)) keepSize(transaction, topic)
      if (topic.expireAfterMs !== undefined && this.#hasAged(topic.id, topic.expireAfterMs, transaction.monotonicMs))
        keepAge(transaction, topic, topic.expireAfterMs)
    }
  }

  #hasGrown({ id }: TopicRow, maxBytes: bigint, bytes: number): boolean {
    // A topic that this engine has not looked at yet is looked at with its first append.
    const grown = (this.#grownBytes.get(id) ?? Number(maxBytes)) + bytes
    const due = grown >= Number(maxBytes) / looksPerLimit
    this.#grownBytes.set(id, due ? 0 : grown)
    return due
  }

  #hasAged(id: number, expireAfterMs: number, nowMs: number): boolean {
    const pause = Math.min(longestAgeLookMs, Math.max(shortestAgeLookMs, expireAfterMs / looksPerExpiry))
    if (nowMs - (this.#agedMs.get(id) ?? Number.NEGATIVE_INFINITY) < pause) return false
    this.#agedMs.set(id, nowMs)
    return true
  }
}

/** Notes that a topic has grown in this transaction, where it has limits. */
export function noteGrowth(transaction: Transaction, topic: TopicRow, bytes: number): void {
  if (topic.maxBytes === undefined && topic.expireAfterMs === undefined) return
  const known = transaction.grown.get(topic.id)
  transaction.grown.set(topic.id, { topic, bytes: (known?.bytes ?? 0) + bytes })
}

/** The topics that have limits, for the look of an idle engine. */
export function limitedTopics(transaction: Transaction): TopicRow[] {
  return transaction
    .statement(
      `SELECT stream.name AS stream, topic.name AS topic FROM topic JOIN stream ON stream.id = topic.stream
       WHERE topic.max_bytes IS NOT NULL OR topic.expire_after_ms IS NOT NULL`,
    )
    .all()
    .map((row) => transaction.topic({ stream: row.stream as string, topic: row.topic as string }))
}

/** Whether something of a topic is outside of its limits. Reads only. */
export function isOverdue(transaction: Transaction, topic: TopicRow): boolean {
  const states = topic.partitionKeys.map((key) => readPartition(transaction, key))
  if (topic.maxBytes !== undefined && sizeOf(states) > topic.maxBytes && states.some(hasMoreThanOne)) return true
  const { expireAfterMs } = topic
  if (expireAfterMs === undefined) return false
  const before = transaction.nowMicros - toMicros(expireAfterMs)
  return states.some(
    (state) => state.firstBatch < state.nextBatch && readBatchRow(transaction, state, state.firstBatch).time < before,
  )
}

/** Takes out what is outside of a topic's limits, as far as one step goes. */
export function keepLimits(transaction: Transaction, topic: TopicRow): void {
  if (topic.expireAfterMs !== undefined) keepAge(transaction, topic, topic.expireAfterMs)
  if (topic.maxBytes !== undefined) keepSize(transaction, topic)
}

/** Takes out every batch before the one with this number, which may be the next batch: then all of them. */
export function cutBefore(transaction: Transaction, state: PartitionState, number: bigint): PartitionState {
  if (number <= state.firstBatch) return state
  const first = number === state.nextBatch ? state.next : readBatchRow(transaction, state, number).base
  const removed = readBatchRow(transaction, state, number - 1n).total
  transaction
    .statement("UPDATE log_state SET first = ?, first_batch = ?, removed = ? WHERE partition = ? AND producer = 0")
    .run(first, number, removed, state.key)
  throwAway(transaction, batchRowId(state.key, state.firstBatch), batchRowId(state.key, number) - 1n)
  return { ...state, first, firstBatch: number, removed }
}

function keepAge(transaction: Transaction, topic: TopicRow, expireAfterMs: number): void {
  const before = transaction.nowMicros - toMicros(expireAfterMs)
  for (const key of topic.partitionKeys) {
    const state = readPartition(transaction, key)
    cutBefore(
      transaction,
      state,
      firstBatchWhere(transaction, state, ({ time }) => time >= before),
    )
  }
}

function keepSize(transaction: Transaction, topic: TopicRow): void {
  const limit = topic.maxBytes as bigint
  const states = topic.partitionKeys.map((key) => readPartition(transaction, key))
  let size = sizeOf(states)
  if (size <= limit) return
  const cuts = states.map((state) => oldest(transaction, { state, number: state.firstBatch, removed: state.removed }))
  for (let step = 0; step < mostBatchesPerLook && size > limit; step++) {
    let least: Cut | undefined
    for (const cut of cuts)
      if (cut.time !== undefined && (least?.time === undefined || cut.time < least.time)) least = cut
    if (least === undefined) break
    size -= least.total - least.removed
    cuts[cuts.indexOf(least)] = oldest(transaction, {
      state: least.state,
      number: least.number + 1n,
      removed: least.total,
    })
  }
  for (const { state, number } of cuts) cutBefore(transaction, state, number)
}

interface Cut {
  readonly state: PartitionState
  /** The batch that would go next. */
  readonly number: bigint
  readonly removed: bigint
  readonly total: bigint
  /** Undefined when it must stay. */
  readonly time: bigint | undefined
}

function oldest(
  transaction: Transaction,
  from: { readonly state: PartitionState; readonly number: bigint; readonly removed: bigint },
): Cut {
  if (from.number + 1n >= from.state.nextBatch) return { ...from, total: from.removed, time: undefined }
  const { total, time } = readBatchRow(transaction, from.state, from.number)
  return { ...from, total, time }
}

/** Row ids that nothing refers to any more. A range that continues the last one makes it longer. */
function throwAway(transaction: Transaction, low: bigint, high: bigint): void {
  const longer = transaction
    .statement("UPDATE garbage SET high = ? WHERE high = ? AND partition IS NULL")
    .run(high, low - 1n)
  if (Number(longer.changes) === 0)
    transaction.statement("INSERT INTO garbage (low, high) VALUES (?, ?)").run(low, high)
  transaction.littered = true
}

function sizeOf(states: readonly PartitionState[]): bigint {
  return states.reduce((sum, { written, removed }) => sum + written - removed, 0n)
}

function hasMoreThanOne({ firstBatch, nextBatch }: PartitionState): boolean {
  return nextBatch - firstBatch > 1n
}

function toMicros(ms: number): bigint {
  return BigInt(Math.round(ms * 1000))
}
