/** What a consumer can be told, with the defaults of table 1.6 of the options and the checks of each. */
import { InvalidError, type Manifest, type TopicName } from "@millrace/contract"
import { checkName } from "../client/names.ts"
import { OptionReader, shown } from "../client/options.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import { checkEncryptorChoice } from "../encryption/sealing.ts"
import { checkStartAt, type StartAt } from "../partition/start-at.ts"
import { type CommitPolicy, checkCommitPolicy } from "../progress/commit-policy.ts"
import type { Decoding } from "../typed/decoding.ts"

/** Options of `topic.consumer` (seed 000, "Consumers, offsets, and commit policies"; tables 1.5 to 1.7). */
export interface ConsumerOptions {
  /** The most messages of one page: what is handed over between two polls. Default 1000. */
  readonly batchLength?: number
  /** The pause after a poll that brought nothing, in ms. Default 0: the next long poll begins at once. */
  readonly pollIntervalMs?: number
  /** The wait before a poll, a commit or a start that failed is tried again, in ms. Default 1000. */
  readonly pollingRetryIntervalMs?: number
  /** More tries of a start that failed, before its error is handed out. Default none. */
  readonly initRetries?: { readonly retries: number; readonly intervalMs: number }
  /** Where reading begins while nothing is stored, or always with `allowReplay`. Default `{ kind: "next" }`. */
  readonly startAt?: StartAt
  /** Lets `startAt` go behind what is stored. Default false: records at or below the stored offset never come again. */
  readonly allowReplay?: boolean
  /** Default `{ kind: "polling" }`; `{ kind: "disabled" }` without a consumer name. */
  readonly commitPolicy?: CommitPolicy
  /** How long one poll waits for records, in ms, up to 600,000; polls follow each other. Default 5000. */
  readonly maxWaitMs?: number
  /** A poll answers before `maxWaitMs` once it has so many records; from 1 to `batchLength`. Default 1. */
  readonly minRecords?: number
  /** The most encoded bytes of one poll; a first batch above it comes alone. Default 1 MiB. */
  readonly maxBytes?: number
  /** Encoded bytes that are read ahead of the caller, shared evenly by the partitions that are read. Default 16 MiB. */
  readonly prefetchBytes?: number
  /** Records that are read ahead of the caller, shared in the same way. Default 16,000, or `batchLength` when that is more. */
  readonly prefetchRecords?: number
  /** What to do when the position is no longer, or not yet, in the log: go to the first record, to the end, or fail. Default `first`. */
  readonly onOutOfRange?: "first" | "next" | "fail"
  /** What to do when the topic does not exist: fail with NotFoundError, or look again every `pollingRetryIntervalMs`. Default `fail`. */
  readonly onMissing?: "fail" | "wait"
  /** Hands out records of transactions that are not committed. Default false. */
  readonly readUncommitted?: boolean
  /**
   * A partition that has records, while a caller wants some and nothing comes of it for so long, is told of as `stalled`, in ms; and
   * the consumer reads on with a fresh reader. Default 5000.
   */
  readonly stalledAfterMs?: number
  /** What records are decrypted with; `false` hands them out as they are stored. Default: the client's. */
  readonly encryptor?: Encryptor | false
}

/** Options of `topic.consumerGroup(name).consumer`. */
export interface GroupConsumerOptions extends ConsumerOptions {
  /** Creates the group when it does not exist. Default true. */
  readonly createGroup?: boolean
  /** Only true is possible: progress of a group is fenced by its membership. Default true. */
  readonly autoJoinGroup?: boolean
  /** More topics that this member reads beside the one the group was named on. */
  readonly topics?: readonly { readonly stream: string; readonly name: string }[]
  /** A stable name: a member that comes back with it takes its old place. Default: a fresh one. */
  readonly memberId?: string
  /** A member that shows no life for so long is taken for dead, in ms. Default 10,000. */
  readonly sessionTimeoutMs?: number
  /** A member that has not handed over a revoked partition after so long loses it, in ms. Default 30,000. */
  readonly rebalanceTimeoutMs?: number
  /**
   * What becomes of messages in hand when their partition goes to another member: `finish` gives them `revokeTimeoutMs`, `fence` cuts them
   * off as soon as the listeners of `revoking` have answered. Default `finish`.
   */
  readonly onRevoke?: "finish" | "fence"
  /**
   * How long messages in hand of a revoked partition may take to be handled, in ms; three quarters of `rebalanceTimeoutMs` at the most.
   * Default 1000, and with handlers of `run` as long as it may be.
   */
  readonly revokeTimeoutMs?: number
  /**
   * What is handed out and not handled for so long, in ms, makes the member leave the group until the caller asks for more (event
   * `handlerTimeout`). Default: never, since a caller's time is its own.
   */
  readonly handlerTimeoutMs?: number
  /**
   * Whether the group's filter decides what this member gets. With false it gets every record, and needs no access to the topic of filters
   * (`millrace/filters`); all members of a group should say the same. Default true.
   */
  readonly applyFilter?: boolean
}

