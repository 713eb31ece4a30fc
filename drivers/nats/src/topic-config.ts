import { InvalidError, type TopicDescription, type TopicName, type TopicSpec } from "@millrace/contract"
import type { StreamConfig, StreamInfo } from "./stream-info.ts"
import { described, metadataKeys, partitionStream, type TopicLayout } from "./topic-layout.ts"

/** JetStream takes no shorter expiry and no shorter window of duplicates than this, in ms. */
const shortestMs = 100

/** What a server's version allows in a stream's configuration; a server refuses fields that it does not know. */
export interface StreamFeatures {
  /** 2.12 */
  readonly atomicBatches: boolean
  /** 2.14 */
  readonly fastIngest: boolean
}

/** Fields of JetStream's stream configuration that `native` may set; the others belong to the mapping. */
const nativeFields = [
  "num_replicas",
  "placement",
  "storage",
  "compression",
  "max_msg_size",
  "max_consumers",
  "description",
  "republish",
  "consumer_limits",
] as const

/** @throws InvalidError for a field of `native` that the mapping keeps for itself, or that there is not */
export function checkNative(name: TopicName, native: Readonly<Record<string, unknown>> | undefined): void {
  for (const field of Object.keys(native ?? {})) {
    if ((nativeFields as readonly string[]).includes(field)) continue
    throw new InvalidError(
      `topic ${described(name)}: native.${field} is not taken; JetStream's ${nativeFields.join(", ")} are`,
      { context: { ...name } },
    )
  }
}

/** The part of the configuration that follows from a topic's settings; the same for all of its partitions. */
export function settingsOf(spec: TopicSpec, features: StreamFeatures): Omit<StreamConfig, "name" | "subjects"> {
  const maxAgeMs = spec.expireAfterMs === undefined ? 0 : Math.max(shortestMs, spec.expireAfterMs)
  const windowMs = Math.max(shortestMs, spec.deduplicationWindowMs)
  return {
    storage: "file",
    ...spec.native,
    retention: "limits",
    discard: "old",
    max_age: nanos(maxAgeMs),
    max_bytes: partitionBytes(spec.maxBytes, spec.partitions),
    duplicate_window: nanos(maxAgeMs === 0 ? windowMs : Math.min(windowMs, maxAgeMs)),
    allow_direct: true,
    ...(features.atomicBatches ? { allow_atomic: true } : {}),
    ...(features.fastIngest ? { allow_batched: true } : {}),
  }
}

/** What partition 0 carries beside its configuration: what makes the stream a topic, and settings that JetStream has in another form. */
export function metadataOf(spec: TopicSpec, lineage: string): Record<string, string> {
  return {
    [metadataKeys.lineage]: lineage,
    [metadataKeys.partitions]: String(spec.partitions),
    [metadataKeys.deduplicationWindow]: String(spec.deduplicationWindowMs),
    [metadataKeys.deduplicateIds]: String(spec.deduplicateIds),
    ...(spec.expireAfterMs === undefined ? {} : { [metadataKeys.expireAfter]: String(spec.expireAfterMs) }),
    ...(spec.maxBytes === undefined ? {} : { [metadataKeys.maxBytes]: String(spec.maxBytes) }),
    ...(spec.native === undefined ? {} : { [metadataKeys.native]: JSON.stringify(spec.native) }),
  }
}

/** A partition's share of a topic's size: `max_bytes` of its stream, −1 for no limit. */
export function partitionBytes(maxBytes: bigint | undefined, partitions: number): number {
  if (maxBytes === undefined) return -1
  const share = maxBytes / BigInt(partitions)
  return share < 1n ? 1 : Number(share > largestBytes ? largestBytes : share)
}

/** The topic as the contract describes it. `infos` are of those partitions that were asked for; partition 0's is always there. */
export function descriptionOf(layout: TopicLayout, infos: ReadonlyMap<number, StreamInfo>): TopicDescription {
  const { stream, topic, lineage, partitionCount, config, createdMicros } = layout
  const metadata = layout.own ? (config.metadata ?? {}) : {}
  const expireAfterMs =
    numberOf(metadata[metadataKeys.expireAfter]) ?? (config.max_age ? config.max_age / 1e6 : undefined)
  const maxBytes =
    bytesOf(metadata[metadataKeys.maxBytes]) ??
    (config.max_bytes !== undefined && config.max_bytes > 0 ? BigInt(config.max_bytes) : undefined)
  const native = metadata[metadataKeys.native]
  return {
    stream,
    topic,
    lineage,
    partitions: Array.from({ length: partitionCount }, (_, partition) => {
      const leader = infos.get(partition)?.cluster?.leader
      return { partition, ...(leader === undefined ? {} : { leader }) }
    }),
    createdMicros,
    ...(expireAfterMs === undefined ? {} : { expireAfterMs }),
    ...(maxBytes === undefined ? {} : { maxBytes }),
    durability: "written",
    offsetDurability: "written",
    deduplicationWindowMs: windowOf(config, numberOf(metadata[metadataKeys.deduplicationWindow])),
    deduplicateIds: layout.own ? metadata[metadataKeys.deduplicateIds] === "true" : true,
    ...(native === undefined ? {} : { native: JSON.parse(native) }),
  }
}

/** The spec again, for partitions that are added. */
export function specOf(layout: TopicLayout): TopicSpec {
  const {
    partitions,
    lineage: _,
    stream: __,
    topic: ___,
    createdMicros: ____,
    ...rest
  } = descriptionOf(layout, new Map())
  return { ...rest, partitions: partitions.length }
}

/** Names of all of a topic's JetStream streams, partition 0 first. */
export function streamNamesOf(layout: TopicLayout): string[] {
  return Array.from({ length: layout.partitionCount }, (_, partition) => partitionStream(layout, partition))
}

/**
 * How long the server recognises an id, in ms: what was asked for, or less where records expire sooner or somebody changed the stream.
 * (The server's shortest window stands for shorter ones, and for none at all.)
 */
function windowOf(config: StreamConfig, askedMs: number | undefined): number {
  const heldMs = Math.floor((config.duplicate_window ?? 0) / 1e6)
  return Math.min(heldMs, askedMs ?? heldMs)
}

const largestBytes = 2n ** 53n - 1n

function nanos(ms: number): number {
  return Math.min(Math.round(ms * 1e6), Number.MAX_SAFE_INTEGER)
}

function numberOf(text: string | undefined): number | undefined {
  const value = Number(text)
  return text === undefined || text === "" || !Number.isFinite(value) ? undefined : value
}

function bytesOf(text: string | undefined): bigint | undefined {
  return text === undefined || !/^\d+$/.test(text) ? undefined : BigInt(text)
}
