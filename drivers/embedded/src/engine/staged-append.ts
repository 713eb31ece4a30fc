/** Staging one batch: it is written outside of the log, and its transaction's commit gives it its place there. */
import {
  type AppendResult,
  FencedError,
  type Identity,
  InvalidError,
  NotFoundError,
  SequenceError,
} from "@millrace/contract"
import { BatchBody } from "../batch/batch-body.ts"
import { type Append, createdAgain, isSameTopic, noPartition } from "./append.ts"
import { topicText } from "./catalog-cache.ts"
import type { Access, TopicRow, WriteCommand } from "./command.ts"
import { idBytes } from "./deduplicate.ts"
import { decodeRecent, encodeRecent, judge, type ProducerState, remember } from "./producer-state.ts"
import type { Transaction } from "./transaction.ts"
import { aborted, requireOpen, type TransactionalRow, type TransactionRef, timeOutText } from "./transactional-id.ts"
import { batchesPerTransaction } from "./transactional-schema.ts"

/** What a commit copies from row to row at most; more than that is staged in segments, where it only changes hands. */
const mostInlineBytes = 4 << 20

/** Bits of `flags`. */
export const stagedFlags: { readonly ownIds: 1; readonly resend: 2 } = { ownIds: 1, resend: 2 }

/** Arguments of `log.stage`. */
export interface Stage extends Append {
  readonly transaction: TransactionRef
}

/**
 * The answer says that the batch was accepted; its offsets come with the commit.
 * @throws FencedError, TransactionAbortedError, TransactionStateError, SequenceError, NotFoundError
 */
export const stage: WriteCommand<Stage, AppendResult> = {
  mode: "write",
  name: "log.stage",
  checksFirst: true,
  // What is staged is worth nothing before the commit, and that one's sync covers it too.
  durability: () => "written",
  incoming: ({ topic, bytes }) => ({ topic, bytes }),
  run: (access, args) => stageBatch(access as Transaction, args),
}

function stageBatch(transaction: Transaction, args: Stage): AppendResult {
  const row = requireOpen(transaction, args.transaction, "take a batch")
  refuseOverdue(transaction, row)
  const topic = transaction.topic(args.topic)
  if (!isSameTopic(topic, args.lineage)) throw createdAgain(args.topic)
  if (topic.partitionKeys[args.partition] === undefined) throw noPartition(topic, args.partition)
  const body = new BatchBody(args.slab, 0, args.bytes)
  const numbered = numberOf(transaction, { row, topic, args, count: body.count })
  if (numbered === "duplicate") return { contiguous: false, duplicates: body.count }
  const id = nextId(transaction, row)
  const bytes = new Uint8Array(args.slab, 0, args.bytes)
  const { transactional } = transaction
  const full = transactional.inlineBytes(row.key) + bytes.length > mostInlineBytes
  const place = transaction.segments.placeStaged(transaction, topic, { body: bytes, always: full })
  if (place === undefined) transactional.addInlineBytes(row.key, bytes.length)
  transaction
    .statement("INSERT INTO staged_batch VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
    .run(
      id,
      topic.id,
      args.partition,
      body.count,
      bytes.length,
      args.checksum,
      idBytes(body.batchId),
      (body.hasOwnIds ? stagedFlags.ownIds : 0) | (args.resend ? stagedFlags.resend : 0),
      place?.segment ?? null,
      place?.position ?? null,
      place === undefined ? bytes : null,
    )
  const { stream, topic: name } = topic
  transaction
    .statement(
      `INSERT INTO staged_place VALUES (?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT DO UPDATE SET sequence = excluded.sequence, recent = excluded.recent`,
    )
    .run(row.key, topic.id, args.partition, stream, name, numbered?.sequence ?? 0, encodeRecent(numbered?.recent ?? []))
  return { contiguous: false, duplicates: 0 }
}

/** @throws TransactionAbortedError when the time of an open transaction is over; whoever tidies up aborts it */
export function refuseOverdue(access: Access, row: TransactionalRow): void {
  const { transactional, monotonicMs } = access as Transaction
  if (row.timeoutMs < transactional.openMs(row.key, monotonicMs)) throw aborted(row, timeOutText(row))
}

/** What the transaction knows of the batch's sequence, or that it has the batch already. Sequences begin at 0 in each transaction. */
function numberOf(
  transaction: Transaction,
  {
    row,
    topic,
    args,
    count,
  }: { readonly row: TransactionalRow; readonly topic: TopicRow; readonly args: Stage; readonly count: number },
): ProducerState | "duplicate" | undefined {
  const { identity } = args
  if (identity === undefined) return undefined
  if (identity.producerId !== row.producerId || identity.epoch !== row.epoch) throw otherIdentity(row, identity)
  const { epoch, sequence } = identity
  const found = transaction
    .statement("SELECT sequence, recent FROM staged_place WHERE key = ? AND topic = ? AND partition = ?")
    .get(row.key, topic.id, args.partition)
  const known =
    found === undefined
      ? undefined
      : { epoch, sequence: Number(found.sequence), recent: decodeRecent(found.recent as Uint8Array) }
  const verdict = judge(known, { epoch, sequence, count })
  if (verdict.kind === "duplicate") return "duplicate"
  if (verdict.kind !== "append") {
    const expected = known?.sequence ?? 0
    throw new SequenceError(
      `sequence ${sequence} of producer ${identity.producerId} does not continue partition ${args.partition} of topic ${topicText(topic)} in this transaction: ${expected} is next`,
      { context: { stream: topic.stream, topic: topic.topic, partition: args.partition, sequence, expected } },
    )
  }
  return remember(known, { epoch, sequence, count }, { base: 0n, timestampMicros: 0n })
}

function nextId(transaction: Transaction, { key, name }: TransactionalRow): bigint {
  const low = key * batchesPerTransaction
  const high = low + batchesPerTransaction - 1n
  const last = transaction.statement("SELECT max(id) AS id FROM staged_batch WHERE id BETWEEN ? AND ?").get(low, high)
    ?.id as bigint | null
  if (last === null) return low
  if (last < high) return last + 1n
  throw new InvalidError(
    `the transaction of ${JSON.stringify(name)} has ${batchesPerTransaction} batches, which is the most that one can have`,
    { context: { transactionalId: name, limit: batchesPerTransaction } },
  )
}

function otherIdentity(row: TransactionalRow, { producerId, epoch }: Identity): FencedError {
  return new FencedError(
    `producer ${producerId} with epoch ${epoch} is not the one of this transaction of ${JSON.stringify(row.name)}: producer ${row.producerId} with epoch ${row.epoch} is`,
    { context: { transactionalId: row.name, producerId, epoch, present: row.epoch } },
  )
}

/** The error for a topic that was deleted while a transaction had records for it. */
export function topicGone(row: TransactionalRow, { stream, topic }: { stream: string; topic: string }): NotFoundError {
  return new NotFoundError(
    `topic ${topicText({ stream, topic })}, for which the transaction of ${JSON.stringify(row.name)} has records, was deleted`,
    { context: { transactionalId: row.name, stream, topic } },
  )
}
