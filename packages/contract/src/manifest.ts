/**
 * What a backend can do, as data: for the core's decisions, for tests of presence and absence, and for the docs. A driver's manifest
 * is the most it can do; a session's is what this server can.
 */

/** A part of the contract that a backend has or lacks. What is lacking is refused with its reason and what to use instead. */
export type Capability =
  | { readonly supported: true }
  | { readonly supported: false; readonly reason: string; readonly instead: string }

/** Transactions, and what they can hold. */
export type TransactionCapability =
  | {
      readonly supported: true
      /** Whether one can have records of any partitions, or of one only. */
      readonly partitions: "any" | "one"
      /** Whether offsets of a consumer can be stored in one. */
      readonly offsets: Capability
      /** Whether one can be prepared, to be completed later, perhaps by another process. */
      readonly prepare: Capability
    }
  | Extract<Capability, { readonly supported: false }>

export type Durability = "synced" | "written"

/** What the records of a batch are compressed with on their way and in the log. */
export type Compression = "none" | "gzip" | "snappy" | "lz4" | "zstd"

export interface Manifest {
  /** The backend in words, for error messages: "embedded log", "Apache Kafka 4.4". */
  readonly backend: string
  readonly append: {
    /** How a resend is recognised: by producer sequence, by ids within a window, or not at all (then a resend may double). */
    readonly dedup: "sequence" | "idWindow" | "none"
    /**
     * Batches of one partition that may be under way at once, by what their confirmation tells: the offsets, or only that the records
     * are stored. More than 1 only where the backend refuses a gap; 0 where it cannot tell that much.
     */
    readonly inFlight: { readonly offsets: number; readonly stored: number }
    /** Whether a recognised resend is counted in `duplicates`, or answered as if it were new. */
    readonly duplicates: "counted" | "silent"
    /** How long a resend is recognised for certain; absent: as long as the identity lives. */
    readonly windowMs?: number
    /** What shares one producer identity. `none` where the backend has none. */
    readonly identityScope: "producer" | "topic" | "none"
    /** Whether ids that a caller gives are looked up, and how. */
    readonly idLookup: "window" | "resend" | "none"
    /** Durabilities that a topic can be created with; the first is the default. */
    readonly durability: readonly Durability[]
    /** What batches can be compressed with, as any reader of the backend reads it; `none` everywhere. */
    readonly compression: readonly Compression[]
  }
  readonly read: {
    /** Offsets of a partition can have holes. */
    readonly holes: boolean
    /** The resolution of record times. */
    readonly timestampResolutionMicros: number
    /** Whether the sender's time is kept beside the append time: of every record, where the caller gave one, or in its place. */
    readonly originTimestamp: "always" | "given" | "only"
    /** Whether every record comes back with its id, or only with one that the caller gave or a resend carried. */
    readonly ids: "all" | "given"
    /** Where filters are evaluated: next to the log, so that only what is selected crosses over, or by the core in the client. */
    readonly filters: "server" | "client"
  }
  readonly catalog: {
    /** Whether streams are objects of the backend or prefixes that always exist. */
    readonly streams: "objects" | "prefixes"
    /** Whether groups are objects that are created and deleted, or names that always exist and are forgotten only without members. */
    readonly groups: "objects" | "names"
    /** Whether a purge starts a new history at 0, or trims and goes on counting. */
    readonly purge: "restarts" | "trims"
    readonly expiry: Capability
    readonly sizeRetention: Capability
    readonly addPartitions: Capability
    readonly trim: Capability
  }
  readonly offsets: {
    /** Durabilities of a topic's stored offsets; the first is the default. */
    readonly durability: readonly Durability[]
    /** Whether any offset can be stored, or only one within what the partition holds: from 1 to the end. 0 then forgets. */
    readonly range: "any" | "held"
  }
  readonly groups: Capability
  /** Whether a member that comes back under a stable name takes its place. */
  readonly staticMembers: Capability
  readonly queues: Capability
  readonly transactions: TransactionCapability
  readonly state: Capability
  readonly limits: {
    readonly payloadBytes: number
    /** All headers of one record, names and values with the backend's overhead. */
    readonly headersBytes: number
    readonly headerNameBytes: number
    readonly headerValueBytes: number
    readonly keyBytes: number
    /** Stream, topic, group and consumer names, in UTF-8. */
    readonly nameBytes: number
    readonly partitions: number
    /** The largest batch by encoded bytes (unless one record alone is larger) and by records. */
    readonly batchBytes: number
    readonly batchRecords: number
  }
}
