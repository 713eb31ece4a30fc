/**
 * What a transaction has staged moves into the log: each batch gets its offsets and its time, in the order in which it came. Bytes in
 * segments stay where they are, so that the time under the write lock grows with the number of batches and hardly with their bytes.
 */
import type { StagedResult } from "@millrace/contract"
import { BatchBody } from "../batch/batch-body.ts"
import { batchChecksum, bodyChecksum } from "../batch/checksum.ts"
import type { TopicRow } from "./command.ts"
import { type Duplicates, findDuplicates, rememberIds } from "./deduplicate.ts"
import { findTopic } from "./group-topics.ts"
import { batchRowId, notBefore, type PartitionState, readPartition } from "./partition-state.ts"
import { noteGrowth } from "./retention.ts"
import { topicGone } from "./staged-append.ts"
import { readStagedBody, StagedIds, type StagedRow, stagedColumns } from "./staged-batch.ts"
import { withoutRecords } from "./thin-batch.ts"
import type { Transaction } from "./transaction.ts"
import type { TransactionalRow } from "./transactional-id.ts"
import { batchesPerTransaction } from "./transactional-schema.ts"

/** Rows that are in memory at a time; without their bytes. */
const rowsPerStep = 1024

/** The topics that a transaction has records for, by their ids. @throws NotFoundError for one that was deleted */
export function stagedTopics(transaction: Transaction, row: TransactionalRow): ReadonlyMap<bigint, TopicRow> {
  const topics = new Map<bigint, TopicRow>()
  const places = transaction.statement("SELECT DISTINCT topic, stream, name FROM staged_place WHERE key = ?")
  for (const place of places.all(row.key)) {
    const name = { stream: place.stream as string, topic: place.name as string }
    const topic = findTopic(transaction, name)
    if (topic === undefined || BigInt(topic.id) !== place.topic) throw topicGone(row, name)
    topics.set(place.topic as bigint, topic)
  }
  return topics
}

/** Syncs the segments that a transaction has batches in. */
export function syncStaged(transaction: Transaction, { key }: TransactionalRow): void {
  const low = key * batchesPerTransaction
  if (!transaction.segments.hasUnsynced) return
  const segments = transaction
    .statement("SELECT DISTINCT segment FROM staged_batch WHERE id BETWEEN ? AND ? AND segment IS NOT NULL")
    .all(low, low + batchesPerTransaction - 1n)
  for (const { segment } of segments) transaction.segments.syncStaged(transaction, segment as bigint)
}

/** Moves all of it, in the caller's transaction. @throws NotFoundError for a topic that was deleted: nothing was moved then */
export function moveStaged(transaction: Transaction, row: TransactionalRow): StagedResult[] {
  const topics = stagedTopics(transaction, row)
  const moving = new Moving(transaction)
  const low = row.key * batchesPerTransaction
  const high = low + batchesPerTransaction - 1n
  const select = transaction.statement(
    `SELECT ${stagedColumns} FROM staged_batch WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ${rowsPerStep}`,
  )
  syncStaged(transaction, row)
  for (let from = low; ; ) {
    const rows = select.all(from, high) as unknown as StagedRow[]
    for (const staged of rows) moving.move(staged, topics.get(staged.topic) as TopicRow)
    if (rows.length < rowsPerStep) break
    from = (rows.at(-1) as StagedRow).id + 1n
  }
  moving.finish()
  transaction.statement("DELETE FROM staged_batch WHERE id BETWEEN ? AND ?").run(low, high)
  return moving.results
}

/** A partition's counters while batches are added to it. */
interface Growing {
  readonly key: number
  readonly first: bigint
  next: bigint
  readonly firstBatch: bigint
  nextBatch: bigint
  written: bigint
  readonly removed: bigint
  readonly timeMicros: bigint
  /** The time of everything that this transaction appends to it. */
  readonly appendMicros: bigint
  readonly topic: TopicRow
  added: number
}

/** The body follows without a visit to this program. */
const moveRow = `
  INSERT INTO batch (id, base, count, time, total, checksum, length, segment, position, body)
  SELECT ?, ?, count, ?, ?, ?, length, segment, position, body FROM staged_batch WHERE id = ?`
