import { InvalidError } from "@millrace/contract"
import { OptionReader, shown } from "../client/options.ts"

/**
 * When a consumer stores its progress by itself (seed 000, "Commit policies"; table 1.5, the column of the policy path; seed 001, "Automatic
 * commits"; table 2.4). What is stored is the handled prefix of each partition: a message is handled when the next one is asked for, when the
 * handler of `run` settles well, or by `commit` and `mark`. A crash delivers again what was handled and not stored yet.
 *
 * - `disabled`: never. Progress is what `commit`, `mark` and `storeOffset` say.
 * - `polling`: when the next page is asked for, the prefix handled so far.
 * - `all`: once every message of a page is handled.
 * - `each`: every handled message, before the next one is handed out.
 * - `every`: when `count` messages of the consumer were handled since the last store.
 * - `interval`: `intervalMs` after something was handled at the latest, also while nothing comes.
 * - `intervalOrPolling`, `intervalOrAll`, `intervalOrEach`, `intervalOrEvery`: at either moment.
 * - `auto`: every so many messages (or each message, or each page), or after `intervalMs`, counting as handled what `after` says.
 * - `onRead`: with the read, before anything of it is handed out: a crash loses what was read and not handled, and repeats nothing.
 *
 * All but `disabled` store on shutdown and before a partition is handed over to another member.
 */
export type CommitPolicy =
  | { readonly kind: "disabled" | "polling" | "all" | "each" | "onRead" }
  | {
      readonly kind: "interval" | "intervalOrPolling" | "intervalOrAll" | "intervalOrEach"
      /** In ms, above 0. */
      readonly intervalMs: number
    }
  | {
      readonly kind: "every"
      /** Messages of all partitions of the consumer together, from 1. */
      readonly count: number
    }
  | { readonly kind: "intervalOrEvery"; readonly intervalMs: number; readonly count: number }
  | AutoCommit

/** Seed 001's automatic commits (table 2.4). Each field that is absent has its default; at least one of `every` and `intervalMs` must be on. */
export interface AutoCommit {
  readonly kind: "auto"
  /**
   * What counts as handled. `processing`: a message after which the next one was asked for. `delivery`: a message that was handed out.
   * `marked`: what `mark`, `commit` and the handlers of `run` say. Default `processing`.
   */
  readonly after?: "processing" | "delivery" | "marked"
  /** So many messages since the last store, each message, or each page of `batchLength`; `false`: none of these. Default 10,000. */
  readonly every?: number | "message" | "batch" | false
  /** At the latest so long after something was handled, in ms; `false`: no such time. Default 5000. */
  readonly intervalMs?: number | false
}

/** What the hand-over takes for handled. */
export interface Acknowledgement {
  /**
   * `asking`: everything before, when the next message is asked for. `delivery`: what is handed out. `marks`: only what `mark`, `commit` and the
   * handler runner say.
   */
  readonly counts: "asking" | "delivery" | "marks"
  /** A partition that is to be handed over waits until the caller asks for more, whatever is handled by then: its commits come when they come. */
  readonly letsGo: boolean
}

/** A policy as its machine takes it: every kind is a choice of these moments. */
export interface CommitMoments {
  /** What is handled is not stored by itself, unless it was marked. */
  readonly manual: boolean
  /** Each handled message, which is stored before the next is handed out. */
  readonly each: boolean
  /** When the next page is asked for. */
  readonly polling: boolean
  /** When a whole page is handled. */
  readonly all: boolean
  /** So many handled messages since the last store; `Infinity`: none of this. */
  readonly every: number
  /** At most so long after something was handled, in ms; `undefined`: none of this. */
  readonly intervalMs: number | undefined
  /** With the read, before the hand-out. */
  readonly onRead: boolean
}

const fields: Readonly<Record<CommitPolicy["kind"], readonly string[]>> = {
  disabled: [],
  interval: ["intervalMs"],
  polling: [],
  intervalOrPolling: ["intervalMs"],
  all: [],
  intervalOrAll: ["intervalMs"],
  each: [],
  intervalOrEach: ["intervalMs"],
  every: ["count"],
  intervalOrEvery: ["intervalMs", "count"],
  auto: ["after", "every", "intervalMs"],
  onRead: [],
}

const kinds = Object.keys(fields) as CommitPolicy["kind"][]
const autoEvery = 10_000
const autoIntervalMs = 5000

/**
 * The policy with its defaults filled in.
 * @throws InvalidError for a kind that does not exist, with those that do; for a field that does not belong to the kind, by name; for a
 *   count or an interval out of range; for `auto` without any moment.
 */
