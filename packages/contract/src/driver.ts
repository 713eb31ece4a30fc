/**
 * The driver contract: all that the core ever asks of a backend.
 *
 * - Arguments arrive complete, checked and encoded. A driver neither validates names, nor retries, nor lingers, nor buffers beyond
 *   one call, so that each policy has one home in the core.
 * - Every failure is a `MillraceError` whose `outcome` is true: nothing may turn unknown into rejected.
 * - No method is optional. What a backend lacks is in the manifest, and the core refuses before calling.
 * - After `close` every pending call has settled, and later ones fail with `ClosedError`.
 */
import type { MillraceError } from "./error.ts"
import type { TopicFilter } from "./filter/filter.ts"
import type { Compression, Durability, Manifest } from "./manifest.ts"
import type { Anchor, Claim, Lineage, Position, TopicName, TopicPartition, Watermarks } from "./position.ts"
import type { QueueBroker } from "./queue-broker.ts"
import type { BatchWriter, EncodedBatch, SealedBatch } from "./record.ts"
import type { StateStore } from "./state-store.ts"
import type { TransactionHandle, Transactions } from "./transactions.ts"

export interface Driver {
  /** URL schemes without the colon. */
  readonly schemes: readonly string[]
  /** The options that a connection string may carry. Unknown ones are refused before `connect`. */
  readonly options: Readonly<Record<string, OptionKind>>
  readonly manifest: Manifest
  connect(target: ConnectTarget, options: SessionOptions): Promise<Session>
}

export interface SessionOptions {
  /** For the first connection. A session that had one reconnects by itself, at a bounded pace, until it is closed. */
  readonly timeoutMs: number
  readonly signal?: AbortSignal
  /** Told when a server is lost, and when it or another in its place answers again. */
  readonly onConnection?: (change: ConnectionChange) => void
}

/** `host:port` as it was connected to. */
export type ConnectionChange =
  | { readonly state: "lost"; readonly server: string; readonly error: MillraceError }
  | { readonly state: "restored"; readonly server: string; readonly afterMs: number }

/** How an option's text is read: `5s` as ms, `1MiB` as bytes, a whole number, true or false, any text. */
export type OptionKind = "duration" | "size" | "count" | "flag" | "text"

export interface ConnectTarget {
  readonly scheme: string
  readonly hosts: readonly { readonly host: string; readonly port?: number }[]
  /** As written, percent-decoded; for a file scheme the directory. */
  readonly path: string
  readonly username?: string
  readonly password?: string
  readonly options: Readonly<Record<string, number | boolean | string>>
}

export interface Session {
  /** What this server can do; frozen. */
  readonly manifest: Manifest
  readonly catalog: Catalog
  readonly log: PartitionLog
  readonly offsets: OffsetStore
  readonly groups: GroupCoordinator
  readonly queues: QueueBroker
  readonly transactions: Transactions
  readonly state: StateStore
  /** The client underneath, for what the SDK does not expose. */
  readonly native: unknown
  /** Ends readers and memberships, settles what is under way, frees everything. The second call awaits the first. */
  close(): Promise<void>
}

// ---- catalog ----------------------------------------------------------------------------------------------

export interface TopicSpec {
  readonly partitions: number
  /** Absent: records never expire. */
  readonly expireAfterMs?: number
  /** Absent: no limit. Payload and overhead of all partitions together. */
  readonly maxBytes?: bigint
  readonly durability: Durability
  readonly offsetDurability: Durability
  readonly deduplicationWindowMs: number
  readonly deduplicateIds: boolean
  readonly native?: Readonly<Record<string, unknown>>
}

export interface TopicDescription extends TopicName, Omit<TopicSpec, "partitions"> {
  readonly lineage: Lineage
  readonly partitions: readonly PartitionDescription[]
  /** Absent where the backend does not tell. */
  readonly createdMicros?: bigint
}

export interface PartitionDescription {
  readonly partition: number
  readonly leader?: string
  readonly rack?: string
}

export interface StreamDescription {
  readonly stream: string
  readonly topics: number
  readonly createdMicros?: bigint
}

