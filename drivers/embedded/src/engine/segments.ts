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
    this.#pending.set(topic.id, pending)
    const position = pending.end
    pending.bodies.push(body)
    pending.end += body.length
    return { segment: pending.segment, position }
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

  /** After a commit: removes the files of segments that it has left without a batch. */
  removeDropped(): void {
    for (const segment of this.#doomed) this.#files.remove(segment)
    this.#doomed = []
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
      if (size === 0 || (size + bytes <= limitOf(topic) && !isOld(topic, row.created as bigint, transaction.nowMicros)))
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
    if (this.#store.synced) {
      fdatasyncSync(fd)
      if (fresh) syncDirectory(this.#store.directory.segments)
    }
    transaction.statement("UPDATE segment SET size = ?, live = live + ? WHERE id = ?").run(end, end - start, segment)
  }
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
