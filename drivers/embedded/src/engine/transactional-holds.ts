/**
 * Offsets that a prepared transaction holds. Before it ended nobody can know whether they are stored: whoever loaded the older one would
 * process again what the transaction may already have done (Kafka answers UNSTABLE_OFFSET_COMMIT).
 */
import { type OffsetOwner, type TopicPartition, TransactionStateError } from "@millrace/contract"
import type { Access, WriteAccess } from "./command.ts"
import { topicText } from "./group-topics.ts"
import { type TransactionalRow, tokenOf } from "./transactional-id.ts"

/** The table of offsets that are held, in a form that costs those who ask a look into an empty table. */
export const holdsSchema: string = `
  CREATE TABLE held_offset (
    topic      INTEGER NOT NULL,
    owner_kind TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    partition  INTEGER NOT NULL,
    key        INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    token      TEXT    NOT NULL,
    prepared   INTEGER NOT NULL,
    PRIMARY KEY (topic, owner_kind, owner, partition)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX held_offset_by_key ON held_offset (key);
`

/** @throws TransactionStateError, retryable, when a prepared transaction holds the offset; it says how to end it */
export function refuseHeld(
  access: Access,
  { owner, topicId, place }: { readonly owner: OffsetOwner; readonly topicId: number; readonly place: TopicPartition },
): void {
  const held = access
    .statement(
      "SELECT name, token, prepared FROM held_offset WHERE topic = ? AND owner_kind = ? AND owner = ? AND partition = ?",
    )
    .get(topicId, owner.kind, owner.name, place.partition)
  if (held === undefined) return
  const what = `the offset of ${owner.kind} ${JSON.stringify(owner.name)} for partition ${place.partition} of ${topicText(place)}`
  throw heldError(access, what, held)
}

/** @throws TransactionStateError, retryable, when a prepared transaction holds an offset of the group */
export function refuseHeldGroup(access: Access, topicId: number, group: string): void {
  const held = access
    .statement(
      "SELECT name, token, prepared FROM held_offset WHERE topic = ? AND owner_kind = 'group' AND owner = ? LIMIT 1",
    )
    .get(topicId, group)
  if (held !== undefined) throw heldError(access, `an offset of group ${JSON.stringify(group)}`, held)
}

/** From here on the offsets of a transaction are held. @throws TransactionStateError when another one holds one of them */
export function hold(access: WriteAccess, row: TransactionalRow): void {
  const offsets = access
    .statement("SELECT topic, owner_kind, owner, partition, stream, name FROM staged_offset WHERE key = ?")
    .all(row.key)
  const insert = access.statement("INSERT INTO held_offset VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
  for (const { topic, owner_kind: kind, owner: name, partition, stream, name: topicName } of offsets) {
    const owner = { kind, name } as OffsetOwner
    const place = { stream: stream as string, topic: topicName as string, partition: Number(partition) }
    refuseHeld(access, { owner, topicId: Number(topic), place })
    insert.run(
      topic as bigint,
      owner.kind,
      owner.name,
      place.partition,
      row.key,
      row.name,
      tokenOf(row),
      access.nowMicros,
    )
  }
}

/** A transaction has ended. */
export function letGo(access: WriteAccess, key: bigint): void {
  access.statement("DELETE FROM held_offset WHERE key = ?").run(key)
}

/** A topic was purged or deleted, and its offsets with it: there is nothing to hold, and nothing to store at the end. */
export function forgetHolds(access: WriteAccess, topicId: number): void {
  access
    .statement("DELETE FROM staged_offset WHERE topic = ? AND key IN (SELECT key FROM held_offset WHERE topic = ?)")
    .run(topicId, topicId)
  access.statement("DELETE FROM held_offset WHERE topic = ?").run(topicId)
}

function heldError(access: Access, what: string, held: Readonly<Record<string, unknown>>): TransactionStateError {
  const { name, token } = held as { name: string; token: string }
  const ageMs = Math.max(0, Number(access.nowMicros - (held.prepared as bigint)) / 1000)
  return new TransactionStateError(
    `${what} is held by the transaction ${token} of ${JSON.stringify(name)}, which was prepared ${Math.round(ageMs)} ms ago: ` +
      "it can be used once that was completed (init with keepPrepared, then complete with the token to commit, or with another to abort)",
    { retryable: true, context: { transactionalId: name, token, ageMs } },
  )
}