/** Consumer options after the checks: nothing is optional any more. */
export interface ConsumerSettings {
  readonly batchLength: number
  readonly pollIntervalMs: number
  readonly retryIntervalMs: number
  readonly initRetries: number
  readonly initRetryIntervalMs: number
  readonly startAt: StartAt
  readonly allowReplay: boolean
  readonly commitPolicy: CommitPolicy
  readonly maxWaitMs: number
  readonly minRecords: number
  readonly maxBytes: number
  readonly prefetchBytes: number
  readonly prefetchRecords: number
  readonly onOutOfRange: "first" | "next" | "fail"
  readonly onMissing: "fail" | "wait"
  readonly isolation: "committed" | "uncommitted"
  readonly stalledAfterMs: number
  /** From which delay on the event loop counts as blocked, in ms. */
  readonly loopBlockedAfterMs: number
  /** Absent: the client's. */
  readonly encryptor: Encryptor | false | undefined
  /** Of a typed consumer. */
  readonly decoding?: Decoding | undefined
}

/** Group options after the checks. */
export interface GroupSettings {
  readonly createGroup: boolean
  readonly topics: readonly TopicName[]
  readonly memberId: string | undefined
  readonly sessionTimeoutMs: number
  readonly rebalanceTimeoutMs: number
  readonly onRevoke: "finish" | "fence"
  readonly revokeTimeoutMs: number | undefined
  readonly handlerTimeoutMs: number | undefined
  readonly applyFilter: boolean
}

const consumerKeys = [
  "batchLength",
  "pollIntervalMs",
  "pollingRetryIntervalMs",
  "initRetries",
  "startAt",
  "allowReplay",
  "commitPolicy",
  "maxWaitMs",
  "minRecords",
  "maxBytes",
  "prefetchBytes",
  "prefetchRecords",
  "onOutOfRange",
  "onMissing",
  "readUncommitted",
  "stalledAfterMs",
  "encryptor",
] as const

const groupKeys = [
  "createGroup",
  "autoJoinGroup",
  "topics",
  "memberId",
  "sessionTimeoutMs",
  "rebalanceTimeoutMs",
  "onRevoke",
  "revokeTimeoutMs",
  "handlerTimeoutMs",
  "applyFilter",
] as const

/** From which delay on the event loop of a consumer without a group counts as blocked, in ms: nothing depends on it. */
const loopBlockedAfterMs = 1000
/** What a group's member may be blocked for before it is told: a third of what costs it the membership. */
const loopBlockedShare = 1 / 3

const largestBatchLength = 1_000_000
const mebibyte = 1_048_576
/** The longest poll, in ms (table 2.4). */
const longestWaitMs = 600_000

/**
 * @param what How errors call the consumer.
 * @param stores Whether there is a name or a group under which progress can be stored.
 * @throws InvalidError for an unknown option, or a value out of its range.
 */
export function consumerSettings(
  what: string,
  options: ConsumerOptions | undefined,
  { stores }: { readonly stores: boolean },
): ConsumerSettings {
  const reader = new OptionReader<ConsumerOptions>(what, options, consumerKeys)
  return { ...settingsOf(what, reader, options ?? {}, stores), loopBlockedAfterMs }
}

/** The same for a group consumer. @throws InvalidError */
export function groupConsumerSettings(
  what: string,
  options: GroupConsumerOptions | undefined,
  limits: Manifest["limits"],
): { readonly consumer: ConsumerSettings; readonly group: GroupSettings } {
  const reader = new OptionReader<GroupConsumerOptions>(what, options, [...consumerKeys, ...groupKeys])
  const given = options ?? {}
  if (!reader.flag("autoJoinGroup", true)) {
    throw new InvalidError(
      `${what}: autoJoinGroup must be true: offsets of a group are fenced by its membership, so a consumer that does not join can neither read nor commit for it. Use topic.consumer(name, partition) to read one partition without a group`,
    )
  }
  const group = {
    createGroup: reader.flag("createGroup", true),
    topics: checkedTopics(what, given.topics),
    memberId: given.memberId === undefined ? undefined : checkName("member", given.memberId, limits),
    sessionTimeoutMs: reader.duration("sessionTimeoutMs", { fallback: 10_000 }),
    rebalanceTimeoutMs: reader.duration("rebalanceTimeoutMs", { fallback: 30_000 }),
    onRevoke: reader.choice("onRevoke", ["finish", "fence"], "finish"),
    revokeTimeoutMs: reader.duration("revokeTimeoutMs", { fallback: undefined }),
    handlerTimeoutMs: reader.duration("handlerTimeoutMs", { fallback: undefined }),
    applyFilter: reader.flag("applyFilter", true),
  }
  checkRevokeTimeout(what, group)
  const blocked = { loopBlockedAfterMs: group.sessionTimeoutMs * loopBlockedShare }
  return { consumer: { ...settingsOf(what, reader, given, true), ...blocked }, group }
}

