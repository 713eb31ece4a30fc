/** Appending one batch: judged, deduplicated, given its offsets and its time, and put into the store. */
import {
  type AppendResult,
  type Durability,
  FencedError,
  type Identity,
  NotFoundError,
  SequenceError,
  type TopicName,
} from "@millrace/contract"
import { BatchBody } from "../batch/batch-body.ts"
import { bodyChecksum } from "../batch/checksum.ts"
import { insertBatch } from "./batch-store.ts"
import { topicText } from "./catalog-cache.ts"
import type { TopicRow, WriteCommand } from "./command.ts"
import { type Duplicates, findDuplicates, rememberIds } from "./deduplicate.ts"
import { findPartition, notBefore, type PartitionState, readPartition } from "./partition-state.ts"
import { judgeBatch, rememberBatch } from "./producers.ts"
import { noteGrowth } from "./retention.ts"
import { withoutRecords } from "./thin-batch.ts"
import type { Transaction } from "./transaction.ts"

/** Arguments of `log.append`. The bytes lie in memory that both threads see and stay unchanged until the answer. */
export interface Append {
  readonly topic: TopicName
  readonly lineage: string
  readonly partition: number
  readonly durability: Durability
  readonly slab: ArrayBufferLike
  readonly bytes: number
  /** Of the bytes, as `bodyChecksum` has it. */
  readonly checksum: number
  readonly resend: boolean
  readonly identity?: Identity & { readonly sequence: number }
}

/** @throws FencedError, SequenceError, NotFoundError; a resend that is recognised is answered like the first time */
export const append: WriteCommand<Append, AppendResult> = {
  mode: "write",
  name: "log.append",
  checksFirst: true,
  durability: ({ durability }) => durability,
  incoming: ({ topic, bytes }) => ({ topic, bytes }),
  run: (access, args) => appendBatch(access as Transaction, args),
}

function appendBatch(transaction: Transaction, args: Append): AppendResult {
  const { topic, state } = findPlace(transaction, args)
  const { key } = state
  const given = new BatchBody(args.slab, 0, args.bytes)
  const { identity } = args
  const judged = identity && judgeBatch(transaction, key, identity, given.count)
  if (judged?.verdict.kind === "fenced") throw fenced(args, judged.verdict.epoch)
  if (judged?.verdict.kind === "gap") throw gap(topic, args, judged.verdict.expected)
  if (judged?.verdict.kind === "duplicate") {
    const { base, timestampMicros } = judged.verdict.of
    return { base, contiguous: true, duplicates: given.count, timestampMicros }
  }
  const query = { topic, state, body: given, resend: args.resend }
  const duplicates = findDuplicates(transaction, query)
  const timestampMicros = notBefore(state.timeMicros, transaction.nowMicros)
  const whole = new Uint8Array(args.slab, 0, args.bytes)
  const kept = duplicates.size === 0 ? whole : withoutRecords(given, duplicates)
  if (identity && judged) {
    const numbered = { epoch: identity.epoch, sequence: identity.sequence, count: given.count }
    const where = { key, producerId: identity.producerId, judged }
    rememberBatch(transaction, where, { ...numbered, base: firstOffset(state, duplicates), timestampMicros })
  }
  if (kept === undefined) return allDuplicates(duplicates, given.count)
  const body = duplicates.size === 0 ? given : new BatchBody(kept.buffer, kept.byteOffset, kept.length)
  const checksum = duplicates.size === 0 ? args.checksum : bodyChecksum(kept)
  store(transaction, { topic, state, body, bytes: kept, checksum, timestampMicros })
  rememberIds(
    transaction,
    { ...query, body },
    { number: state.nextBatch, base: state.next, timestampMicros, thinned: duplicates.size > 0 },
  )
  if (duplicates.size > 0) return { contiguous: false, duplicates: duplicates.size, timestampMicros }
  return { base: state.next, contiguous: true, duplicates: 0, timestampMicros }
}

