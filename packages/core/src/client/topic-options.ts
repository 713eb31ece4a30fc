import {
  type Capability,
  type Durability,
  InvalidError,
  type Manifest,
  type TopicDescription,
  type TopicSpec,
  UnsupportedError,
  unsupported,
} from "@millrace/contract"
import { OptionReader, shown } from "./options.ts"

/** How long and how much a topic that is created keeps. */
export interface RetentionOptions {
  /** Records older than this may be removed, in ms above 0. Default: never. Not together with `neverExpire`. */
  readonly expireAfterMs?: number
  /** Says the default in words. */
  readonly neverExpire?: true
  /** Above this many bytes of all partitions together the oldest may be removed. Default: no limit. Not with `unlimitedTopicSize`. */
  readonly maxTopicBytes?: bigint
  /** Says the default in words. */
  readonly unlimitedTopicSize?: true
}

/** Settings of a topic that is created. An existing topic keeps its own. */
export interface TopicOptions extends RetentionOptions {
  /** When a record counts as stored: after the sync (`synced`, the default where the backend has it) or after the write. */
  readonly durability?: Durability
  /** The same for stored offsets, on its own. */
  readonly offsetDurability?: Durability
  /** How long ids are remembered, in ms. Default 120,000, where the backend looks up ids. 0: not at all. */
  readonly deduplicationWindowMs?: number
  /** Whether ids that a caller gives are looked up one by one. Default false: only those of resends. */
  readonly deduplicateIds?: boolean
  /** Settings of the backend that Millrace has no name for; handed on as they are. */
  readonly native?: Readonly<Record<string, unknown>>
}

/** A topic as it is. */
export interface TopicInfo {
  readonly stream: string
  readonly topic: string
  readonly partitions: number
  /** Absent: records never expire. */
  readonly expireAfterMs?: number
  /** Absent: no limit. */
  readonly maxTopicBytes?: bigint
  readonly durability: Durability
  readonly offsetDurability: Durability
  readonly deduplicationWindowMs: number
  readonly deduplicateIds: boolean
  /** Absent where the backend does not tell. */
  readonly createdMicros?: bigint
}

const retentionKeys: readonly (keyof RetentionOptions)[] = [
  "expireAfterMs",
  "neverExpire",
  "maxTopicBytes",
  "unlimitedTopicSize",
]

const topicKeys: readonly (keyof TopicOptions)[] = [
  ...retentionKeys,
  "durability",
  "offsetDurability",
  "deduplicationWindowMs",
  "deduplicateIds",
  "native",
]

const defaultDeduplicationWindowMs = 120_000

/** @throws InvalidError for values out of range, UnsupportedError for what the backend cannot do */
export function topicSpec(
  owner: string,
  request: { readonly partitions: number; readonly options: TopicOptions | undefined },
  manifest: Manifest,
): TopicSpec {
  const { options, partitions } = request
  const read = new OptionReader<TopicOptions>(owner, options, topicKeys)
  const { append, offsets } = manifest
  const native = options?.native
  if (native !== undefined && (typeof native !== "object" || native === null)) {
    throw new InvalidError(`${owner}: option "native" is ${shown(native)}; it must be an object`)
  }
  return {
    partitions: checkPartitionCount(owner, partitions, manifest),
    ...retention(owner, read, manifest),
    durability: durability(owner, options?.durability, { known: append.durability, manifest }),
    offsetDurability: durability(owner, options?.offsetDurability, { known: offsets.durability, manifest }),
    ...deduplication(owner, read, manifest),
    ...(native === undefined ? {} : { native }),
  }
}

/** @throws InvalidError unless it is a whole number from 1 to the backend's limit */
export function checkPartitionCount(owner: string, partitions: unknown, manifest: Manifest): number {
  const most = manifest.limits.partitions
  if (typeof partitions === "number" && Number.isInteger(partitions) && partitions >= 1 && partitions <= most) {
    return partitions
  }
  throw new InvalidError(`${owner}: ${shown(partitions)} partitions are not possible: a topic has 1 to ${most}`)
}

export function topicInfo(description: TopicDescription): TopicInfo {
  const { expireAfterMs, maxBytes, createdMicros } = description
  return {
    stream: description.stream,
    topic: description.topic,
    partitions: description.partitions.length,
    ...(expireAfterMs === undefined ? {} : { expireAfterMs }),
    ...(maxBytes === undefined ? {} : { maxTopicBytes: maxBytes }),
    durability: description.durability,
    offsetDurability: description.offsetDurability,
    deduplicationWindowMs: description.deduplicationWindowMs,
    deduplicateIds: description.deduplicateIds,
    ...(createdMicros === undefined ? {} : { createdMicros }),
  }
}

function retention(
  owner: string,
  read: OptionReader<TopicOptions>,
  manifest: Manifest,
): { expireAfterMs?: number; maxBytes?: bigint } {
  read.exclusive("expireAfterMs", "neverExpire")
  read.exclusive("maxTopicBytes", "unlimitedTopicSize")
  read.mark("neverExpire")
  read.mark("unlimitedTopicSize")
  const expireAfterMs = read.duration("expireAfterMs", { fallback: undefined })
  const maxBytes = read.size("maxTopicBytes")
  if (expireAfterMs !== undefined) need(manifest, manifest.catalog.expiry, { owner, what: "topic expiry" })
  if (maxBytes !== undefined) need(manifest, manifest.catalog.sizeRetention, { owner, what: "topic size limits" })
  return {
    ...(expireAfterMs === undefined ? {} : { expireAfterMs }),
    ...(maxBytes === undefined ? {} : { maxBytes }),
  }
}

function deduplication(
  owner: string,
  read: OptionReader<TopicOptions>,
  manifest: Manifest,
): Pick<TopicSpec, "deduplicationWindowMs" | "deduplicateIds"> {
  const absent = manifest.append.idLookup === "none"
  const windowMs = read.duration("deduplicationWindowMs", {
    zero: true,
    fallback: absent ? 0 : defaultDeduplicationWindowMs,
  })
  const ids = read.flag("deduplicateIds", false)
  if (absent && (windowMs > 0 || ids)) {
    const option = ids ? "deduplicateIds" : "deduplicationWindowMs"
    throw new UnsupportedError(
      `${owner}: option "${option}": ${manifest.backend} looks up no message ids. ` +
        "A producer's own resends are recognised without them where it is idempotent; let handlers bear the rest",
    )
  }
  return { deduplicationWindowMs: windowMs, deduplicateIds: ids }
}

function durability(
  owner: string,
  value: unknown,
  { known, manifest }: { readonly known: readonly Durability[]; readonly manifest: Manifest },
): Durability {
  if (value === undefined) return known[0] as Durability
  if ((known as readonly unknown[]).includes(value)) return value as Durability
  const list = known.map((one) => `"${one}"`).join(", ")
  if (value === "synced" || value === "written") {
    throw new UnsupportedError(`${owner}: ${manifest.backend} has no durability "${value}"; it has ${list}`)
  }
  throw new InvalidError(`${owner}: durability ${shown(value)} is not known; ${manifest.backend} has ${list}`)
}

/** @throws UnsupportedError that names the backend, the reason and what to use instead */
export function need(
  manifest: Manifest,
  capability: Capability,
  { owner, what }: { readonly owner: string; readonly what: string },
): void {
  if (capability.supported) return
  throw new UnsupportedError(`${owner}: ${unsupported(manifest.backend, what, capability).message}`)
}