export interface Catalog {
  /** @throws AlreadyExistsError */
  createStream(stream: string): Promise<void>
  /** @throws AlreadyExistsError, NotFoundError for the stream */
  createTopic(name: TopicName, spec: TopicSpec): Promise<TopicDescription>
  /** @throws NotFoundError */
  describeStream(stream: string): Promise<StreamDescription>
  /** @throws NotFoundError */
  describeTopic(name: TopicName): Promise<TopicDescription>
  listStreams(): Promise<StreamDescription[]>
  listTopics(stream: string): Promise<TopicDescription[]>
  /** `count` more, numbered on. */
  addPartitions(name: TopicName, count: number): Promise<TopicDescription>
  /** Removes whole batches below `before`; answers what is left. Never removes a record at or behind it. */
  trim(partition: TopicPartition, before: bigint): Promise<Watermarks>
  purgeTopic(name: TopicName): Promise<void>
  deleteTopic(name: TopicName): Promise<void>
  /** Deletes the stream with all of its topics. */
  deleteStream(stream: string): Promise<void>
}

// ---- log --------------------------------------------------------------------------------------------------

export interface PartitionLog {
  /** The backend's own hash of a key, so that other clients agree; the core takes it modulo the partition count. */
  keyHash(key: Uint8Array): number
  /** A writer for one batch. The limits are at most the manifest's, and count before compression. */
  writer(topic: TopicDescription, partition: number, limits: WriterLimits): BatchWriter
  /** A new producer identity, or with `bump` the next epoch of one, which starts its sequences at 0 again. */
  identify(topic: TopicName, bump?: Identity): Promise<Identity>
  /**
   * Appends one batch. Batches of one partition are handled in the order of the calls. Several appends of one turn may share a request.
   * A batch that was made before a purge is appended, into the new history; one that was made before the topic was recreated is refused.
   * @throws SequenceError when the sequence does not continue the partition's, FencedError for an old epoch, NotFoundError when the
   *   topic is gone or was recreated, RecordTooLargeError when the batch is too large for the backend (split it), DiskFullError
   */
  append(batch: SealedBatch, options: AppendOptions): Promise<AppendResult>
  openReader(options: ReaderOptions): LogReader
  /** Where an anchor stands now, one answer a query, in order. A time behind all records answers the end. */
  locate(queries: readonly (TopicPartition & { readonly at: Anchor })[]): Promise<(Position | MillraceError)[]>
  watermarks(partitions: readonly TopicPartition[]): Promise<(Watermarks | MillraceError)[]>
}

export interface WriterLimits {
  readonly records: number
  /** A first record above it comes alone. */
  readonly bytes: number
  /** One of the manifest's. Absent: what the connection was opened with, which is none unless its URL says otherwise. */
  readonly compression?: Compression
}

export interface Identity {
  readonly producerId: bigint
  readonly epoch: number
}

export interface AppendOptions {
  /** With the sequence of record 0: counts records of this identity and partition, 31 bits, wrapping to 0. */
  readonly identity?: Identity & { readonly sequence: number }
  /** What the caller wants to be told. `stored` leaves the driver free to take a cheaper way. Default: `offsets` where the backend tells. */
  readonly confirm?: "offsets" | "stored"
  /**
   * Then the batch is staged: the answer says that it was accepted, and tells no offsets; `commit` does. With an identity it is the one
   * of the transaction's session, and a batch that is sent again is staged once.
   */
  readonly transaction?: TransactionHandle
}

export interface AppendResult {
  /** The offset of record 0, where the backend tells. */
  readonly base?: bigint
  /** Whether record i has offset `base + i`. */
  readonly contiguous: boolean
  /** How many records the backend recognised as already there; 0 where it does not tell. */
  readonly duplicates: number
  /** The append time. */
  readonly timestampMicros?: bigint
}

export interface ReaderOptions {
  readonly isolation: "committed" | "uncommitted"
  /**
   * Only where the manifest's `read.filters` is "server": batches hold only the records that the topic's filter selects, and `nextOffset`
   * covers all that were examined, also when none was selected. A topic that is not named is read as it is.
   */
  readonly filters?: readonly TopicFilter[]
}

export interface ReadPosition extends Position {
  readonly claim?: Claim
}

