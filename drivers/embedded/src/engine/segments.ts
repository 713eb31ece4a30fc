/**
 * The files that hold the bytes of large batches. SQLite knows what is in them: a segment's committed end, and the place of each batch.
 * Bytes behind the committed end mean nothing and are overwritten by the next commit, so a crash leaves nothing to repair. Each byte
 * of a large batch is so written once, where a blob in SQLite is written twice (to the write-ahead log, then to the database).
 *
 * All writing happens inside a write transaction, whose lock keeps other processes out.
 */
import { fdatasyncSync, writevSync } from "node:fs"
import { StorageError } from "@millrace/contract"
import { topicKey } from "./catalog-cache.ts"
import type { TopicRow } from "./command.ts"
import { SegmentFiles, type SegmentPlace } from "./segment-files.ts"
import type { Store } from "./store.ts"
import { syncDirectory } from "./store-directory.ts"
import type { Transaction } from "./transaction.ts"

/** A segment takes no more batches above this. */
const segmentBytes = 64 << 20

/** A topic with a size limit has at least so many segments, so that little more than its limit is on the disk. */
const segmentsPerLimit = 8
const smallestSegmentBytes = 256 << 10

/** A topic whose records expire has at least so many segments in that time. */
const segmentsPerExpiry = 4
const shortestSegmentMs = 1000

/** Below so many bytes a commit of a topic keeps its batches inside SQLite: one sync instead of two. */
const inlineBelowBytes = 64 << 10

/** One call writes at most so many batches (the system's limit is 1,024). */
const mostBuffersPerWrite = 512

/** So many bytes that are staged in one segment wait for their sync at most: a commit finds little left to do. */
const mostUnsyncedBytes = 8 << 20

/** A segment with bytes that were written in commits without a sync. */
interface Unsynced {
  bytes: number
  /** Why the disk did not take them. They may be lost, and a later sync would not say so. */
  failure?: unknown
}

interface Pending {
  readonly segment: bigint
  readonly fresh: boolean
  readonly start: number
  end: number
  readonly bodies: Uint8Array[]
}

/** The segments of a store as one thread writes and reads them. */
export class Segments {
  readonly #store: Store
  readonly #pending = new Map<number, Pending>()
  readonly #files: SegmentFiles
  readonly #unsynced = new Map<bigint, Unsynced>()
  #doomed: bigint[] = []

  constructor(store: Store) {
    this.#store = store
    this.#files = new SegmentFiles(store.directory, "write")
  }

