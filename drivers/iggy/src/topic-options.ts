/** A topic's settings as Apache Iggy's options, and back (iggy-wire.md: Topic options). */
import { type Durability, HeaderValue, InvalidError, type TopicDescription, type TopicSpec } from "@millrace/contract"
import { withoutLimit } from "./codec/catalog-structures.ts"
import { type Options, optionValue } from "./codec/options.ts"
import { leastSegmentBytes, mostSegmentBytes } from "./manifest.ts"
import type { TopicView } from "./topic-lookup.ts"
import type { WireVersion } from "./wire/version.ts"

/** So many segments make up a topic of limited size, so that retention removes an eighth at a time. */
const segmentsOfLimitedTopic = 8n
const segmentGrainBytes = 512n

/**
 * On wire 0.11 both durabilities have each batch written to its file before it is confirmed: by default the server keeps up to 1,024
 * records in memory only, and a process that dies takes confirmed ones with it, `enforce_fsync` or not. `synced` has the file synced as
 * well. Deduplication is not to be had, whatever the settings say. `native` holds Apache Iggy's own options by name, and wins.
 * @throws InvalidError for a size below one segment, or a native option that is neither text, number, bigint nor boolean
 */
export function topicOptions(spec: TopicSpec, version: WireVersion): Options {
  const options = new Map<string, HeaderValue>(version === "0.11" ? durability11(spec) : durability12(spec))
  if (spec.expireAfterMs !== undefined) {
    options.set("message_expiry", HeaderValue.uint64(BigInt(Math.ceil(spec.expireAfterMs * 1000))))
  }
  if (spec.maxBytes !== undefined) {
    options.set("max_topic_size", HeaderValue.uint64(checkedSize(spec.maxBytes)))
    options.set("segment_size", HeaderValue.uint64(segmentBytes(spec.maxBytes)))
  }
  for (const [key, value] of Object.entries(spec.native ?? {})) options.set(key, nativeValue(key, value))
  return [...options]
}

function durability11(spec: TopicSpec): [string, HeaderValue][] {
  return [
    ["enforce_fsync", HeaderValue.bool(spec.durability === "synced")],
    ["messages_required_to_save", HeaderValue.uint32(1)],
  ]
}

/** Wire 0.12 has words of its own: `persisted` is synced, `replicated` is what a quorum has in memory. */
function durability12(spec: TopicSpec): [string, HeaderValue][] {
  const word = (durability: Durability): HeaderValue =>
    HeaderValue.string(durability === "synced" ? "persisted" : "replicated")
  return [
    ["durability", word(spec.durability)],
    ["consumer_offset_durability", word(spec.offsetDurability)],
  ]
}

/** What a topic is, in the contract's words. On wire 0.11 offsets have the durability that the server gives all of them: written. */
export function describeView({ stream, topic, lineage }: TopicView): TopicDescription {
  const { messageExpiryMicros, maxSizeBytes } = topic
  return {
    ...describeSettings([...topic.options, ...topic.derivedOptions]),
    stream,
    topic: topic.name,
    lineage,
    partitions: topic.partitions.map(({ id }) => ({ partition: id })),
    createdMicros: topic.createdMicros,
    ...(messageExpiryMicros === withoutLimit ? {} : { expireAfterMs: Number(messageExpiryMicros) / 1000 }),
    ...(maxSizeBytes === withoutLimit ? {} : { maxBytes: maxSizeBytes }),
  }
}

function describeSettings(
  options: Options,
): Pick<TopicDescription, "durability" | "offsetDurability" | "deduplicationWindowMs" | "deduplicateIds" | "native"> {
  const native = Object.fromEntries(options.map(([key, { value }]) => [key, value]))
  const flushed =
    optionValue(options, "enforce_fsync") === true && optionValue(options, "messages_required_to_save") === 1
  const persisted = (key: string): boolean => optionValue(options, key) === "persisted"
  return {
    durability: flushed || persisted("durability") ? "synced" : "written",
    offsetDurability: persisted("consumer_offset_durability") ? "synced" : "written",
    deduplicationWindowMs: 0,
    deduplicateIds: false,
    native,
  }
}

function checkedSize(maxBytes: bigint): bigint {
  if (maxBytes >= leastSegmentBytes) return maxBytes
  throw new InvalidError(
    `maxBytes ${maxBytes} is too small: Apache Iggy keeps topics in segments of at least ${leastSegmentBytes} bytes`,
  )
}

function segmentBytes(maxBytes: bigint): bigint {
  const wanted = (maxBytes / segmentsOfLimitedTopic / segmentGrainBytes) * segmentGrainBytes
  if (wanted < leastSegmentBytes) return BigInt(leastSegmentBytes)
  return wanted > mostSegmentBytes ? BigInt(mostSegmentBytes) : wanted
}

function nativeValue(key: string, value: unknown): HeaderValue {
  if (typeof value === "string") return HeaderValue.string(value)
  if (typeof value === "boolean") return HeaderValue.bool(value)
  if (typeof value === "bigint") return HeaderValue.uint64(value)
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return wholeNumber(key, value)
  throw new InvalidError(
    `native option ${JSON.stringify(key)} is ${String(value)}: expected text, a whole number, a bigint or a boolean`,
  )
}

/** Each option has its own width; the server refuses another one. */
function wholeNumber(key: string, value: number): HeaderValue {
  return key === "messages_required_to_save" ? HeaderValue.uint32(value) : HeaderValue.uint64(BigInt(value))
}
