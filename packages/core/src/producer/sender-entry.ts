/** A batch as the sender's machine keeps it. */
import type { Identity, MillraceError } from "@millrace/contract"
import { mayHaveHappened } from "../client/attempts.ts"

/** What the machine has to know of a batch. It never looks inside. */
export interface SenderBatch {
  /** Records. Final once the batch was dispatched. */
  readonly count: number
  /** Nothing joins it any more. */
  readonly full: boolean
  /** One that lingers for more records goes out, full or not. */
  readonly due: boolean
  /** `held`: waits for another batch and lets nobody pass. `dropped`: must not go out any more. */
  readonly gate: "open" | "held" | "dropped"
}

/** One batch on its way. The owner keeps it as a token between a command and the event that answers it. */
export interface Entry<B extends SenderBatch> {
  readonly batch: B
  state: "queued" | "inFlight" | "failed" | "settled"
  /** Which attempt this is, from 1; older answers of failed kind are ignored. */
  attempt: number
  /** Of record 0; −1: not numbered. */
  sequence: number
  /** Counts the batches of the partition that were numbered. */
  ordinal: number
  resends: number
  renumberings: number
  /** It may be stored: an attempt ended without an answer, or a batch behind it was stored on a backend that refuses gaps. */
  unknown: boolean
  /** What it was numbered under, when that was another process's. */
  identity: Identity | undefined
  /** It goes out again although it may be stored and cannot be recognised. */
  doubtful: boolean
  /** It has done so at least once: whatever ends it, an earlier attempt may have stored it. */
  wasDoubtful: boolean
  firstSentMs: number
  deadlineMs: number
  error: MillraceError | undefined
}

export function newEntry<B extends SenderBatch>(batch: B): Entry<B> {
  return {
    batch,
    state: "queued",
    attempt: 0,
    sequence: -1,
    ordinal: -1,
    resends: 0,
    renumberings: 0,
    unknown: false,
    identity: undefined,
    doubtful: false,
    wasDoubtful: false,
    firstSentMs: 0,
    deadlineMs: 0,
    error: undefined,
  }
}

/** The error as it ends the batch: once an attempt ended in the dark, the last one's refusal does not make it light. */
export function truthful<B extends SenderBatch>(entry: Entry<B>, error: MillraceError): MillraceError {
  return entry.unknown || entry.wasDoubtful ? doubted(error) : error
}

/** The error of records that an earlier attempt may have stored. */
export function doubted(error: MillraceError): MillraceError {
  return mayHaveHappened(error, "stored the records")
}
