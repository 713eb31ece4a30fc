/** Offsets that are stored with a transaction's commit, if those who read them still own their partitions then. */
import type { OffsetOwner } from "@millrace/contract"
import type { Access, WriteAccess, WriteCommand } from "./command.ts"
import { checkStorable, type OffsetStoreEntry, storeOffset } from "./offsets.ts"
import { refuseOverdue } from "./staged-append.ts"
import { refuseHeld } from "./transactional-holds.ts"
import { requireOpen, type TransactionalRow, type TransactionRef } from "./transactional-id.ts"

/** Arguments of `transactions.enlist`. */
export interface EnlistOffsets {
  readonly transaction: TransactionRef
  readonly owner: OffsetOwner
  readonly entries: readonly OffsetStoreEntry[]
}

/** What the enlisted offsets want of the commit. */
export interface Enlisted {
  /** Whether an offset of a topic with synced offsets is among them. */
  readonly synced: boolean
}

/** All of the entries, or none. @throws NotAssignedError, HistoryChangedError, NotFoundError, and as `log.stage` */
export const enlistOffsets: WriteCommand<EnlistOffsets, Enlisted> = {
  mode: "write",
  name: "transactions.enlist",
  durability: () => "written",
  run(access, { transaction, owner, entries }) {
    const row = requireOpen(access, transaction, "take offsets")
    refuseOverdue(access, row)
    const upsert = access.statement(upsertStaged)
    let synced = false
    for (const entry of entries) {
      const topic = checkStorable(access, owner, entry)
      refuseHeld(access, { owner, topicId: topic.id, place: entry })
      if (topic.offsetDurability === "synced") synced = true
      upsert.run(
        row.key,
        topic.id,
        owner.kind,
        owner.name,
        entry.partition,
        entry.stream,
        entry.topic,
        entry.lineage,
        entry.offset,
        entry.claim ?? null,
      )
    }
    return { synced }
  },
}

const upsertStaged = `
  INSERT INTO staged_offset VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT DO UPDATE SET lineage = excluded.lineage, next = excluded.next, claim = excluded.claim`

interface StagedOffset {
  readonly topicId: bigint
  readonly owner: OffsetOwner
  readonly entry: OffsetStoreEntry
}

/** @throws NotAssignedError, HistoryChangedError, NotFoundError when one of the offsets may not be stored any more */
export function checkStagedOffsets(access: Access, row: TransactionalRow): void {
  for (const { topicId, owner, entry } of stagedOffsets(access, row)) {
    // A lineage names its topic, so one that was created again is refused, too.
    checkStorable(access, owner, entry)
    refuseHeld(access, { owner, topicId: Number(topicId), place: entry })
  }
}

/** Stores the offsets of a transaction that commits, whatever the claims say by now. */
export function storeStagedOffsets(access: WriteAccess, row: TransactionalRow): void {
  for (const { topicId, owner, entry } of stagedOffsets(access, row)) storeOffset(access, { topicId, owner, entry })
}

function stagedOffsets(access: Access, { key }: TransactionalRow): StagedOffset[] {
  return access
    .statement("SELECT * FROM staged_offset WHERE key = ?")
    .all(key)
    .map((row) => ({
      topicId: row.topic as bigint,
      owner: { kind: row.owner_kind, name: row.owner } as OffsetOwner,
      entry: {
        stream: row.stream as string,
        topic: row.name as string,
        partition: Number(row.partition),
        offset: row.next as bigint,
        lineage: row.lineage as string,
        ...(row.claim === null ? {} : { claim: Number(row.claim) }),
      },
    }))
}
