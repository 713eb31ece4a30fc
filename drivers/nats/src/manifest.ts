import type { Capability, Manifest, TransactionCapability } from "@millrace/contract"
import { longestHeaderBlock, reservedHeaderBytes } from "./batch-writer.ts"
import { mostAtomicRecords } from "./confirmed-append.ts"
import { longestStreamName } from "./names.ts"

/** The largest `max_payload` that a server can be told to take. */
const largestPayload = 64 << 20

/** What the headers of a record take of `max_payload` when nothing but an id is there, with room for short headers. */
const headerRoom = 1_024

/** Batches under way at once for one partition by fast ingest: as many as keep the server busy (see `ingest.machine.ts`). */
const ingestBatches = 4

/** Keys and headers share a block of 65,535 bytes, and base64 makes four of three. */
const mostKeyBytes = 8_192
const mostHeaderBytes = Math.floor(((longestHeaderBlock - reservedHeaderBytes - 1_024) * 3) / 4) - mostKeyBytes

const queues: Capability = {
  supported: false,
  reason: "work queues are not part of this release on NATS JetStream",
  instead: "Use a consumer group, and commit each message after it was handled.",
}

const transactions: TransactionCapability = {
  supported: false,
  reason: "transactions are not part of this release on NATS JetStream",
  instead: "Use ids that tell what was sent before, and handlers that can be repeated.",
}

const state: Capability = {
  supported: false,
  reason: "small state is not part of this release on NATS JetStream",
  instead: "Keep the newest value of each key in a topic, and read it from its first record.",
}

/** What JetStream can do at most. */
export const natsManifest: Manifest = manifestOf({ maxPayloadBytes: largestPayload, fastIngest: true })

/** What a server can do. @param server `fastIngest`: 2.14 or newer. */
export function manifestOf(server: { readonly maxPayloadBytes: number; readonly fastIngest: boolean }): Manifest {
  const payloadBytes = Math.max(1, server.maxPayloadBytes - headerRoom)
  return deepFreeze({
    backend: "NATS JetStream",
    append: {
      dedup: "idWindow",
      inFlight: { offsets: 1, stored: server.fastIngest ? ingestBatches : 1 },
      duplicates: "counted",
      windowMs: 120_000,
      identityScope: "none",
      idLookup: "window",
      durability: ["written"],
      compression: ["none"],
    },
    read: { holes: true, timestampResolutionMicros: 1, originTimestamp: "given", ids: "all", filters: "client" },
    catalog: {
      streams: "prefixes",
      groups: "objects",
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
      headersBytes: Math.min(mostHeaderBytes, payloadBytes),
      headerNameBytes: 255,
      headerValueBytes: Math.min(mostHeaderBytes, payloadBytes),
      keyBytes: Math.min(mostKeyBytes, payloadBytes),
      nameBytes: longestStreamName,
      partitions: 256,
      batchBytes: 4 << 20,
      batchRecords: mostAtomicRecords,
    },
  })
}

function deepFreeze<T extends object>(value: T): T {
  for (const part of Object.values(value)) if (typeof part === "object" && part !== null) deepFreeze(part)
  return Object.freeze(value)
}
