import { InvalidError } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { shown } from "../client/options.ts"
import type { Codec } from "../codec/codec.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import { type DeadLetterPolicy, isDeadLetterPolicy } from "../handler/dead-letter.ts"
import { checkRoom } from "../handler/run-handler.ts"
import type { CommitPolicy } from "../progress/commit-policy.ts"
import { RecordDecoder } from "./record-decoder.ts"

/**
 * What a typed consumer does about a record that does not decode.
 *
 * - `"stop"` (default): its `TypedDecodeError` is thrown in its place. It is not handled by that: the next read goes past it, and so does
 *   `seek(partition, "skip")`. In `run` it is a failure of the message, without any attempt: `onFailure` decides.
 * - `"skip"`: it counts as handled, the event `skipped` tells of it, and `decodeFailures.skipped` counts it.
 * - `"deliver-raw"`: it is a message of kind `raw`, whose value is its bytes.
 * - what `deadLetter(topic)` gives: it is sent there, with its bytes and with headers that say why. Once that is confirmed it counts as
 *   handled. Its partition waits for that; what keeps it from being sent is thrown, and the next read tries again.
 *
 * A record that does not decrypt is told, skipped or sent (as it is stored) in the same way; as `raw` nobody gets it: it is told.
 */
export type OnDecodeError = "stop" | "skip" | "deliver-raw" | DeadLetterPolicy

/** How a consumer makes values of its records. */
export interface Decoding {
  readonly decoder: RecordDecoder
  readonly onDecodeError: OnDecodeError
}

/** How many records of a typed consumer did not decode or decrypt, since it was made, by what became of them. */
export interface DecodeFailures {
  /** Told to the caller, or to a run and its `onFailure`; again each time that the same record is read again. */
  readonly told: number
  readonly skipped: number
  readonly deliveredRaw: number
  /** Confirmed by the dead-letter topic, or passed over after an earlier such confirmation. */
  readonly deadLettered: number
}

/** @throws InvalidError for an option that is none of those */
export function decodingOf(what: string, codec: Codec<unknown>, onDecodeError: OnDecodeError = "stop"): Decoding {
  if (!isOnDecodeError(onDecodeError)) {
    throw new InvalidError(
      `${what}: option "onDecodeError" is ${shown(onDecodeError)}; it must be "stop", "skip", "deliver-raw" or what deadLetter(topic) gives`,
    )
  }
  return { decoder: new RecordDecoder(codec, { deliversRaw: onDecodeError === "deliver-raw" }), onDecodeError }
}

/**
 * @throws InvalidError for dead letters of records that are stored as read before anybody has looked at them, and for an encryption that
 *   has no room for what a dead letter says of itself
 */
export function checkDecoding(
  what: string,
  settings: {
    readonly decoding?: Decoding | undefined
    readonly commitPolicy: CommitPolicy
    readonly encryptor: Encryptor | false | undefined
  },
  context: ClientContext,
): void {
  const policy = settings.decoding?.onDecodeError
  if (policy === undefined || typeof policy === "string") return
  if (settings.commitPolicy.kind === "onRead") {
    throw new InvalidError(
      `${what}: onDecodeError deadLetter(topic) is not possible with commitPolicy "onRead": what is read is stored before its dead letter could be. Use another policy, or onDecodeError "stop"`,
    )
  }
  checkRoom(what, policy.encryptor ?? settings.encryptor ?? context.encryptor)
}

function isOnDecodeError(value: unknown): value is OnDecodeError {
  return value === "stop" || value === "skip" || value === "deliver-raw" || isDeadLetterPolicy(value)
}
