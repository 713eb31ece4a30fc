/** Leases: runs of offsets that were handed out together, each offset settled or handed out again by itself. */
import type { Access, WriteAccess } from "./command.ts"

/** A lease in memory. What was changed is written by `saveLease`. */
export interface Lease {
  /** 0 while it has no row. */
  id: number
  readonly partition: number
  first: bigint
  count: number
  /** How many offsets are still this lease's. */
  open: number
  /** One bit an offset from `first` on: set when it is not this lease's. Absent: none is set. */
  done: Uint8Array | undefined
  readonly deliveries: number
  readonly waitMs: number
  /** The session that has them. Absent: they were given back. */
  readonly holder: number | undefined
  /** The lease that they were handed out with, which is what their tokens name. */
  readonly delivery: number
}

const columns = "id, partition, first, count, open, done, deliveries, wait_ms, holder, delivery"

/** The lease of that number, if it is still there. */
export function findLease(access: Access, queue: number, id: number): Lease | undefined {
  const row = access.statement(`SELECT ${columns} FROM queue_lease WHERE queue = ? AND id = ?`).get(queue, id)
  return row === undefined ? undefined : leaseOf(row)
}

/** Leases that hold offsets of another delivery since their wait began anew. */
export function movedLeases(access: Access, queue: number, delivery: number): Lease[] {
  return access
    .statement(`SELECT ${columns} FROM queue_lease WHERE queue = ? AND delivery = ? ORDER BY id`)
    .all(queue, delivery)
    .map(leaseOf)
}

/** All leases of a queue, or of one partition of it, by number. */
export function allLeases(access: Access, queue: number, partition?: number): Lease[] {
  const where = partition === undefined ? "" : " AND partition = ?"
  return access
    .statement(`SELECT ${columns} FROM queue_lease WHERE queue = ?${where} ORDER BY id`)
    .all(...(partition === undefined ? [queue] : [queue, partition]))
    .map(leaseOf)
}

/** Makes a row of a lease. A lease is shortened to what is open of it before. */
export function insertLease(access: WriteAccess, queue: number, lease: Lease): void {
  access
    .statement(`INSERT INTO queue_lease (queue, ${columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
    .run(
      queue,
      lease.id,
      lease.partition,
      lease.first,
      lease.count,
      lease.open,
      lease.done ?? null,
      lease.deliveries,
      lease.waitMs,
      lease.holder ?? null,
      lease.delivery === lease.id ? null : lease.delivery,
    )
}

/** Writes what is left of a lease that has a row, and removes it with its last offset. */
export function saveLease(access: WriteAccess, queue: number, lease: Lease): void {
  if (lease.open === 0) {
    access.statement("DELETE FROM queue_lease WHERE queue = ? AND id = ?").run(queue, lease.id)
    return
  }
  access
    .statement("UPDATE queue_lease SET open = ?, done = ? WHERE queue = ? AND id = ?")
    .run(lease.open, lease.done ?? null, queue, lease.id)
}

/** The place of an offset in a lease that still has it; −1 where it has not. */
export function openPlace(lease: Lease, offset: bigint): number {
  const place = Number(offset - lease.first)
  return place >= 0 && place < lease.count && isOpen(lease, place) ? place : -1
}

/** Whether the offset at a place is this lease's. */
export function isOpen({ done }: Lease, place: number): boolean {
  return done === undefined || ((done[place >> 3] as number) & (1 << (place & 7))) === 0
}

/** Takes the offset at a place out of the lease; it is open. */
export function closePlace(lease: Lease, place: number): void {
  lease.done ??= new Uint8Array((lease.count + 7) >> 3)
  const at = place >> 3
  lease.done[at] = (lease.done[at] as number) | (1 << (place & 7))
  lease.open -= 1
}

/** A lease over the same run that has nothing yet, to move offsets to. It has no row and no number. */
export function emptyMirror(lease: Lease, what: Pick<Lease, "waitMs" | "holder" | "delivery">): Lease {
  const done = new Uint8Array((lease.count + 7) >> 3).fill(255)
  const { partition, first, count, deliveries } = lease
  return { id: 0, partition, first, count, open: 0, done, deliveries, ...what }
}

/** Gives the lease the offset at a place, which it has not. */
export function openAt(lease: Lease, place: number): void {
  const { done } = lease
  if (done !== undefined) done[place >> 3] = (done[place >> 3] as number) & ~(1 << (place & 7))
  lease.open += 1
}

/** Cuts what is not open from both ends; a lease without holes needs no bits. Some offset is open. */
export function shorten(lease: Lease): void {
  const from = firstOpen(lease)
  const count = lastOpen(lease) - from + 1
  let done: Uint8Array | undefined
  if (lease.open < count) {
    done = new Uint8Array((count + 7) >> 3)
    for (let place = 0; place < count; place++)
      if (!isOpen(lease, from + place)) done[place >> 3] = (done[place >> 3] as number) | (1 << (place & 7))
  }
  lease.first += BigInt(from)
  lease.count = count
  lease.done = done
}

/** The place of the first offset that is open. */
export function firstOpen(lease: Lease): number {
  let place = 0
  while (place < lease.count && !isOpen(lease, place)) place++
  return place
}

/** The place of the last offset that is open; −1 when none is. */
export function lastOpen(lease: Lease): number {
  let place = lease.count - 1
  while (place >= 0 && !isOpen(lease, place)) place--
  return place
}

/** Takes out all offsets below one. Answers how many there were. */
export function closeBelow(lease: Lease, offset: bigint): number {
  const end = offset - lease.first
  if (end <= 0n) return 0
  const before = lease.open
  if (end >= BigInt(lease.count)) lease.open = 0
  else for (let place = 0; place < Number(end); place++) if (isOpen(lease, place)) closePlace(lease, place)
  return before - lease.open
}

function leaseOf(row: Readonly<Record<string, unknown>>): Lease {
  const id = Number(row.id)
  return {
    id,
    partition: Number(row.partition),
    first: row.first as bigint,
    count: Number(row.count),
    open: Number(row.open),
    done: (row.done as Uint8Array | null) ?? undefined,
    deliveries: Number(row.deliveries),
    waitMs: row.wait_ms as number,
    holder: row.holder === null ? undefined : Number(row.holder),
    delivery: row.delivery === null ? id : Number(row.delivery),
  }
}