function checkRevokeTimeout(what: string, { onRevoke, revokeTimeoutMs, rebalanceTimeoutMs }: GroupSettings): void {
  if (revokeTimeoutMs === undefined) return
  if (onRevoke === "fence") {
    throw new InvalidError(`${what}: revokeTimeoutMs has no meaning with onRevoke "fence", which waits for nothing`)
  }
  if (revokeTimeoutMs <= rebalanceTimeoutMs) return
  throw new InvalidError(
    `${what}: revokeTimeoutMs is ${revokeTimeoutMs}; it must be at most rebalanceTimeoutMs (${rebalanceTimeoutMs}), after which the partition is lost`,
  )
}

function settingsOf(
  what: string,
  reader: OptionReader<GroupConsumerOptions>,
  given: ConsumerOptions,
  stores: boolean,
): Omit<ConsumerSettings, "loopBlockedAfterMs"> {
  const batchLength = reader.whole("batchLength", { min: 1, max: largestBatchLength, fallback: 1000 })
  const initRetries = new OptionReader(`${what}: initRetries`, given.initRetries, ["retries", "intervalMs"])
  const commitPolicy = checkCommitPolicy(what, given.commitPolicy ?? { kind: stores ? "polling" : "disabled" })
  if (!stores && commitPolicy.kind !== "disabled") {
    throw new InvalidError(
      `${what}: commitPolicy ${shown(commitPolicy.kind)} needs a consumer name to store offsets under; without a name only "disabled" is possible`,
    )
  }
  return {
    batchLength,
    pollIntervalMs: reader.duration("pollIntervalMs", { zero: true, fallback: 0 }),
    retryIntervalMs: reader.duration("pollingRetryIntervalMs", { fallback: 1000 }),
    initRetries: initRetries.whole("retries", { min: 0, fallback: 0 }),
    initRetryIntervalMs: initRetries.duration("intervalMs", { fallback: 1000 }),
    startAt: checkStartAt(what, given.startAt ?? { kind: "next" }),
    allowReplay: reader.flag("allowReplay", false),
    commitPolicy,
    maxWaitMs: checkedWait(what, reader.duration("maxWaitMs", { fallback: 5000 })),
    minRecords: reader.whole("minRecords", { min: 1, max: batchLength, fallback: 1 }),
    maxBytes: reader.whole("maxBytes", { min: 1, fallback: mebibyte }),
    prefetchBytes: reader.whole("prefetchBytes", { min: 1, fallback: 16 * mebibyte }),
    prefetchRecords: reader.whole("prefetchRecords", { min: 1, fallback: Math.max(16_000, batchLength) }),
    onOutOfRange: reader.choice("onOutOfRange", ["first", "next", "fail"], "first"),
    onMissing: reader.choice("onMissing", ["fail", "wait"], "fail"),
    isolation: reader.flag("readUncommitted", false) ? "uncommitted" : "committed",
    stalledAfterMs: reader.duration("stalledAfterMs", { fallback: 5000 }),
    encryptor: checkEncryptorChoice(what, given.encryptor),
  }
}

/** A poll is the backend's to hold open: longer than this none does (table 2.4). */
function checkedWait(what: string, maxWaitMs: number): number {
  if (maxWaitMs <= longestWaitMs) return maxWaitMs
  throw new InvalidError(
    `${what}: option "maxWaitMs" is ${maxWaitMs}; it must be a number of milliseconds above 0, at most ${longestWaitMs}`,
  )
}

function checkedTopics(what: string, topics: GroupConsumerOptions["topics"]): TopicName[] {
  if (topics === undefined) return []
  if (!Array.isArray(topics))
    throw new InvalidError(`${what}: topics is ${shown(topics)}; it must be an array of topics`)
  return topics.map((topic: { readonly stream?: unknown; readonly name?: unknown } | null, index) => {
    if (typeof topic?.stream === "string" && typeof topic.name === "string") {
      return { stream: topic.stream, topic: topic.name }
    }
    throw new InvalidError(`${what}: topics[${index}] is ${shown(topic)}; it must be a topic handle`)
  })
}
