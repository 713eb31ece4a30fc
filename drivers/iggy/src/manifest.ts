import type { Capability, Manifest, TransactionCapability } from "@millrace/contract"

/** Partitions that one request can create (iggy-wire.md: Limits). */
const mostPartitions: number = 1000

/** The least and the most that a segment may have (iggy-wire.md: Topic options). Retention removes whole segments, so a topic's size has the same least. */
export const leastSegmentBytes: number = 1 << 20
export const mostSegmentBytes: number = 1 << 30

const trim: Capability = {
  supported: false,
  reason: "the server removes whole segments by count, and tells nobody which offsets they hold",
  instead: "Use expireAfterMs or maxBytes, or purge the topic.",
}

const staticMembers: Capability = {
  supported: false,
  reason: "an Iggy server knows a member by its session alone",
  instead: "Leave memberId out: what a member committed is found again by whoever gets its partitions.",
}

const queues: Capability = {
  supported: false,
  reason: "the server acknowledges positions of a partition, not single messages",
  instead: "Use a consumer group, and commit each message after it was handled.",
}

const transactions: TransactionCapability = {
  supported: false,
  reason: "the server commits each batch by itself",
  instead: "Use handlers that can be repeated, and recognise what came twice by its message id.",
}

const state: Capability = {
  supported: false,
  reason: "the server keeps messages and offsets, but no values by key",
  instead: "Keep the newest value of each key in a topic, and read it from its first record.",
}

/**
 * What Apache Iggy can do on wire 0.11. A resend is not recognised there: a batch whose acknowledgement was lost, and that is sent
 * again, may be stored twice.
 */
export const iggyManifest: Manifest = deepFreeze({
  backend: "Apache Iggy",
  append: {
    dedup: "none",
    inFlight: { offsets: 1, stored: 1 },
    duplicates: "silent",
    identityScope: "none",
    idLookup: "none",
    durability: ["synced", "written"],
    compression: ["none"],
  },
  read: { holes: false, timestampResolutionMicros: 1, originTimestamp: "always", ids: "all", filters: "client" },
  catalog: {
    streams: "objects",
    groups: "objects",
    purge: "restarts",
    expiry: { supported: true },
    sizeRetention: { supported: true },
    addPartitions: { supported: true },
    trim,
  },
  offsets: { durability: ["written"], range: "held" },
  groups: { supported: true },
  staticMembers,
  queues,
  transactions,
  state,
  limits: {
    payloadBytes: 64_000_000,
    headersBytes: 100_000,
    headerNameBytes: 255,
    headerValueBytes: 255,
    keyBytes: 255,
    nameBytes: 255,
    partitions: mostPartitions,
    batchBytes: 4 << 20,
    batchRecords: (1 << 20) - 1,
  },
})

function deepFreeze<T extends object>(value: T): T {
  for (const part of Object.values(value)) if (typeof part === "object" && part !== null) deepFreeze(part)
  return Object.freeze(value)
}
