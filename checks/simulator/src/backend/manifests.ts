/** The manifests that a faulty backend can have: one for each way in which backends recognise a resend. */
import type { Manifest } from "@millrace/contract"

/**
 * - `sequence`: producer identities with sequences, five batches in flight, ids of resends looked up (as the embedded log).
 * - `sequenceOnly`: the same without ids (as Kafka).
 * - `idWindow`: ids within two minutes, one batch in flight (as NATS).
 * - `idWindowStored`: the same; where only the storage is confirmed, five in flight (as NATS with its fast ingest).
 * - `none`: resends are not recognised, one batch in flight (as Iggy).
 */
export type BackendKind = "sequence" | "sequenceOnly" | "idWindow" | "idWindowStored" | "none"

export const backendKinds: readonly BackendKind[] = ["sequence", "sequenceOnly", "idWindow", "idWindowStored", "none"]

/** How long ids are remembered, in ms. */
export const idWindowMs: number = 120_000

const appends: Readonly<
  Record<BackendKind, Omit<Manifest["append"], "identityScope" | "duplicates" | "durability" | "compression">>
> = {
  sequence: { dedup: "sequence", inFlight: { offsets: 5, stored: 5 }, idLookup: "resend" },
  sequenceOnly: { dedup: "sequence", inFlight: { offsets: 5, stored: 5 }, idLookup: "none" },
  idWindow: { dedup: "idWindow", inFlight: { offsets: 1, stored: 1 }, windowMs: idWindowMs, idLookup: "window" },
  idWindowStored: { dedup: "idWindow", inFlight: { offsets: 1, stored: 5 }, windowMs: idWindowMs, idLookup: "window" },
  none: { dedup: "none", inFlight: { offsets: 1, stored: 1 }, idLookup: "none" },
}

/** What may differ within a kind. */
export interface ManifestVariation {
  /** What shares one identity, where the kind has identities. Default `producer`. */
  readonly identityScope?: "producer" | "topic"
  /** Whether recognised resends are counted. Default `counted`. */
  readonly duplicates?: "counted" | "silent"
  /** Whether it has groups, also with members of stable names. Default false. */
  readonly groups?: boolean
  /** Whether it has work queues, transactions of everything, and small state. Default false. */
  readonly queues?: boolean
  readonly transactions?: boolean
  readonly state?: boolean
  /** Whether its offsets can have holes. Default false. */
  readonly holes?: boolean
  /** Of one record's payload. Default 10,000. */
  readonly payloadBytes?: number
}

const absent = { supported: false, reason: "it is simulated", instead: "Use a real one" } as const
const present = { supported: true } as const

/** A whole manifest of a kind. */
export function manifestOf(kind: BackendKind, variation: ManifestVariation = {}): Manifest {
  const {
    identityScope = "producer",
    duplicates = "counted",
    payloadBytes = 10_000,
    groups = false,
    holes = false,
    queues = false,
    transactions = false,
    state = false,
  } = variation
  const append = appends[kind]
  return {
    backend: `simulated ${kind} log`,
    append: {
      ...append,
      duplicates,
      identityScope: append.dedup === "sequence" ? identityScope : "none",
      durability: ["synced", "written"],
      compression: ["none"],
    },
    read: { holes, timestampResolutionMicros: 1, originTimestamp: "always", ids: "all", filters: "client" },
    catalog: {
      streams: "objects",
      groups: "names",
      purge: "restarts",
      expiry: present,
      sizeRetention: present,
      addPartitions: present,
      trim: present,
    },
    offsets: { durability: ["synced", "written"], range: "any" },
    groups: groups ? present : absent,
    staticMembers: groups ? present : absent,
    queues: queues ? present : absent,
    transactions: transactions ? { ...present, partitions: "any", offsets: present, prepare: present } : absent,
    state: state ? present : absent,
    limits: {
      payloadBytes,
      headersBytes: 5000,
      headerNameBytes: 255,
      headerValueBytes: 1000,
      keyBytes: 100,
      nameBytes: 255,
      partitions: 100,
      batchBytes: 1_000_000,
      batchRecords: 100_000,
    },
  }
}