interface Placed {
  readonly topic: TopicRow
  readonly state: PartitionState
  readonly body: BatchBody
  readonly bytes: Uint8Array
  readonly checksum: number
  readonly timestampMicros: bigint
}

function store(transaction: Transaction, { topic, state, body, bytes, checksum, timestampMicros }: Placed): void {
  const place = transaction.segments.place(transaction, topic, bytes)
  const total = state.written + BigInt(bytes.length)
  insertBatch(transaction, {
    key: state.key,
    number: state.nextBatch,
    base: state.next,
    timestampMicros,
    total,
    count: body.count,
    body: bytes,
    checksum,
    place,
  })
  transaction
    .statement(
      "UPDATE log_state SET next = ?, next_batch = next_batch + 1, written = ?, time = ? WHERE partition = ? AND producer = 0",
    )
    .run(state.next + BigInt(body.count), total, timestampMicros, state.key)
  transaction.appended.add(state.key)
  transaction.changed("appends")
  noteGrowth(transaction, topic, bytes.length)
}

interface Place {
  readonly topic: TopicRow
  readonly state: PartitionState
}

/** Where a batch goes. The catalog is asked only when what was last known of the topic does not hold. */
function findPlace(transaction: Transaction, args: Append): Place {
  const known = transaction.lastKnown(args.topic)
  const knownKey = known.partitionKeys[args.partition]
  const state = knownKey === undefined ? undefined : findPartition(transaction, knownKey)
  if (state !== undefined && isSameTopic(known, args.lineage)) return { topic: known, state }
  const topic = transaction.topic(args.topic)
  if (!isSameTopic(topic, args.lineage)) throw createdAgain(args.topic)
  const key = topic.partitionKeys[args.partition]
  if (key === undefined) throw noPartition(topic, args.partition)
  return { topic, state: readPartition(transaction, key) }
}

/** Whether a lineage is one of this topic's: a purged topic is the same one, in a new history. */
export function isSameTopic(topic: TopicRow, lineage: string): boolean {
  return topic.lineage === lineage || topic.lineage.split(".")[0] === lineage.split(".")[0]
}

/** The error for a batch whose topic is another one by now. */
export function createdAgain({ stream, topic }: TopicName): NotFoundError {
  return new NotFoundError(
    `topic ${topicText({ stream, topic })} was deleted and created again since the batch was made for it`,
    { context: { stream, topic } },
  )
}

/** Where record 0 of the batch stands, for a resend that is recognised by its sequence. */
function firstOffset(state: PartitionState, duplicates: Duplicates): bigint {
  return duplicates.get(0) ?? state.next
}

function allDuplicates(duplicates: Duplicates, count: number): AppendResult {
  const base = duplicates.get(0) as bigint
  for (const [index, offset] of duplicates)
    if (offset !== base + BigInt(index)) return { contiguous: false, duplicates: count }
  return { base, contiguous: true, duplicates: count }
}

/** The error for a partition that a topic does not have. */
export function noPartition(topic: TopicRow, partition: number): NotFoundError {
  const count = topic.partitionKeys.length
  return new NotFoundError(
    `partition ${partition} of topic ${topicText(topic)} is out of range: the topic has ${count} partitions (0 to ${count - 1})`,
    { context: { stream: topic.stream, topic: topic.topic, partition } },
  )
}

function fenced({ identity }: Append, epoch: number): FencedError {
  return new FencedError(
    `producer ${identity?.producerId} with epoch ${identity?.epoch} was replaced: the partition has seen epoch ${epoch}`,
    { context: { producerId: identity?.producerId, epoch: identity?.epoch, present: epoch } },
  )
}

function gap(topic: TopicRow, { identity, partition }: Append, expected: number): SequenceError {
  return new SequenceError(
    `sequence ${identity?.sequence} of producer ${identity?.producerId} does not continue partition ${partition} of topic ${topicText(topic)}: ${expected} is next`,
    {
      context: { stream: topic.stream, topic: topic.topic, partition, sequence: identity?.sequence, expected },
    },
  )
}
