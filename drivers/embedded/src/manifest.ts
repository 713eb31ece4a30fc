import type { Capability, Manifest, TransactionCapability } from "@millrace/contract"
import { mostPartitions } from "./engine/catalog.ts"
import { rememberedBatches } from "./engine/producer-state.ts"

/** One batch: small enough to be written and synced within some milliseconds. */
const batchBytes = 4 << 20

const queues: Capability = {
  supported: false,
  reason: "work queues are not part of this release of the embedded log",
  instead: "Use a consumer group, and commit each message after it was handled.",
}

const transactions: TransactionCapability = {
  supported: false,
  reason: "transactions are not part of this release of the embedded log",
  instead: "Use an idempotent producer, and handlers that can be repeated.",
}

const state: Capability = {
  supported: false,
  reason: "small state is not part of this release of the embedded log",
  instead: "Keep the newest value of each key in a topic, and read it from its first record.",
}

/** What the embedded log can do. Every session has all of it. */
export const embeddedManifest: Manifest = deepFreeze({
  backend: "embedded log",
  append: {
    dedup: "sequence",
    inFlight: { offsets: rememberedBatches, stored: rememberedBatches },
    duplicates: "counted",
    identityScope: "producer",
    idLookup: "window",
    durability: ["synced", "written"],
    compression: ["none"],
  },
  read: { holes: false, timestampResolutionMicros: 1, originTimestamp: "always", ids: "all", filters: "server" },
  catalog: {
    streams: "objects",
    groups: "objects",
    purge: "restarts",
    expiry: { supported: true },
    sizeRetention: { supported: true },
    addPartitions: { supported: true },
    trim: { supported: true },
  },
  offsets: { durability: ["synced", "written"], range: "any" },
  groups: { supported: true },
  staticMembers: { supported: true },
  queues,
  transactions,
  state,
  limits: {
    payloadBytes: 64_000_000,
    headersBytes: 100_000,
    headerNameBytes: 255,
    headerValueBytes: 100_000,
    keyBytes: 65_535,
    nameBytes: 255,
    partitions: mostPartitions,
    batchBytes,
    batchRecords: (1 << 20) - 1,
  },
})

function deepFreeze<T extends object>(value: T): T {
  for (const part of Object.values(value)) if (typeof part === "object" && part !== null) deepFreeze(part)
  return Object.freeze(value)
}