  /** The place of a batch that this transaction appends; `undefined` when it is to be kept inside SQLite. */
  place(transaction: Transaction, topic: TopicRow, body: Uint8Array): SegmentPlace | undefined {
    // What is not synced must not lie where a power failure could tear it from its index.
    if (this.#store.synced && topic.durability !== "synced") return undefined
    let pending = this.#pending.get(topic.id)
    if (pending === undefined) {
      if ((transaction.incoming.get(topicKey(topic)) ?? 0) < inlineBelowBytes) return undefined
      pending = this.#openFor(transaction, topic, body.length)
    } else if (pending.end > 0 && pending.end + body.length > limitOf(topic)) {
      this.#write(transaction, pending)
      pending = this.#openFor(transaction, topic, body.length)
    }
    return this.#put(topic, pending, body)
  }

  /**
   * The place of a batch that is staged for a later commit, which syncs it first, also in a topic that is not synced otherwise.
   * @param options `always`: it must not be kept inside SQLite.
   */
  placeStaged(
    transaction: Transaction,
    topic: TopicRow,
    { body, always }: { readonly body: Uint8Array; readonly always: boolean },
  ): SegmentPlace | undefined {
    let pending = this.#pending.get(topic.id)
    if (pending === undefined) {
      const written = this.#store.synced && topic.durability !== "synced"
      const incoming = transaction.incoming.get(topicKey(topic)) ?? 0
      if (!always && (written || incoming < inlineBelowBytes)) return undefined
      pending = this.#openFor(transaction, topic, body.length)
    } else if (pending.end > 0 && pending.end + body.length > limitOf(topic)) {
      this.#write(transaction, pending)
      pending = this.#openFor(transaction, topic, body.length)
    }
    return this.#put(topic, pending, body)
  }

  /** Whether there are segments that a commit of something staged has to sync first. */
  get hasUnsynced(): boolean {
    return this.#unsynced.size > 0
  }

  /** Syncs what was staged in a segment. Before the commit that makes it count. @throws what the disk says, also when it said so before */
  syncStaged(transaction: Transaction, segment: bigint): void {
    const unsynced = this.#unsynced.get(segment)
    if (unsynced === undefined) return
    if (unsynced.failure !== undefined) throw lostBytes(segment, unsynced.failure)
    this.#sync(segment, unsynced, transaction.monotonicMs)
    this.#unsynced.delete(segment)
  }

  /** Writes and, in a store that syncs, syncs what this transaction has placed. Before its commit. */
  flush(transaction: Transaction): void {
    for (const pending of this.#pending.values()) this.#write(transaction, pending)
    this.#pending.clear()
  }

  /** Forgets what a transaction has placed that did not commit. */
  abandon(): void {
    this.#pending.clear()
    this.#doomed = []
  }

  /** Counts bytes off that no batch uses any more; the file of a segment without any goes after the commit. */
  drop(transaction: Transaction, segment: bigint, bytes: number): void {
    const row = transaction
      .statement("UPDATE segment SET live = live - ? WHERE id = ? RETURNING live")
      .get(bytes, segment)
    if (row === undefined || (row.live as bigint) > 0n) return
    this.#bury(transaction, segment)
  }

  /**
   * Goes on with segments that were left without a batch: their files are removed after this commit, their rows by a later one. The
   * transaction must be synced. Answers whether there was anything.
   */
  removeDead(transaction: Transaction, most: number): boolean {
    const gone = transaction.statement("SELECT id FROM segment WHERE state = 'gone' LIMIT ?").all(most)
    for (const { id } of gone) {
      // A crash may have come between the commit and the removal.
      this.#files.remove(id as bigint)
      transaction.statement("DELETE FROM segment WHERE id = ?").run(id as bigint)
    }
    const dead = transaction.statement("SELECT id FROM segment WHERE state = 'dead' LIMIT ?").all(most)
    for (const { id } of dead) this.#bury(transaction, id as bigint)
    return gone.length + dead.length > 0
  }

  /** A file may go only once the disk knows that nothing is in it: after a commit that is synced. */
  #bury(transaction: Transaction, segment: bigint): void {
    transaction
      .statement("UPDATE segment SET state = ? WHERE id = ?")
      .run(transaction.synced ? "gone" : "dead", segment)
    if (transaction.synced) this.#doomed.push(segment)
  }

  /** Ends the open segment of a topic that is deleted. */
  seal(transaction: Transaction, topicId: number): void {
    transaction.statement("UPDATE segment SET state = 'full' WHERE topic = ? AND state = 'open'").run(topicId)
  }

  /** After a commit: removes the files of segments that it has left without a batch, and syncs where much was staged. */
  committed(nowMs: number): void {
    for (const segment of this.#doomed) {
      this.#files.remove(segment)
      this.#unsynced.delete(segment)
    }
    this.#doomed = []
    for (const [segment, unsynced] of this.#unsynced) {
      if (unsynced.bytes < mostUnsyncedBytes || unsynced.failure !== undefined) continue
      try {
        this.#sync(segment, unsynced, nowMs)
        this.#unsynced.delete(segment)
      } catch {
        // It stays with what was staged. Nothing that was confirmed depends on it, and the commit that does is told.
      }
    }
  }

  /** As `SegmentFiles.read`. */
  read(place: SegmentPlace, target: Uint8Array, nowMs: number): boolean {
    return this.#files.read(place, target, nowMs)
  }

  /** As `SegmentFiles.closeIdle`. */
  closeIdle(nowMs: number, idleMs: number): void {
    this.#files.closeIdle(nowMs, idleMs)
  }

  close(): void {
    this.#files.close()
  }

  #openFor(transaction: Transaction, topic: TopicRow, bytes: number): Pending {
    const row = transaction
      .statement("SELECT id, size, created FROM segment WHERE topic = ? AND state = 'open'")
      .get(topic.id)
    if (row !== undefined) {
      const size = Number(row.size)
      const fits = size === 0 || size + bytes <= limitOf(topic)
      // What is written behind bytes that may be lost would be taken for lost with them.
      const failed = this.#unsynced.get(row.id as bigint)?.failure !== undefined
      if (!failed && fits && (size === 0 || !isOld(topic, row.created as bigint, transaction.nowMicros)))
        return { segment: row.id as bigint, fresh: false, start: size, end: size, bodies: [] }
      transaction.statement("UPDATE segment SET state = 'full' WHERE id = ?").run(row.id as bigint)
    }
    const segment = transaction.count("nextSegment")
    transaction
      .statement("INSERT INTO segment (id, topic, size, live, created, state) VALUES (?, ?, 0, 0, ?, 'open')")
      .run(segment, topic.id, transaction.nowMicros)
    return { segment, fresh: true, start: 0, end: 0, bodies: [] }
  }

