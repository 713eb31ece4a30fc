import type { BatchStamp, Identity, Lineage } from "@millrace/contract"
import type { SendableRecord } from "../record/outgoing-record.ts"
import type { PendingBatch } from "./pending-batch.ts"

/** The number that a batch goes out under. */
export type BatchNumber = Identity & { readonly sequence: number }

/**
 * Where it is written down what goes out, before it does, so that a later process can send the same batches again. Absent where nobody
 * will.
 */
export interface BatchJournal {
  /**
   * A batch is sealed and about to go out, for the first time under this number. It goes when this has settled, and fails when this
   * rejects; `undefined`: it was written down before.
   */
  dispatching(
    batch: PendingBatch,
    under: { readonly lineage: Lineage; readonly identity: BatchNumber | undefined },
  ): Promise<void> | undefined
  /** The backend has it. */
  settled(batch: PendingBatch): void
  /** It will not go out as it was written down, and the backend does not have it as such. */
  voided(batch: PendingBatch): void
}

/** A batch of an earlier process, as that wrote it down. */
export interface RestoredBatch {
  readonly ordinal: number
  readonly lineage: Lineage
  readonly partition: number
  readonly identity: BatchNumber | undefined
  readonly id: BatchStamp["id"]
  readonly timestampMicros: bigint
  readonly resend: boolean
  readonly isMoved: boolean
  readonly skipped: number
  readonly records: readonly SendableRecord[]
  /** How long ago its first attempt was, by the wall clock. */
  readonly ageMs: number
}

/**
 * What became of it: on its way again; or not, since its topic is another one now (`replaced`), or since the backend could not tell it
 * from a new one (`expired`).
 */
export type Restoration = "restored" | "replaced" | "expired"
