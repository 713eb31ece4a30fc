/**
 * Stored offsets: where each named consumer and each group goes on. An offset belongs to one history of its topic; after a purge or a
 * recreation it counts as none.
 */
import {
  type Durability,
  type ErrorContext,
  type ErrorWire,
  errorToWire,
  HistoryChangedError,
  InvalidError,
  MillraceError,
  NotAssignedError,
  NotFoundError,
  type OffsetOwner,
  type Position,
  type TopicName,
  type TopicPartition,
} from "@millrace/contract"
import type { Access, ReadCommand, Room, TopicRow, WriteAccess, WriteCommand } from "./command.ts"
import { noSuchGroup, topicText } from "./group-topics.ts"
import { refuseHeld } from "./transactional-holds.ts"

/** The largest offset that a row can hold: 2^63 − 1. */
const largestOffset = (1n << 63n) - 1n

/** One partition's answer, as it crosses the thread. */
export type OffsetOutcome<T> = { readonly value: T } | { readonly error: ErrorWire }

/** One entry to forget. */
export interface OffsetKey extends TopicPartition {
  /** The token of the claim that fences the entry. */
  readonly claim?: number
}

/** One entry to store. `offset` is the next to read. */
export interface OffsetStoreEntry extends OffsetKey, Position {}

/** Arguments of `offsets.load`. */
export interface LoadOffsets {
  readonly owner: OffsetOwner
  readonly partitions: readonly TopicPartition[]
}

/** Arguments of `offsets.store`. */
export interface StoreOffsets {
  readonly owner: OffsetOwner
  readonly entries: readonly OffsetStoreEntry[]
}

/** Arguments of `offsets.delete`. */
export interface DeleteOffsets {
  readonly owner: OffsetOwner
  readonly entries: readonly OffsetKey[]
}

/** The stored next offsets, in order; `undefined` where none is stored for the present history. */
const loadOffsets: ReadCommand<LoadOffsets, OffsetOutcome<Position | undefined>[]> = {
  mode: "read",
  name: "offsets.load",
  run: (access, { owner, partitions }) =>
    partitions.map((place) =>
      outcome(() => {
        const { id, lineage } = partitionOf(access, place)
        refuseHeld(access, { owner, topicId: id, place })
        const row = access.statement(selectOffset).get(id, owner.kind, owner.name, place.partition)
        if (row === undefined || row.lineage !== lineage) return undefined
        const { stream, topic, partition } = place
        return { stream, topic, partition, offset: row.next as bigint, lineage }
      }),
    ),
}

/** Stores next offsets, also smaller ones than before. One answer an entry: a refused one leaves its neighbours alone. */
const storeOffsets: WriteCommand<StoreOffsets, OffsetOutcome<undefined>[]> = {
  mode: "write",
  name: "offsets.store",
  durability: ({ entries }, lookup) => strictest(entries, lookup),
  run: (access, { owner, entries }) =>
    entries.map((entry) =>
      outcome(() => {
        const { id: topicId } = checkStorable(access, owner, entry)
        refuseHeld(access, { owner, topicId, place: entry })
        storeOffset(access, { topicId, owner, entry })
        return undefined
      }),
    ),
}

/** Forgets offsets; one that is not there is forgotten already. */
const deleteOffsets: WriteCommand<DeleteOffsets, OffsetOutcome<undefined>[]> = {
  mode: "write",
  name: "offsets.delete",
  durability: ({ entries }, lookup) => strictest(entries, lookup),
  run: (access, { owner, entries }) =>
    entries.map((entry) =>
      outcome(() => {
        const topic = partitionOf(access, entry)
        checkClaim(access, { owner, topic, entry })
        refuseHeld(access, { owner, topicId: topic.id, place: entry })
        access.statement(deleteOffset).run(topic.id, owner.kind, owner.name, entry.partition)
        return undefined
      }),
    ),
}

/** The offsets' part of the engine. */
export const offsetRoom: Room = {
  schema: `
    -- The next offset to read, by owner and partition. A row of an older history of the topic counts as none.
    CREATE TABLE stored_offset (
      topic      INTEGER NOT NULL,
      owner_kind TEXT    NOT NULL CHECK (owner_kind IN ('consumer', 'group')),
      owner      TEXT    NOT NULL,
      partition  INTEGER NOT NULL,
      lineage    TEXT    NOT NULL,
      next       INTEGER NOT NULL,
      PRIMARY KEY (topic, owner_kind, owner, partition)
    ) STRICT, WITHOUT ROWID;
  `,
  commands: [loadOffsets, storeOffsets, deleteOffsets],
  topicPurged: forgetTopic,
  topicDeleted: forgetTopic,
}

/** The topic of an offset that its owner may store. @throws NotAssignedError, HistoryChangedError, NotFoundError, InvalidError */
export function checkStorable(access: Access, owner: OffsetOwner, entry: OffsetStoreEntry): TopicRow {
  const topic = partitionOf(access, entry)
  if (entry.lineage !== topic.lineage) throw historyChanged(owner, entry)
  checkOffset(entry)
  checkClaim(access, { owner, topic, entry })
  return topic
}

