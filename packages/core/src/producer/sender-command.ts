/** What the sender's machine is told, and what it says is to be done. */
import type { AppendResult, Identity, MillraceError } from "@millrace/contract"
import type { Entry, SenderBatch } from "./sender-entry.ts"

/** The identity that the partitions of a producer share. */
export interface IdentityView {
  readonly current: Identity | undefined
  /** A new one is on its way: nothing is numbered until it is there. */
  readonly isRenewing: boolean
}

export interface SenderSettings {
  /** Of one partition; above 1 only with `sequenced`. */
  readonly maxInFlight: number
  /** Whether batches carry an identity and sequence numbers, by which the backend refuses gaps and recognises resends. */
  readonly sequenced: boolean
  /** How long after its first attempt a batch that may be stored can be resent; absent: without limit. */
  readonly windowMs: number | undefined
  /**
   * When a batch that is not full may go out: `idle` as soon as nothing of its partition is under way, `due` when its owner says so.
   */
  readonly release: "idle" | "due"
  readonly retries: number
  readonly retryBackoffMs: number
  /**
   * `direct`: after failures that may pass, with waits that double. `background`: after any failure that leaves no doubt, at once,
   * then with equal waits (seed 000, "Direct producer").
   */
  readonly resends: "direct" | "background"
  /** An attempt without an answer for this long has the outcome `unknown`. */
  readonly attemptTimeoutMs: number
  readonly onUnknown: "resend" | "fail"
  /**
   * What becomes of a batch that may be stored when its resend could not be recognised: `fail` (the default), or out again all the same,
   * which may store it twice.
   */
  readonly onExpired?: "resend" | "fail" | undefined
}

export type SenderEvent<B extends SenderBatch> =
  | { readonly kind: "appended"; readonly entry: Entry<B>; readonly result: AppendResult; readonly nowMs: number }
  | {
      readonly kind: "failed"
      readonly entry: Entry<B>
      readonly attempt: number
      readonly error: MillraceError
      readonly nowMs: number
    }
  | { readonly kind: "identified"; readonly identity: Identity; readonly nowMs: number }
  | { readonly kind: "unidentified"; readonly error: MillraceError; readonly nowMs: number }
  | { readonly kind: "timer"; readonly nowMs: number }
  /** The topic is another one now: nothing goes out any more, and what has not settled is handed back. */
  | { readonly kind: "retire"; readonly nowMs: number }
  /** Everything that has not settled fails, what is in flight with outcome `unknown`. */
  | { readonly kind: "abort"; readonly error: MillraceError; readonly nowMs: number }

export type SenderCommand<B extends SenderBatch> =
  | {
      readonly kind: "append"
      readonly entry: Entry<B>
      readonly attempt: number
      readonly identity: (Identity & { readonly sequence: number }) | undefined
    }
  | { readonly kind: "confirm"; readonly batch: B; readonly result: AppendResult; readonly resent: boolean }
  | { readonly kind: "fail"; readonly batch: B; readonly error: MillraceError }
  /** The owner answers with `replace` before it does anything else. */
  | { readonly kind: "split"; readonly entry: Entry<B> }
  /** Absent: the first identity. `renew`: the one that must not be used any more, by its next epoch or a fresh one. */
  | { readonly kind: "identify"; readonly renew: { readonly identity: Identity; readonly fenced: boolean } | undefined }
  /**
   * The end of this machine: the topic is another one now. Batches in order, none of them stored in the new one; `unknown`: those that
   * may be stored all the same where it turns out to be the old one.
   */
  | {
      readonly kind: "handBack"
      readonly batches: readonly B[]
      readonly unknown: readonly B[]
      readonly error: MillraceError | undefined
    }
