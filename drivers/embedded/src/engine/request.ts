/** Requests and answers as they cross the threads. */
import type { ErrorWire } from "@millrace/contract"

/** One call of a command. The id is the caller's, and used once. */
export interface EngineRequest {
  readonly id: number
  readonly name: string
  readonly args: unknown
}

/** The answer to the request of that id. */
export type EngineReply =
  | { readonly id: number; readonly value: unknown }
  | { readonly id: number; readonly error: ErrorWire }

/** Takes answers in the order in which they are ready. Buffers in `transfer` are the receiver's from here on. */
export type Answer = (replies: readonly EngineReply[], transfer: readonly ArrayBuffer[]) => void
