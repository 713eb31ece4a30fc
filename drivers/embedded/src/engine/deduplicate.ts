/**
 * Ids within a topic's window. Every batch leaves one summary row, which tells all ids that derive from its batch id. Ids that records
 * carry themselves are looked up where the topic asks for it (`deduplicateIds`, one row an id) and where the batch is a resend
 * (then in the summaries and, one by one, in the recent batches that hold such ids).
 */
import { type MessageId, splitId } from "@millrace/contract"
import { readBatchBody } from "./batch-store.ts"
import type { TopicRow } from "./command.ts"
import { notBefore, type PartitionState } from "./partition-state.ts"
import type { Transaction } from "./transaction.ts"

/** Every so many batches of a partition, this many rows that fell out of the window are removed at most: more than were added. */
const batchesPerPruning = 16n
const prunedSummaries = 32
const prunedIds = 1 << 16

/** Where the records of a batch are already, by index; absent what is new. */
export type Duplicates = ReadonlyMap<number, bigint>

const none: Duplicates = new Map()

/** The ids of a batch, wherever its bytes are. A `BatchBody` is one. */
export interface BatchIds {
  readonly count: number
  readonly batchId: MessageId
  /** Whether some record carries an id of its own. */
  readonly hasOwnIds: boolean
  id(index: number): MessageId
  ownId(index: number): MessageId | undefined
}

/** What an append asks. */
export interface IdQuery {
  readonly topic: TopicRow
  readonly state: PartitionState
  readonly body: BatchIds
  readonly resend: boolean
}

/** The records of a batch that the partition got within the window, and those that repeat an id of the same batch. */
export function findDuplicates(transaction: Transaction, query: IdQuery): Duplicates {
  const { topic, body, resend } = query
  if (topic.deduplicationWindowMs <= 0 || !(resend || (topic.deduplicateIds && body.hasOwnIds))) return none
  const found = new Map<number, bigint>()
  const own = new Set<MessageId>()
  let recent: ReadonlyMap<MessageId, bigint> | undefined
  for (let index = 0; index < body.count; index++) {
    const id = resend ? body.id(index) : body.ownId(index)
    if (id === undefined) continue
    let offset = derivedOffset(transaction, query, id)
    if (offset === undefined && topic.deduplicateIds) offset = recordOffset(transaction, query, id)
    else if (offset === undefined) {
      recent ??= recentOwnIds(transaction, query)
      offset = recent.get(id)
    }
    if (offset !== undefined) found.set(index, offset)
    else if (own.has(id)) found.set(index, query.state.next)
    else own.add(id)
  }
  return found
}

/** Writes the ids of an appended batch down (`thinned`: duplicates were left out of it), and forgets some that are too old. */
export function rememberIds(
  transaction: Transaction,
  query: IdQuery,
  batch: {
    readonly number: bigint
    readonly base: bigint
    readonly timestampMicros: bigint
    readonly thinned: boolean
  },
): void {
  const { topic, state, body } = query
  const windowMicros = windowOf(topic)
  if (windowMicros <= 0n) return
  const own = body.hasOwnIds
  transaction
    .statement(
      "INSERT OR REPLACE INTO batch_summary (partition, id, number, base, count, time, own) VALUES (?, ?, ?, ?, ?, ?, ?)",
    )
    .run(
      state.key,
      idBytes(body.batchId),
      batch.number,
      batch.base,
      body.count,
      batch.timestampMicros,
      batch.thinned ? 2 : own ? 1 : 0,
    )
  if (own && topic.deduplicateIds) {
    const insert = transaction.statement(
      "INSERT OR REPLACE INTO record_id (partition, period, id, record) VALUES (?, ?, ?, ?)",
    )
    const period = batch.timestampMicros / windowMicros
    for (let index = 0; index < body.count; index++) {
      const id = body.ownId(index)
      if (id !== undefined) insert.run(state.key, period, idBytes(id), batch.base + BigInt(index))
    }
  }
  if (batch.number % batchesPerPruning !== 0n) return
  prune(transaction, state.key, { windowMicros, nowMicros: batch.timestampMicros, ids: topic.deduplicateIds })
}

