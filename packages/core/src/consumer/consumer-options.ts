/** What a consumer can be told, with the defaults of table 1.6 of the options and the checks of each. */
import { InvalidError, type Manifest, type TopicName } from "@millrace/contract"
import { checkName } from "../client/names.ts"
import { OptionReader, shown } from "../client/options.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import { checkEncryptorChoice } from "../encryption/sealing.ts"
import { type CommitPolicy, checkCommitPolicy } from "./commit-policy.ts"
import { checkStartAt, type StartAt } from "./start-at.ts"

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
  /** How long one poll waits for records, in ms; polls follow each other. Default 5000. */
  readonly maxWaitMs?: number
  /** A poll answers before `maxWaitMs` once it has so many records. Default 1. */
  readonly minRecords?: number
  /** The most encoded bytes of one poll; a first batch above it comes alone. Default 1 MiB. */
  readonly maxBytes?: number
  /** Encoded bytes that are read ahead of the caller. Default 16 MiB. */
  readonly prefetchBytes?: number
  /** Records that are read ahead of the caller. Default 16,000, or `batchLength` when that is more. */
  readonly prefetchRecords?: number
  /** What to do when the position is no longer, or not yet, in the log: go to the first record, to the end, or fail. Default `first`. */
  readonly onOutOfRange?: "first" | "next" | "fail"
  /** What to do when the topic does not exist: fail with NotFoundError, or look again every `pollingRetryIntervalMs`. Default `fail`. */
  readonly onMissing?: "fail" | "wait"
  /** Hands out records of transactions that are not committed. Default false. */
  readonly readUncommitted?: boolean
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
  /** Absent: the client's. */
  readonly encryptor: Encryptor | false | undefined
}

/** Group options after the checks. */
export interface GroupSettings {
  readonly createGroup: boolean
  readonly topics: readonly TopicName[]
  readonly memberId: string | undefined
  readonly sessionTimeoutMs: number
  readonly rebalanceTimeoutMs: number
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
  "encryptor",
] as const

const groupKeys = [
  "createGroup",
  "autoJoinGroup",
  "topics",
  "memberId",
  "sessionTimeoutMs",
  "rebalanceTimeoutMs",
] as const

const largestBatchLength = 1_000_000
const mebibyte = 1_048_576

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
  return settingsOf(what, new OptionReader<ConsumerOptions>(what, options, consumerKeys), options ?? {}, stores)
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
  return {
    consumer: settingsOf(what, reader, given, true),
    group: {
      createGroup: reader.flag("createGroup", true),
      topics: checkedTopics(what, given.topics),
      memberId: given.memberId === undefined ? undefined : checkName("member", given.memberId, limits),
      sessionTimeoutMs: reader.duration("sessionTimeoutMs", { fallback: 10_000 }),
      rebalanceTimeoutMs: reader.duration("rebalanceTimeoutMs", { fallback: 30_000 }),
    },
  }
}

function settingsOf(
  what: string,
  reader: OptionReader<GroupConsumerOptions>,
  given: ConsumerOptions,
  stores: boolean,
): ConsumerSettings {
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
    maxWaitMs: reader.duration("maxWaitMs", { fallback: 5000 }),
    minRecords: reader.whole("minRecords", { min: 1, fallback: 1 }),
    maxBytes: reader.whole("maxBytes", { min: 1, fallback: mebibyte }),
    prefetchBytes: reader.whole("prefetchBytes", { min: 1, fallback: 16 * mebibyte }),
    prefetchRecords: reader.whole("prefetchRecords", { min: 1, fallback: Math.max(16_000, batchLength) }),
    onOutOfRange: reader.choice("onOutOfRange", ["first", "next", "fail"], "first"),
    onMissing: reader.choice("onMissing", ["fail", "wait"], "fail"),
    isolation: reader.flag("readUncommitted", false) ? "uncommitted" : "committed",
    encryptor: checkEncryptorChoice(what, given.encryptor),
  }
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