  #write(transaction: Transaction, pending: Pending): void {
    const { segment, fresh, start, end, bodies } = pending
    const fd = this.#files.writable(segment, fresh, transaction.monotonicMs)
    for (let i = 0, position = start; i < bodies.length; i += mostBuffersPerWrite) {
      const part = bodies.slice(i, i + mostBuffersPerWrite)
      writeAll(fd, part, position)
      for (const body of part) position += body.length
    }
    // At once, also where the bytes can wait: others who sync bytes of theirs in it take it for made.
    if (this.#store.synced && fresh) syncDirectory(this.#store.directory.segments)
    if (this.#store.synced && transaction.synced) {
      const unsynced = this.#unsynced.get(segment) ?? { bytes: 0 }
      this.#sync(segment, unsynced, transaction.monotonicMs)
      if (unsynced.failure === undefined) this.#unsynced.delete(segment)
    } else if (this.#store.synced) this.#noteUnsynced(segment, end - start)
    transaction.statement("UPDATE segment SET size = ?, live = live + ? WHERE id = ?").run(end, end - start, segment)
  }

  #put(topic: TopicRow, pending: Pending, body: Uint8Array): SegmentPlace {
    this.#pending.set(topic.id, pending)
    const position = pending.end
    pending.bodies.push(body)
    pending.end += body.length
    return { segment: pending.segment, position }
  }

  #noteUnsynced(segment: bigint, bytes: number): void {
    const known = this.#unsynced.get(segment)
    if (known === undefined) this.#unsynced.set(segment, { bytes })
    else known.bytes += bytes
  }

  /**
   * A file that is not there any more has nothing that anybody waits for. A failure stays with what was staged in it: the system tells it
   * once, and the next sync would go well.
   */
  #sync(segment: bigint, unsynced: Unsynced, nowMs: number): void {
    try {
      fdatasyncSync(this.#files.writable(segment, false, nowMs))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return
      unsynced.failure = error
      throw error
    }
  }
}

function lostBytes(segment: bigint, cause: unknown): StorageError {
  return new StorageError(
    `what was staged in segment ${segment} did not reach the disk: abort the transaction, and send its records in a new one`,
    { cause },
  )
}

function limitOf(topic: TopicRow): number {
  if (topic.maxBytes === undefined) return segmentBytes
  const share = Number(topic.maxBytes) / segmentsPerLimit
  return Math.min(segmentBytes, Math.max(smallestSegmentBytes, share))
}

function isOld(topic: TopicRow, created: bigint, nowMicros: bigint): boolean {
  if (topic.expireAfterMs === undefined) return false
  return Number(nowMicros - created) / 1000 > Math.max(shortestSegmentMs, topic.expireAfterMs / segmentsPerExpiry)
}

function writeAll(fd: number, buffers: readonly Uint8Array[], position: number): void {
  let rest = buffers
  let at = position
  while (rest.length > 0) {
    let written = writevSync(fd, rest, at)
    if (written === 0) throw new StorageError(`the system wrote nothing of ${rest.length} batches to a segment`)
    at += written
    const left: Uint8Array[] = []
    for (const buffer of rest) {
      if (written >= buffer.length) written -= buffer.length
      else {
        left.push(written > 0 ? buffer.subarray(written) : buffer)
        written = 0
      }
    }
    rest = left
  }
}
