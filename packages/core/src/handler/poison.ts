import { MillraceError } from "@millrace/contract"
import type { FeedLane } from "./message-feed.ts"

/**
 * The error, when it says that a record or a batch of the partition cannot be read as it is, however often it is tried: it does not
 * decode, does not decrypt, is damaged, needs a codec that is not there, or a filter with fault "stop" does not get past it. A filter that
 * cannot be applied at all (`context.reason`) is not among them: there is nothing to go past.
 */
export function poisonOf(error: unknown, { partition: place }: FeedLane): MillraceError | undefined {
  if (!(error instanceof MillraceError)) return undefined
  const { kind, context } = error
  const unreadable =
    kind === "decode" || kind === "corruption" || (kind === "unsupported" && context.offset !== undefined)
  if (!unreadable || context.reason !== undefined) return undefined
  // A failure of something else, which only came while the partition was looked at.
  if (context.partition !== undefined && context.partition !== place.partition) return undefined
  if (context.topic !== undefined && context.topic !== place.topic) return undefined
  return error
}