/** Looks at the oldest rows, and removes those that fell out of the window. Plain statements: a subquery would build an index each time. */
function prune(
  transaction: Transaction,
  key: number,
  {
    windowMicros,
    nowMicros,
    ids,
  }: { readonly windowMicros: bigint; readonly nowMicros: bigint; readonly ids: boolean },
): void {
  const before = nowMicros - windowMicros
  for (let i = 0; i < prunedSummaries; i++) {
    // Ids begin with their time, so the first rows are the oldest; one with a wrong clock waits at most a window.
    const oldest = transaction
      .statement("SELECT id, time FROM batch_summary WHERE partition = ? ORDER BY id LIMIT 1")
      .get(key)
    if (oldest === undefined || (oldest.time as bigint) >= before) break
    transaction.statement("DELETE FROM batch_summary WHERE partition = ? AND id = ?").run(key, oldest.id as Uint8Array)
  }
  if (!ids) return
  const old = transaction
    .statement("SELECT period, id FROM record_id WHERE partition = ? AND period < ? ORDER BY period, id LIMIT ?")
    .all(key, nowMicros / windowMicros - 1n, prunedIds)
  for (const { period, id } of old) {
    transaction
      .statement("DELETE FROM record_id WHERE partition = ? AND period = ? AND id = ?")
      .run(key, period as bigint, id as Uint8Array)
  }
}

/** The offset of an id that derives from a batch in the window. */
function derivedOffset(transaction: Transaction, { topic, state }: IdQuery, id: MessageId): bigint | undefined {
  const { batch, index } = splitId(id)
  const row = transaction
    .statement("SELECT base, count, time, own FROM batch_summary WHERE partition = ? AND id = ?")
    .get(state.key, idBytes(batch))
  if (
    row === undefined ||
    row.own === 2n ||
    index >= Number(row.count) ||
    tooOld(transaction, topic, row.time as bigint)
  )
    return undefined
  return (row.base as bigint) + BigInt(index)
}

/** The offset of an id that a record carried, in a topic that keeps them. */
function recordOffset(transaction: Transaction, { topic, state }: IdQuery, id: MessageId): bigint | undefined {
  const windowMicros = windowOf(topic)
  const period = notBefore(state.timeMicros, transaction.nowMicros) / windowMicros
  const row = transaction
    .statement("SELECT record FROM record_id WHERE partition = ? AND period IN (?, ?) AND id = ?")
    .get(state.key, period, period - 1n, idBytes(id))
  return row === undefined ? undefined : (row.record as bigint)
}

/** All ids that records carry in the partition's batches of the window. */
function recentOwnIds(transaction: Transaction, { topic, state }: IdQuery): ReadonlyMap<MessageId, bigint> {
  const ids = new Map<MessageId, bigint>()
  const rows = transaction
    .statement("SELECT number, base, time FROM batch_summary WHERE partition = ? AND own > 0")
    .all(state.key)
  for (const row of rows) {
    const number = row.number as bigint
    if (number < state.firstBatch || tooOld(transaction, topic, row.time as bigint)) continue
    const body = readBatchBody(transaction, state, number)
    for (let index = 0; index < body.count; index++) {
      const id = body.ownId(index)
      if (id !== undefined) ids.set(id, (row.base as bigint) + BigInt(index))
    }
  }
  return ids
}

function tooOld(transaction: Transaction, topic: TopicRow, time: bigint): boolean {
  return transaction.nowMicros - time > windowOf(topic)
}

function windowOf(topic: TopicRow): bigint {
  return BigInt(Math.round(topic.deduplicationWindowMs * 1000))
}

/** Ids as bytes in the order of their value, so that rows of UUIDv7 stand in the order of time. */
export function idBytes(id: MessageId): Uint8Array {
  const bytes = Buffer.allocUnsafe(16)
  bytes.writeBigUInt64BE(id >> 64n, 0)
  bytes.writeBigUInt64BE(id & 0xffffffffffffffffn, 8)
  return bytes
}