const insertThinned = `
  INSERT INTO batch (id, base, count, time, total, checksum, length, segment, position, body)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

class Moving {
  readonly results: StagedResult[] = []
  readonly #transaction: Transaction
  readonly #partitions = new Map<number, Growing>()

  constructor(transaction: Transaction) {
    this.#transaction = transaction
  }

  move(row: StagedRow, topic: TopicRow): void {
    const partition = this.#partition(row, topic)
    const ids = new StagedIds(this.#transaction, row)
    const query = { topic, state: partition, body: ids, resend: ids.resend }
    const duplicates = findDuplicates(this.#transaction, query)
    const answer = {
      stream: topic.stream,
      topic: topic.topic,
      partition: Number(row.partition),
      count: Number(row.count),
    }
    const { next: base, nextBatch: number, appendMicros: timestampMicros } = partition
    if (duplicates.size === 0) {
      this.#moveWhole(row, partition)
      rememberIds(this.#transaction, { ...query, state: partition }, { number, base, timestampMicros, thinned: false })
      this.results.push({ ...answer, base, contiguous: true, duplicates: 0, timestampMicros })
      return
    }
    const stored = this.#moveThinned(row, partition, duplicates)
    if (stored === undefined) {
      const first = duplicates.get(0) as bigint
      const contiguous = [...duplicates].every(([index, offset]) => offset === first + BigInt(index))
      this.results.push({
        ...answer,
        ...(contiguous ? { base: first } : {}),
        contiguous,
        duplicates: answer.count,
      })
      return
    }
    rememberIds(this.#transaction, { ...query, body: stored }, { number, base, timestampMicros, thinned: true })
    this.results.push({ ...answer, contiguous: false, duplicates: duplicates.size, timestampMicros })
  }

  /** Writes the counters of the partitions. */
  finish(): void {
    const transaction = this.#transaction
    const update = transaction.statement(
      "UPDATE log_state SET next = ?, next_batch = ?, written = ?, time = ? WHERE partition = ? AND producer = 0",
    )
    for (const { key, next, nextBatch, written, appendMicros, topic, added } of this.#partitions.values()) {
      if (added === 0) continue
      update.run(next, nextBatch, written, appendMicros, key)
      transaction.appended.add(key)
      noteGrowth(transaction, topic, added)
    }
    if (this.#partitions.size > 0) transaction.changed("appends")
  }

  #partition(row: StagedRow, topic: TopicRow): Growing {
    const key = topic.partitionKeys[Number(row.partition)] as number
    const known = this.#partitions.get(key)
    if (known !== undefined) return known
    const state: PartitionState = readPartition(this.#transaction, key)
    const appendMicros = notBefore(state.timeMicros, this.#transaction.nowMicros)
    const partition = { ...state, appendMicros, topic, added: 0 }
    this.#partitions.set(key, partition)
    return partition
  }

  #moveWhole(row: StagedRow, partition: Growing): void {
    const { next: base, appendMicros: timestampMicros } = partition
    const length = Number(row.length)
    const count = Number(row.count)
    const rowId = batchRowId(partition.key, partition.nextBatch)
    const place = { rowId, base, timestampMicros, count }
    const checksum = batchChecksum({ checksum: Number(row.checksum), length }, place)
    const total = partition.written + row.length
    this.#transaction.statement(moveRow).run(rowId, base, timestampMicros, total, checksum, row.id)
    if (row.segment === null) this.#transaction.copiedBytes += length
    grow(partition, count, length)
  }

  /** Stores the records that are new; the others' bytes are of no use to anybody. */
  #moveThinned(row: StagedRow, partition: Growing, duplicates: Duplicates): BatchBody | undefined {
    const transaction = this.#transaction
    const whole = readStagedBody(transaction, row)
    if (row.segment !== null) transaction.segments.drop(transaction, row.segment, Number(row.length))
    const bytes = withoutRecords(whole, duplicates)
    if (bytes === undefined) return undefined
    const { next: base, appendMicros: timestampMicros } = partition
    const count = Number(row.count) - duplicates.size
    const rowId = batchRowId(partition.key, partition.nextBatch)
    const place = { rowId, base, timestampMicros, count }
    const checksum = batchChecksum({ checksum: bodyChecksum(bytes), length: bytes.length }, place)
    const total = partition.written + BigInt(bytes.length)
    transaction
      .statement(insertThinned)
      .run(rowId, base, count, timestampMicros, total, checksum, bytes.length, null, null, bytes)
    transaction.copiedBytes += bytes.length
    grow(partition, count, bytes.length)
    return new BatchBody(bytes.buffer, bytes.byteOffset, bytes.length)
  }
}

function grow(partition: Growing, count: number, bytes: number): void {
  partition.next += BigInt(count)
  partition.nextBatch += 1n
  partition.written += BigInt(bytes)
  partition.added += bytes
}
