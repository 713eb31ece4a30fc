/** Producer identities: given out by a counter of the store, raised by their owner, forgotten when nobody used them for a day. */
import { FencedError, type Identity, type TopicName } from "@millrace/contract"
import type { WriteCommand } from "./command.ts"
import {
  decodeRecent,
  encodeRecent,
  judge,
  type NumberedBatch,
  type ProducerState,
  remember,
  type Verdict,
} from "./producer-state.ts"
import type { Transaction } from "./transaction.ts"

/** What a partition knows of a producer that was silent for so long may be forgotten. */
const forgottenAfterMicros = 24n * 3_600_000_000n

/** How many rows one step of forgetting removes at most. */
const forgottenPerStep = 64

/** Use is written down at most this often. */
const useResolutionMicros = 3_600_000_000n

/** Arguments of `log.identify`. */
export interface Identify {
  readonly topic: TopicName
  readonly bump?: Identity
}

/** A new identity, or the next epoch of one. @throws FencedError when somebody else has raised it, NotFoundError for the topic */
export const identify: WriteCommand<Identify, Identity> = {
  mode: "write",
  name: "log.identify",
  // An identity is worth nothing before a batch of it is there, and that batch's sync covers this commit too.
  durability: () => "written",
  run(access, { topic, bump }) {
    access.topic(topic)
    const transaction = access as Transaction
    if (bump === undefined) {
      const producerId = transaction.count("nextProducer")
      access.statement("INSERT INTO producer VALUES (?, 0, ?)").run(producerId, access.nowMicros)
      return { producerId, epoch: 0 }
    }
    const known = epochOf(transaction, bump.producerId)
    if (known !== undefined && known > bump.epoch) throw fenced(bump, known)
    const epoch = bump.epoch + 1
    access
      .statement(
        "INSERT INTO producer VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, used = excluded.used",
      )
      .run(bump.producerId, epoch, access.nowMicros)
    return { producerId: bump.producerId, epoch }
  },
}

/** What a batch's producer is to the store and to the partition, before the batch. */
export interface Judged {
  readonly verdict: Verdict
  readonly known: ProducerState | undefined
  /** When the use of the identity was last written down; absent when the store has forgotten the identity. */
  readonly usedMicros: bigint | undefined
}

/** One row, whatever is known. */
const selectProducer = `SELECT p.epoch AS present, p.used AS used, s.epoch AS epoch, s.sequence AS sequence, s.recent AS recent
   FROM (SELECT 1) LEFT JOIN producer p ON p.id = ? LEFT JOIN log_state s ON s.partition = ? AND s.producer = ?`

/** What is to be done with a numbered batch for a partition. @throws FencedError when the identity was raised elsewhere */
export function judgeBatch(
  transaction: Transaction,
  key: number,
  identity: Identity & { readonly sequence: number },
  count: number,
): Judged {
  const { producerId, epoch, sequence } = identity
  const row = transaction.statement(selectProducer).get(producerId, key, producerId) as unknown as ProducerRow
  if (row.present !== null && row.present > BigInt(epoch)) throw fenced(identity, Number(row.present))
  const known =
    row.recent === null
      ? undefined
      : { epoch: Number(row.epoch), sequence: Number(row.sequence), recent: decodeRecent(row.recent) }
  return { verdict: judge(known, { epoch, sequence, count }), known, usedMicros: row.used ?? undefined }
}

interface ProducerRow {
  readonly present: bigint | null
  readonly used: bigint | null
  readonly epoch: bigint | null
  readonly sequence: bigint | null
  readonly recent: Uint8Array | null
}

/** Writes down that a batch was appended, and now and then that its producer lives. */
export function rememberBatch(
  transaction: Transaction,
  where: { readonly key: number; readonly producerId: bigint; readonly judged: Judged },
  batch: NumberedBatch & { readonly base: bigint; readonly timestampMicros: bigint },
): void {
  const { key, producerId, judged } = where
  const { nowMicros } = transaction
  const next = remember(judged.known, batch, { base: batch.base, timestampMicros: batch.timestampMicros })
  transaction
    .statement(
      `INSERT INTO log_state (partition, producer, time, epoch, sequence, recent) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (partition, producer) DO UPDATE
       SET time = excluded.time, epoch = excluded.epoch, sequence = excluded.sequence, recent = excluded.recent`,
    )
    .run(key, producerId, nowMicros, next.epoch, next.sequence, encodeRecent(next.recent))
  if (judged.usedMicros !== undefined && judged.usedMicros < nowMicros - useResolutionMicros)
    transaction.statement("UPDATE producer SET used = ? WHERE id = ?").run(nowMicros, producerId)
}

/** A purge begins a new history, in which producers go on counting where they were, and no batch of the old one is a duplicate. */
export function carryProducers(transaction: Transaction, fromKey: number, toKey: number): void {
  transaction
    .statement(
      `INSERT INTO log_state (partition, producer, time, epoch, sequence, recent)
       SELECT ?, producer, time, epoch, sequence, zeroblob(0) FROM log_state WHERE partition = ? AND producer > 0`,
    )
    .run(toKey, fromKey)
}

/** Forgets some producers that nobody used for a day. Answers whether there may be more. */
export function forgetProducers(transaction: Transaction): boolean {
  const before = transaction.nowMicros - forgottenAfterMicros
  const identities = transaction
    .statement("DELETE FROM producer WHERE id IN (SELECT id FROM producer WHERE used < ? LIMIT ?)")
    .run(before, forgottenPerStep)
  const states = transaction
    .statement(
      `DELETE FROM log_state WHERE (partition, producer) IN
       (SELECT partition, producer FROM log_state WHERE producer > 0 AND time < ? LIMIT ?)`,
    )
    .run(before, forgottenPerStep)
  return Number(identities.changes) === forgottenPerStep || Number(states.changes) === forgottenPerStep
}

/** Whether there is anything to forget. */
export function hasForgottenProducers(transaction: Transaction): boolean {
  const before = transaction.nowMicros - forgottenAfterMicros
  const found =
    transaction.statement("SELECT 1 FROM producer WHERE used < ? LIMIT 1").get(before) ??
    transaction.statement("SELECT 1 FROM log_state WHERE producer > 0 AND time < ? LIMIT 1").get(before)
  return found !== undefined
}

function epochOf(transaction: Transaction, producerId: bigint): number | undefined {
  const row = transaction.statement("SELECT epoch FROM producer WHERE id = ?").get(producerId)
  return row === undefined ? undefined : Number(row.epoch)
}

function fenced(identity: Identity, epoch: number): FencedError {
  return new FencedError(
    `producer ${identity.producerId} with epoch ${identity.epoch} was replaced: epoch ${epoch} is the present one`,
    { context: { producerId: identity.producerId, epoch: identity.epoch, present: epoch } },
  )
}