/** Stateful on the driver's side. One `next` at a time; it is never abandoned: an owner that no longer wants it closes the reader. */
export interface LogReader {
  /** Replaces the partitions to read. Those that stay at the reader's present offset go on undisturbed; a pending `next` takes note at once. */
  set(positions: readonly ReadPosition[]): void
  /**
   * One long poll over all partitions, fair among them. A rejection that is retryable (the server is gone) leaves the reader as it was. When the wait ends with fewer than `minRecords` it answers what is there, which may
   * be nothing; it may also answer `[]` early, and is asked again.
   */
  next(limits: ReadLimits): Promise<PartitionRead[]>
  /** A pending `next` answers `[]`. */
  close(): Promise<void>
}

export interface ReadLimits {
  readonly maxRecords: number
  /** Of encoded batches. A first batch above it comes alone. */
  readonly maxBytes: number
  readonly minRecords: number
  /** 0: answer what is there. */
  readonly maxWaitMs: number
}

/** One partition's part of a poll. A failed partition is not read again until `set` gives it a position; the others go on. */
export type PartitionRead = TopicPartition &
  (
    | {
        readonly batches: readonly EncodedBatch[]
        /** Where the reader goes on: over holes, markers and filtered records. The first batch may begin before the position asked for. */
        readonly nextOffset: bigint
        /** The end of the partition at the poll. */
        readonly head: bigint
        readonly lineage: Lineage
        readonly claim?: Claim
        readonly error?: undefined
      }
    | {
        /** HistoryChangedError, OffsetOutOfRangeError, NotFoundError, CorruptionError … */ readonly error: MillraceError
      }
  )

// ---- offsets and groups -----------------------------------------------------------------------------------

/** Whose progress: a named consumer's or a group's. The two never meet. */
export interface OffsetOwner {
  readonly kind: "consumer" | "group"
  readonly name: string
}

export interface OffsetEntry extends Position {
  /** Fences the store. Absent for named consumers, and for a group while nobody owns the partition. */
  readonly claim?: Claim
}

export interface OffsetStore {
  /** The stored *next* offset of each partition, in order; `undefined` where none is stored for the present history. */
  load(owner: OffsetOwner, partitions: readonly TopicPartition[]): Promise<(Position | undefined | MillraceError)[]>
  /** One outcome an entry: `undefined` is success. May move back. NotAssignedError, HistoryChangedError, NotFoundError. */
  store(owner: OffsetOwner, entries: readonly OffsetEntry[]): Promise<(MillraceError | undefined)[]>
  delete(
    owner: OffsetOwner,
    entries: readonly (TopicPartition & { readonly claim?: Claim })[],
  ): Promise<(MillraceError | undefined)[]>
}

export interface GroupCoordinator {
  /** Where groups are names there is nothing to do. @throws AlreadyExistsError */
  create(group: string, topic: TopicName): Promise<void>
  /** @throws NotFoundError; where groups are names, one that nobody uses has no members */
  describe(group: string, topic: TopicName): Promise<GroupDescription>
  /**
   * Forgets the group and its offsets. Members lose their claims; those that read nothing else end with NotFoundError.
   * @throws NotFoundError; InvalidError where groups are names and this one has members
   */
  delete(group: string, topic: TopicName): Promise<void>
  /** Settles once the member is known to the others. @throws NotFoundError when a topic, or a group that is an object, does not exist */
  join(group: string, topics: readonly TopicName[], options: JoinOptions): Promise<Membership>
}

export interface GroupDescription {
  readonly group: string
  readonly generation: number
  readonly members: readonly { readonly memberId: string; readonly partitions: readonly TopicPartition[] }[]
}

export interface JoinOptions {
  /** A stable name: a member that comes back with it takes its place. Absent: a fresh one. */
  readonly memberId?: string
  readonly sessionTimeoutMs: number
  readonly rebalanceTimeoutMs: number
}

export interface Membership {
  readonly memberId: string
  /** What changes, in order: a revocation before the same partition's next assignment. The first tells the first assignment, which may be empty. Ends after `leave`; fails with FencedError when the member is gone for good. */
  readonly changes: AsyncIterable<AssignmentChange>
  /** Hands revoked partitions over. The claims are void from here on. */
  release(claims: readonly Claim[]): Promise<void>
  leave(): Promise<void>
}

/** To be handled in the order lost, revoked, assigned. A partition is in one of them only. */
export interface AssignmentChange {
  readonly assigned: readonly Claim[]
  /** To be drained, committed and released within `deadlineMs`; then fenced. */
  readonly revoked: readonly Claim[]
  /** Already another's: drop at once. */
  readonly lost: readonly Claim[]
  readonly deadlineMs: number
}
