/** What the main thread and the worker say to each other. */
import type { ErrorWire } from "@millrace/contract"
import type { EngineReply, EngineRequest } from "./engine/request.ts"

/** What a worker is started with. */
export interface WorkerStart {
  /** The store's directory. */
  readonly path: string
  /** False: nothing is ever synced. */
  readonly sync: boolean
}

/** Requests are answered in any order; `close` ends the worker after what was sent before it. */
export type ToWorker =
  | { readonly kind: "requests"; readonly requests: readonly EngineRequest[] }
  | { readonly kind: "cancel"; readonly id: number }
  | { readonly kind: "close" }

/** First `open` or `failed`, then replies, at last `closed`. */
export type FromWorker =
  | { readonly kind: "open"; readonly directory: string }
  | { readonly kind: "failed"; readonly error: ErrorWire }
  | { readonly kind: "replies"; readonly replies: readonly EngineReply[] }
  | { readonly kind: "closed"; readonly error?: ErrorWire }
