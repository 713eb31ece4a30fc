/** The settings of a topic as Kafka's configuration of it, and back. */
import { InvalidError, type TopicSpec } from "@millrace/contract"
import type { TopicFact } from "./topic-facts.ts"

/** What `native` of a topic's settings may hold. */
export interface KafkaTopicSettings {
  /** Kafka's own settings of the topic by name (`segment.ms`, `cleanup.policy` …); they win over those that Millrace makes. */
  readonly config?: Readonly<Record<string, string | number | boolean>>
  /** How many brokers hold each partition. Default: the cluster's own (`default.replication.factor`). */
  readonly replicationFactor?: number
}

/** A topic's configuration: `overridden` tells what was set for this topic and is not a default. */
export interface TopicConfig {
  readonly values: ReadonlyMap<string, string>
  readonly overridden: ReadonlySet<string>
}

/** The settings of a topic that its configuration tells. */
export type ConfiguredSpec = Omit<TopicSpec, "partitions">

/** The configuration that Millrace makes and reads. */
export const configNames = {
  retentionMs: "retention.ms",
  retentionBytes: "retention.bytes",
  flushMessages: "flush.messages",
  cleanupPolicy: "cleanup.policy",
  maxMessageBytes: "max.message.bytes",
  timestampType: "message.timestamp.type",
} as const

const unlimited = "-1"
/** One record a flush: what `synced` means. */
const eachRecord = "1"

/** @throws InvalidError for parts of `native` that are not known or of the wrong type */
export function nativeSettings(spec: TopicSpec): KafkaTopicSettings {
  const native = spec.native ?? {}
  for (const key of Object.keys(native)) {
    if (key !== "config" && key !== "replicationFactor") {
      throw new InvalidError(
        `native option ${JSON.stringify(key)} of a Kafka topic is not known: config and replicationFactor are`,
      )
    }
  }
  const { config, replicationFactor } = native
  if (replicationFactor !== undefined && !isFactor(replicationFactor)) {
    throw new InvalidError(
      `native.replicationFactor is ${String(replicationFactor)}: a whole number from 1 to 32767 is allowed`,
    )
  }
  if (config !== undefined && !isConfig(config)) {
    throw new InvalidError("native.config of a Kafka topic takes an object of texts, numbers and booleans by name")
  }
  return {
    ...(config === undefined ? {} : { config }),
    ...(replicationFactor === undefined ? {} : { replicationFactor }),
  }
}

/** The configuration to create a topic with. Absent limits are set, since the broker's defaults would expire records. */
export function toConfig(spec: TopicSpec, native: KafkaTopicSettings): Map<string, string> {
  const config = new Map<string, string>([
    [configNames.retentionMs, spec.expireAfterMs === undefined ? unlimited : String(Math.ceil(spec.expireAfterMs))],
    [configNames.retentionBytes, perPartition(spec.maxBytes, spec.partitions)],
  ])
  if (spec.durability === "synced") config.set(configNames.flushMessages, eachRecord)
  for (const [name, value] of Object.entries(native.config ?? {})) config.set(name, String(value))
  return config
}

/** Kafka limits each partition: the share of one, rounded up. */
export function perPartition(maxBytes: bigint | undefined, partitions: number): string {
  if (maxBytes === undefined) return unlimited
  const count = BigInt(partitions)
  return String((maxBytes + count - 1n) / count)
}

/**
 * What a topic's configuration says. A limit comes back as the partitions' shares together: equal to the one that was given when it is
 * a multiple of their number, else up to `partitions` − 1 bytes above.
 */
export function fromConfig(config: TopicConfig, partitions: number): ConfiguredSpec {
  const { values } = config
  const expires = (values.get(configNames.cleanupPolicy) ?? "delete").split(",").includes("delete")
  const retentionMs = Number(values.get(configNames.retentionMs) ?? unlimited)
  const retentionBytes = BigInt(values.get(configNames.retentionBytes) ?? unlimited)
  const others = [...config.overridden].filter((name) => !mapped.has(name)).sort()
  return {
    ...(expires && retentionMs >= 0 ? { expireAfterMs: retentionMs } : {}),
    ...(expires && retentionBytes >= 0n ? { maxBytes: retentionBytes * BigInt(partitions) } : {}),
    durability: values.get(configNames.flushMessages) === eachRecord ? "synced" : "written",
    offsetDurability: "written",
    deduplicationWindowMs: 0,
    deduplicateIds: false,
    ...(others.length === 0
      ? {}
      : { native: { config: Object.fromEntries(others.map((name) => [name, values.get(name) ?? ""])) } }),
  }
}

/** What an append has to know of the topic. */
export function factOf({ values }: TopicConfig): TopicFact {
  const limit = Number(values.get(configNames.maxMessageBytes))
  return {
    limitBytes: Number.isInteger(limit) && limit > 0 ? limit : undefined,
    brokerTime: values.get(configNames.timestampType) === "LogAppendTime",
  }
}

/** What the other settings of a topic tell already. */
const mapped: ReadonlySet<string> = new Set([
  configNames.retentionMs,
  configNames.retentionBytes,
  configNames.flushMessages,
])

function isFactor(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 0x7fff
}

function isConfig(value: unknown): value is Readonly<Record<string, string | number | boolean>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false
  return Object.values(value).every((one) => ["string", "number", "boolean"].includes(typeof one))
}
