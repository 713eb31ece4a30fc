import type { BatchMessage, Message } from "../record/message.ts"
import type { CursorResult } from "./cursor.ts"

/** What a cursor makes of the records that it reads. */
export interface CursorView<T> {
  /** @param message Decrypted. @throws DecodeError with the position for a record that is to be an error in its place */
  result(message: BatchMessage): CursorResult<T>
  /** Asked with each poll, before its records are looked at. What it fails with is the poll's failure. */
  readonly prepare?:
    | ((messages: () => readonly Message[], options: { readonly signal: AbortSignal }) => Promise<void> | undefined)
    | undefined
}
