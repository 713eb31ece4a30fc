import type { Manifest } from "@millrace/contract"
import { OptionReader } from "../client/options.ts"
import type { GroupConsumerOptions } from "../consumer/consumer-options.ts"
import type { StartAt } from "../partition/start-at.ts"

/** Options of `topic.consumerGroup(name).reader` (table 1.13): those of the pages, and what a group's consumer takes too. */
export interface GroupReaderOptions
  extends Pick<
    GroupConsumerOptions,
    | "createGroup"
    | "memberId"
    | "sessionTimeoutMs"
    | "rebalanceTimeoutMs"
    | "revokeTimeoutMs"
    | "onOutOfRange"
    | "onMissing"
    | "readUncommitted"
    | "encryptor"
    | "applyFilter"
  > {
  /** The most messages of one page, from 1 to 1000. Default 100. */
  readonly count?: number
  /** The most offsets that one page covers, selected or not, from its first message on. Default: no such limit. */
  readonly maxExamined?: number
  /** The most bytes of one page, keys and payloads; a first message above it comes alone. Default 1 MiB. */
  readonly maxBytes?: number
  /** How long `poll` waits for a page, in ms. Default 250. */
  readonly idleMs?: number
  /** How many pages may be handed out and not acknowledged in full. Default 1024. */
  readonly unackedPages?: number
  /** Where reading begins while nothing is stored. Default `{ kind: "next" }`. */
  readonly startAt?: StartAt
}

/** What the pages are like, after the checks. */
export interface PageSettings {
  readonly count: number
  readonly maxExamined: number
  readonly maxBytes: number
  readonly idleMs: number
  readonly unackedPages: number
}

const pageKeys = ["count", "maxExamined", "maxBytes", "idleMs", "unackedPages"] as const
const consumerKeys = [
  "startAt",
  "createGroup",
  "memberId",
  "sessionTimeoutMs",
  "rebalanceTimeoutMs",
  "revokeTimeoutMs",
  "onOutOfRange",
  "onMissing",
  "readUncommitted",
  "encryptor",
  "applyFilter",
] as const

const largestCount = 1000
const mebibyte = 1_048_576

/** Progress over records of which none was selected is stored at the latest so long after they were read, and a poll that finds none tells after so long how far it came, in ms. */
const scannedMs = 1000

/**
 * The pages' settings, and the options of the consumer underneath: nothing counts as handled but what is acknowledged.
 * @throws InvalidError for an option that does not exist or is out of range
 */
export function groupReaderSettings(
  what: string,
  options: GroupReaderOptions | undefined,
  limits: Manifest["limits"],
): { readonly pages: PageSettings; readonly consumer: GroupConsumerOptions } {
  const read = new OptionReader<GroupReaderOptions>(what, options, [...pageKeys, ...consumerKeys])
  const pages = {
    count: read.whole("count", { min: 1, max: Math.min(largestCount, limits.batchRecords), fallback: 100 }),
    maxExamined:
      options?.maxExamined === undefined
        ? Number.POSITIVE_INFINITY
        : read.whole("maxExamined", { min: 1, fallback: 1 }),
    maxBytes: read.whole("maxBytes", { min: 1, fallback: mebibyte }),
    idleMs: read.duration("idleMs", { zero: true, fallback: 250 }),
    unackedPages: read.whole("unackedPages", { min: 1, fallback: 1024 }),
  }
  const own: Record<string, unknown> = {}
  for (const key of consumerKeys) if (options?.[key] !== undefined) own[key] = options[key]
  const commitPolicy = { kind: "auto", after: "marked", every: false, intervalMs: scannedMs } as const
  return { pages, consumer: { ...own, batchLength: pages.count, commitPolicy, maxWaitMs: scannedMs } }
}
