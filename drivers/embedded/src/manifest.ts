import type { Manifest, TransactionCapability } from "@millrace/contract"
import { mostPartitions } from "./engine/catalog.ts"
import { rememberedBatches } from "./engine/producer-state.ts"

/** One batch: small enough to be written and synced within some milliseconds. */
const batchBytes = 4 << 20

const transactions: TransactionCapability = {
  supported: true,
  partitions: "any",
  offsets: { supported: true },
  prepare: { supported: true },
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
  queues: { supported: true },
  transactions,
  state: { supported: true },
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
