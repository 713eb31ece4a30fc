import type { Capability, Manifest, TransactionCapability } from "@millrace/contract"
import { longestTopicName } from "./names.ts"

/** What brokers take in one batch unless they are set up otherwise (`message.max.bytes`). */
export const defaultMessageBytes = 1_048_588

/** A batch of our own making: larger ones gain nothing. */
const usualBatchBytes = 1_000_000

/** What a batch of one record adds to its payload: the batch's header, the record's, and the headers `millrace-…`. */
const overheadBytes = 256

/** Brokers remember as many batches of a producer in each partition, and refuse a gap before that. */
const rememberedBatches = 5

const queues: Capability = {
  supported: false,
  reason: "work queues are not part of this release of the Kafka driver",
  instead: "Use a consumer group, and commit each message after it was handled.",
}

const transactions: TransactionCapability = {
  supported: false,
  reason: "transactions are not part of this release of the Kafka driver",
  instead: "Use an idempotent producer, and handlers that can be repeated.",
}

const state: Capability = {
  supported: false,
  reason: "small state is not part of this release of the Kafka driver",
  instead: "Keep the newest value of each key in a topic, and read it from its first record.",
}

/**
 * What a Kafka cluster can do.
 * @param facts `backend` as error messages call it; `messageBytes` is the broker's `message.max.bytes`
 */
export function kafkaManifest(facts: { readonly backend: string; readonly messageBytes: number }): Manifest {
  const { backend, messageBytes } = facts
  const payloadBytes = Math.max(1, messageBytes - overheadBytes)
  return deepFreeze({
    backend,
    append: {
      dedup: "sequence",
      inFlight: { offsets: rememberedBatches, stored: rememberedBatches },
      duplicates: "silent",
      identityScope: "producer",
      idLookup: "none",
      durability: ["written", "synced"],
      compression: ["none", "gzip", "snappy", "lz4", "zstd"],
    },
    read: { holes: true, timestampResolutionMicros: 1_000, originTimestamp: "only", ids: "given", filters: "client" },
    catalog: {
      streams: "prefixes",
      groups: "names",
      purge: "trims",
      expiry: { supported: true },
      sizeRetention: { supported: true },
      addPartitions: { supported: true },
      trim: { supported: true },
    },
    offsets: { durability: ["written"], range: "any" },
    groups: { supported: true },
    staticMembers: { supported: true },
    queues,
    transactions,
    state,
    limits: {
      payloadBytes,
      headersBytes: Math.min(100_000, payloadBytes),
      headerNameBytes: 32_767,
      headerValueBytes: Math.min(100_000, payloadBytes),
      keyBytes: Math.min(65_535, payloadBytes),
      nameBytes: longestTopicName,
      partitions: 10_000,
      batchBytes: Math.min(usualBatchBytes, messageBytes),
      batchRecords: (1 << 20) - 1,
    },
  })
}

function deepFreeze<T extends object>(value: T): T {
  for (const part of Object.values(value)) if (typeof part === "object" && part !== null) deepFreeze(part)
  return Object.freeze(value)
}
