/**
 * What one engine knows of one queue, beyond the store: when the leases that it has seen are over, on its own clock. A lease is looked at
 * once, since it never changes its wait: one that begins anew is another lease with another number.
 *
 * Only what is committed counts. A transaction that does not commit takes its leases back, so what it made and what it used up is
 * looked at again by the next one.
 */
import type { QueueSpec } from "@millrace/contract"
import type { Access } from "./command.ts"
import { type Due, QueueDue } from "./queue-due.ts"
import type { QueueHolders } from "./queue-holders.ts"
import { allLeases, findLease, type Lease } from "./queue-lease.ts"
import { QueueOffers } from "./queue-offers.ts"
import { type QueueRow, specOf } from "./queue-row.ts"

/** Leases that were settled early are forgotten when so many more are remembered than there were. */
const mostForgotten = 4096

/** Where the engine found an offset last. */
export interface KnownPlace {
  readonly key: number
  readonly offset: bigint
  readonly batch: bigint
}

export class QueueView {
  readonly id: number
  readonly spec: QueueSpec
  /** The store's keys of the topic's partitions, as of the last look. */
  keys: readonly number[] = []
  /** Which partition the next pull begins with. */
  turn = 0
  /** By partition, where new records begin. */
  readonly known: Map<number, KnownPlace> = new Map()
  /** Which of the takers that wait are told that there is something. */
  readonly offers: QueueOffers = new QueueOffers()
  readonly #holders: QueueHolders
  readonly #due = new QueueDue()
  readonly #buried = new Set<number>()
  /** The transaction that has looked last. */
  #looked: Access | undefined
  /** The newest number that was seen. */
  #seen = 0
  /** What the last transaction made, with its ends. */
  #made = new Map<number, number>()
  #madeNextMs = Number.POSITIVE_INFINITY
  /** What the last transaction used up. */
  #used: Due[] = []
  #keepAt = mostForgotten

  constructor(row: QueueRow, holders: QueueHolders) {
    this.id = row.id
    this.spec = specOf(row.spec)
    this.#holders = holders
  }

  /** When a lease may be over, a process gone, or an offer for others, though nothing has changed. */
  get nextMs(): number {
    const { lookMs } = this.offers
    // Whoever was told takes what is over by now, or lets it be.
    if (lookMs !== undefined) return lookMs
    return Math.min(this.#due.nextMs, this.#madeNextMs, this.#holders.nextLookMs)
  }

  /** Looks at what others have changed, once a transaction. */
  look(access: Access): void {
    if (this.#looked === access) return
    this.#looked = access
    for (const due of this.#used) if (this.#exists(access, due.lease)) this.#due.push(due)
    this.#used = []
    const gone = this.#holders.gone(access)
    const rows = access
      .statement("SELECT id, wait_ms, holder FROM queue_lease WHERE queue = ? AND id > ? ORDER BY id")
      .all(this.id, this.#seen)
    for (const row of rows) {
      const lease = Number(row.id)
      const holder = row.holder === null ? undefined : Number(row.holder)
      const made = holder === undefined || this.#holders.isSelf(holder) ? this.#made.get(lease) : undefined
      if (holder !== undefined) this.#holders.note(access, holder)
      const waitMs = holder !== undefined && gone.has(holder) ? 0 : (row.wait_ms as number)
      this.#due.push({ lease, dueMs: made ?? access.monotonicMs + waitMs })
      this.#seen = lease
    }
    this.#made.clear()
    this.#madeNextMs = Number.POSITIVE_INFINITY
    this.#bury(access, gone)
    if (this.#due.size > this.#keepAt) this.#forget(access)
  }

  /** Notes a lease that this transaction makes. */
  made(access: Access, lease: number, waitMs: number): void {
    const dueMs = access.monotonicMs + waitMs
    this.#made.set(lease, dueMs)
    this.#madeNextMs = Math.min(this.#madeNextMs, dueMs)
  }

  /** The next lease that is over. Whoever does not take all of it says so with `leave`. */
  takeOver(access: Access): { readonly lease: Lease; readonly due: Due } | undefined {
    for (;;) {
      const due = this.#due.pop(access.monotonicMs)
      if (due === undefined) return undefined
      this.#used.push(due)
      const lease = findLease(access, this.id, due.lease)
      if (lease !== undefined) return { lease, due }
    }
  }

  /** Something of it is left, which is over still. */
  leave(due: Due): void {
    this.#used = this.#used.filter((used) => used !== due)
    this.#due.push(due)
  }

  /** How many records the first lease has that is over; 0 when none is. */
  firstOver(access: Access): number {
    const found = this.takeOver(access)
    if (found === undefined) return 0
    this.leave(found.due)
    return found.lease.open
  }

  /** The numbers of leases that are over; some may be gone. */
  over(access: Access): ReadonlySet<number> {
    return this.#due.over(access.monotonicMs)
  }

  /** What a process had that is gone is over at once. */
  #bury(access: Access, gone: ReadonlySet<number>): void {
    for (const holder of gone) {
      if (this.#buried.has(holder)) continue
      this.#buried.add(holder)
      for (const row of access
        .statement("SELECT id FROM queue_lease WHERE queue = ? AND holder = ?")
        .all(this.id, holder))
        this.#due.push({ lease: Number(row.id), dueMs: access.monotonicMs })
    }
    for (const holder of this.#buried) if (!gone.has(holder)) this.#buried.delete(holder)
  }

  #forget(access: Access): void {
    this.#due.keep(new Set(allLeases(access, this.id).map(({ id }) => id)))
    this.#keepAt = 2 * this.#due.size + mostForgotten
  }

  #exists(access: Access, lease: number): boolean {
    return access.statement("SELECT 1 FROM queue_lease WHERE queue = ? AND id = ?").get(this.id, lease) !== undefined
  }
}