export function checkCommitPolicy(what: string, policy: CommitPolicy): CommitPolicy {
  const kind = (policy as { readonly kind?: unknown } | null | undefined)?.kind
  const known = kinds.find((name) => name === kind)
  if (known === undefined) {
    const given =
      typeof policy === "object" && policy !== null
        ? `commitPolicy.kind is ${shown(kind)}`
        : `commitPolicy is ${shown(policy)}`
    throw new InvalidError(`${what}: ${given}; the kind must be one of ${kinds.map((name) => `"${name}"`).join(", ")}`)
  }
  const owner = `${what}: commitPolicy "${known}"`
  const reader = new OptionReader<PolicyFields>(
    owner,
    policy as PolicyFields,
    ["kind", ...fields[known]] as (keyof PolicyFields)[],
  )
  switch (known) {
    case "interval":
    case "intervalOrPolling":
    case "intervalOrAll":
    case "intervalOrEach":
      return {
        kind: known,
        intervalMs: needed(owner, "intervalMs", reader.duration("intervalMs", { fallback: undefined })),
      }
    case "every":
      return { kind: known, count: checkedCount(owner, reader, policy) }
    case "intervalOrEvery":
      return {
        kind: known,
        intervalMs: needed(owner, "intervalMs", reader.duration("intervalMs", { fallback: undefined })),
        count: checkedCount(owner, reader, policy),
      }
    case "auto":
      return checkedAuto(owner, reader, policy as AutoCommit)
    default:
      return { kind: known }
  }
}

/** The moments at which a checked policy stores. */
export function momentsOf(policy: CommitPolicy): CommitMoments {
  const { kind } = policy
  const every = "every" in policy ? policy.every : undefined
  const count = "count" in policy ? policy.count : every === "message" ? 1 : every
  const intervalMs = "intervalMs" in policy ? policy.intervalMs : undefined
  return {
    manual: kind === "disabled" || kind === "onRead",
    each: kind === "each" || kind === "intervalOrEach",
    polling: kind === "polling" || kind === "intervalOrPolling",
    all: kind === "all" || kind === "intervalOrAll" || every === "batch",
    every: typeof count === "number" ? count : Number.POSITIVE_INFINITY,
    intervalMs: typeof intervalMs === "number" ? intervalMs : undefined,
    onRead: kind === "onRead",
  }
}

/** What a checked policy takes for handled. */
export function acknowledgementOf(policy: CommitPolicy): Acknowledgement {
  return { counts: countsOf(policy), letsGo: policy.kind === "disabled" }
}

/**
 * With an encryptor a record may turn out not to decrypt when its offset is stored already, and would be lost.
 * @param options.encrypted Whether an encryptor is in use: the consumer's own, or the client's.
 * @throws InvalidError for `onRead` with one (seed 001, "Automatic commits").
 */
export function checkOnReadEncryption(
  what: string,
  policy: CommitPolicy,
  { encrypted }: { readonly encrypted: boolean },
): void {
  if (policy.kind !== "onRead" || !encrypted) return
  throw new InvalidError(
    `${what}: commitPolicy "onRead" is not possible with an encryptor: a record that does not decrypt would be stored as read and lost. Use another policy, or encryptor: false`,
  )
}

function countsOf(policy: CommitPolicy): Acknowledgement["counts"] {
  if (policy.kind === "disabled") return "marks"
  if (policy.kind === "onRead") return "delivery"
  if (policy.kind !== "auto") return "asking"
  if (policy.after === "marked") return "marks"
  return policy.after === "delivery" ? "delivery" : "asking"
}

/** All fields that any kind has. */
interface PolicyFields {
  readonly kind: string
  readonly intervalMs?: number
  readonly count?: number
  readonly after?: string
  readonly every?: number
}

function checkedCount(owner: string, reader: OptionReader<PolicyFields>, policy: CommitPolicy): number {
  needed(owner, "count", (policy as PolicyFields).count)
  return reader.whole("count", { min: 1, fallback: 1 })
}

function needed<V>(owner: string, field: string, value: V | undefined): V {
  if (value !== undefined) return value
  throw new InvalidError(`${owner}: ${field} is missing`)
}

function checkedAuto(owner: string, reader: OptionReader<PolicyFields>, policy: AutoCommit): AutoCommit {
  const after = reader.choice("after", ["processing", "delivery", "marked"], "processing")
  const { every, intervalMs } = policy
  const named = every === false || every === "message" || every === "batch"
  if (!named && typeof every !== "number" && every !== undefined) {
    throw new InvalidError(
      `${owner}: option "every" is ${shown(every)}; it must be a whole number from 1, "message", "batch" or false`,
    )
  }
  const checked: Required<AutoCommit> = {
    kind: "auto",
    after,
    every: named ? every : reader.whole("every", { min: 1, fallback: autoEvery }),
    intervalMs: intervalMs === false ? false : reader.duration("intervalMs", { fallback: autoIntervalMs }),
  }
  if (checked.every === false && checked.intervalMs === false) {
    throw new InvalidError(
      `${owner}: every and intervalMs are both off, so that nothing would ever be stored; leave one on, or use "disabled"`,
    )
  }
  return checked
}