/** Writes an offset that was checked. */
export function storeOffset(
  access: WriteAccess,
  {
    topicId,
    owner,
    entry,
  }: { readonly topicId: number | bigint; readonly owner: OffsetOwner; readonly entry: OffsetStoreEntry },
): void {
  const { partition, lineage, offset } = entry
  access.statement(upsertOffset).run(topicId, owner.kind, owner.name, partition, lineage, offset)
}

/** Forgets every offset of a group, within the caller's transaction. */
export function forgetGroupOffsets(access: WriteAccess, topicId: number, group: string): void {
  access
    .statement("DELETE FROM stored_offset WHERE topic = ? AND owner_kind = 'group' AND owner = ?")
    .run(topicId, group)
}

const selectOffset =
  "SELECT next, lineage FROM stored_offset WHERE topic = ? AND owner_kind = ? AND owner = ? AND partition = ?"
const upsertOffset = `
  INSERT INTO stored_offset (topic, owner_kind, owner, partition, lineage, next) VALUES (?, ?, ?, ?, ?, ?)
  ON CONFLICT DO UPDATE SET lineage = excluded.lineage, next = excluded.next`
const deleteOffset = "DELETE FROM stored_offset WHERE topic = ? AND owner_kind = ? AND owner = ? AND partition = ?"
const selectClaim = `
  SELECT consumer_group.id AS id, claim FROM consumer_group
  LEFT JOIN group_claim ON group_claim.group_id = consumer_group.id AND group_claim.partition = ?
  WHERE consumer_group.name = ? AND consumer_group.topic = ?`

function forgetTopic(access: WriteAccess, topicId: number): void {
  access.statement("DELETE FROM stored_offset WHERE topic = ?").run(topicId)
}

/** A failure as a value, so that one entry does not spoil the others. A failure of the store itself spoils them all. */
function outcome<T>(work: () => T): OffsetOutcome<T> {
  try {
    return { value: work() }
  } catch (error) {
    if (error instanceof MillraceError) return { error: errorToWire(error) }
    throw error
  }
}

/** One entry of a topic with synced offsets makes the whole call synced. */
function strictest(entries: readonly TopicName[], lookup: (name: TopicName) => TopicRow | undefined): Durability {
  const synced = entries.some((entry) => lookup(entry)?.offsetDurability === "synced")
  return synced ? "synced" : "written"
}

function partitionOf(access: Access, place: TopicPartition): TopicRow {
  const topic = access.topic(place)
  const count = topic.partitionKeys.length
  if (place.partition >= 0 && place.partition < count) return topic
  const allowed = count === 1 ? "1 partition (0)" : `${count} partitions (0 to ${count - 1})`
  throw new NotFoundError(
    `partition ${place.partition} of ${topicText(place)} is out of range: the topic has ${allowed}`,
    { context: contextOf(place) },
  )
}

/** A named consumer's offsets are its own. A group's partition obeys its present owner, and anybody while nobody owns it. */
function checkClaim(
  access: Access,
  { owner, topic, entry }: { readonly owner: OffsetOwner; readonly topic: TopicRow; readonly entry: OffsetKey },
): void {
  if (owner.kind === "consumer") return
  const row = access.statement(selectClaim).get(entry.partition, owner.name, topic.id)
  if (row === undefined) throw noSuchGroup(owner.name, entry)
  const present = row.claim === null ? undefined : Number(row.claim)
  if (present === entry.claim) return
  const reason =
    entry.claim === undefined
      ? "a member owns it, and no claim was shown"
      : `claim ${entry.claim} is void, ${present === undefined ? "nobody owns it now" : "another member owns it now"}`
  throw new NotAssignedError(
    `partition ${entry.partition} of ${topicText(entry)} is not this member's in group ${JSON.stringify(owner.name)}: ${reason}`,
    { context: { ...contextOf(entry), group: owner.name } },
  )
}

function historyChanged(owner: OffsetOwner, entry: OffsetStoreEntry): HistoryChangedError {
  return new HistoryChangedError(
    `offset ${entry.offset} of partition ${entry.partition} of ${topicText(entry)} belongs to an earlier history: ` +
      "the topic was purged or recreated since it was read",
    { context: { ...contextOf(entry), offset: entry.offset, [owner.kind]: owner.name } },
  )
}

function checkOffset(entry: OffsetStoreEntry): void {
  if (entry.offset >= 0n && entry.offset <= largestOffset) return
  throw new InvalidError(
    `offset ${entry.offset} for partition ${entry.partition} of ${topicText(entry)} is out of range: 0 to ${largestOffset}`,
    { context: { ...contextOf(entry), offset: entry.offset } },
  )
}

function contextOf({ stream, topic, partition }: TopicPartition): ErrorContext {
  return { stream, topic, partition }
}
