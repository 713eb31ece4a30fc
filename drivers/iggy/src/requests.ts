/** What the facets of a session ask a connection for. */
import { MillraceError } from "@millrace/contract"
import type { Command } from "./codec/command.ts"
import { errorCodes } from "./codec/server-error.ts"
import type { WireVersion } from "./wire/version.ts"

export interface Requests {
  /** The wire that is spoken. */
  readonly version: WireVersion
  /** @throws MillraceError; what the server refused has its number in `context.code` */
  request<Q, S>(command: Command<Q, S>, query: Q): Promise<S>
  /** @throws ClosedError once the connection was closed for good */
  assertOpen(): void
}

/** Numbers of the server's refusals that a facet gives a meaning of its own (iggy-wire.md: Refusals). */
export const code: typeof errorCodes & { readonly streamExists: 1012; readonly topicExists: 2013 } = {
  ...errorCodes,
  streamExists: 1012,
  topicExists: 2013,
}

/** Whether the server refused with one of these numbers. */
export function refusedWith(error: unknown, ...codes: readonly number[]): error is MillraceError {
  return error instanceof MillraceError && codes.includes(error.context.code as number)
}
