/** Settling: each message of a delivery by itself, or all before it. */
import type { Settlement, TopicName } from "@millrace/contract"
import type { TopicRow, WriteCommand } from "./command.ts"
import {
  allLeases,
  closePlace,
  emptyMirror,
  findLease,
  insertLease,
  isOpen,
  type Lease,
  movedLeases,
  openAt,
  openPlace,
  saveLease,
  shorten,
} from "./queue-lease.ts"
import type { QueueParts } from "./queue-pull.ts"
import { type QueueCall, type QueueRow, requireQueue, waitOf } from "./queue-row.ts"
import type { QueueView } from "./queue-view.ts"
import type { Transaction } from "./transaction.ts"

/** The same verdict over a run of offsets of one delivery. */
export interface SettleRun {
  readonly lease: number
  readonly first: bigint
  readonly count: number
  readonly verdict: Settlement["verdict"]
  readonly delayMs: number
}

/** Arguments of `queues.settle`. */
export interface QueueSettle extends QueueCall {
  readonly runs: readonly SettleRun[]
  readonly confirm: boolean
}

/** What became of a run: the same for all of it, or 0 and 1 for each. */
export type SettleOutcome = boolean | Uint8Array

/** Confirmed, it has the durability of the topic's offsets; otherwise a crash of the machine may undo it. */
export function settleCommand(parts: QueueParts): WriteCommand<QueueSettle, SettleOutcome[]> {
  return {
    mode: "write",
    name: "queues.settle",
    checksFirst: true,
    durability: ({ confirm, topic }, lookup: (name: TopicName) => TopicRow | undefined) =>
      confirm ? (lookup(topic)?.offsetDurability ?? "written") : "written",
    run(access, args) {
      const { row } = requireQueue(access, args)
      const view = parts.view(row)
      view.look(access)
      const settling = new Settling(access as Transaction, row, view)
      const outcomes = args.runs.map((run) => settling.settle(run))
      settling.save()
      return outcomes
    },
  }
}

class Settling {
  readonly #transaction: Transaction
  readonly #row: QueueRow
  readonly #view: QueueView
  /** Leases as they are by now, by number. */
  readonly #leases = new Map<number, Lease>()
  /** Those that have offsets of a delivery, by its number. */
  readonly #deliveries = new Map<number, Lease[]>()
  readonly #changed = new Set<Lease>()
  readonly #fresh: Lease[] = []
  /** Partitions of which all leases are in memory. */
  readonly #covered = new Set<number>()
  #settled = 0
  #givenBack = false

  constructor(transaction: Transaction, row: QueueRow, view: QueueView) {
    this.#transaction = transaction
    this.#row = row
    this.#view = view
  }

  settle(run: SettleRun): SettleOutcome {
    const leases = this.#leasesOf(run.lease)
    const covers = run.verdict === "ack" && this.#view.spec.ackPolicy === "all"
    if (!covers && run.verdict !== "nak" && run.verdict !== "inProgress" && this.#settleWhole(leases, run)) return true
    const mirrors = new Map<Lease, Lease>()
    const outcomes = new Uint8Array(run.count)
    let last: { readonly lease: Lease; readonly offset: bigint } | undefined
    let counted = 0
    for (let i = 0; i < run.count; i++) {
      const offset = run.first + BigInt(i)
      const lease = leases.find((candidate) => openPlace(candidate, offset) >= 0)
      if (lease === undefined) continue
      outcomes[i] = 1
      counted += 1
      last = { lease, offset }
      if (!covers) this.#apply(lease, { place: openPlace(lease, offset), run, mirrors })
    }
    for (const mirror of mirrors.values()) {
      this.#fresh.push(mirror)
      if (mirror.delivery !== 0) leases.push(mirror)
    }
    if (covers && last !== undefined) this.#cover(last.lease.partition, last.offset)
    return counted === run.count ? true : counted === 0 ? false : outcomes
  }

  /** Writes what has changed. */
  save(): void {
    const { id, pending, nextLease } = this.#row
    for (const lease of this.#changed) if (lease.id !== 0) saveLease(this.#transaction, id, lease)
    let next = nextLease
    for (const lease of this.#fresh) {
      if (lease.open === 0) continue
      lease.id = next++
      if (lease.delivery === 0) insertLease(this.#transaction, id, shortened({ ...lease, delivery: lease.id }))
      else insertLease(this.#transaction, id, shortened({ ...lease }))
      this.#view.made(this.#transaction, lease.id, lease.waitMs)
    }
    const left = pending - this.#settled
    if (this.#settled > 0 || next !== nextLease)
      this.#transaction.statement("UPDATE work_queue SET next_lease = ?, pending = ? WHERE id = ?").run(next, left, id)
    const bound = this.#view.spec.maxAckPending
    if (this.#givenBack || (bound !== undefined && pending >= bound && left < bound))
      this.#transaction.changed("queues")
  }

  /** The usual case: all of a lease at once. */
  #settleWhole(leases: readonly Lease[], { first, count }: SettleRun): boolean {
    const [lease] = leases
    if (lease === undefined || leases.length > 1) return false
    if (lease.first !== first || lease.count !== count || lease.open !== count) return false
    lease.open = 0
    this.#settled += count
    this.#changed.add(lease)
    return true
  }

  #apply(
    lease: Lease,
    { place, run, mirrors }: { readonly place: number; readonly run: SettleRun; readonly mirrors: Map<Lease, Lease> },
  ): void {
    closePlace(lease, place)
    this.#changed.add(lease)
    if (run.verdict === "ack" || run.verdict === "terminate") {
      this.#settled += 1
      return
    }
    let mirror = mirrors.get(lease)
    if (mirror === undefined) {
      mirror = emptyMirror(lease, this.#given(lease, run))
      mirrors.set(lease, mirror)
    }
    openAt(mirror, place)
  }

  /** Given back for some time, with nobody's token; or held on, for a wait from now on. */
  #given(lease: Lease, { verdict, delayMs }: SettleRun): Pick<Lease, "waitMs" | "holder" | "delivery"> {
    if (verdict === "inProgress")
      return { waitMs: waitOf(this.#view.spec, lease.deliveries), holder: lease.holder, delivery: lease.delivery }
    this.#givenBack = true
    return { waitMs: delayMs, holder: undefined, delivery: 0 }
  }

  /** Settles all that was handed out of a partition up to an offset. */
  #cover(partition: number, offset: bigint): void {
    if (!this.#covered.has(partition))
      for (const stored of allLeases(this.#transaction, this.#row.id, partition)) this.#now(stored)
    this.#covered.add(partition)
    for (const lease of [...this.#leases.values(), ...this.#fresh]) {
      if (lease.partition !== partition || lease.open === 0) continue
      const end = offset - lease.first + 1n
      const places = end < BigInt(lease.count) ? Number(end) : lease.count
      for (let place = 0; place < places; place++) {
        if (!isOpen(lease, place)) continue
        closePlace(lease, place)
        this.#settled += 1
        this.#changed.add(lease)
      }
    }
  }

  #leasesOf(delivery: number): Lease[] {
    const known = this.#deliveries.get(delivery)
    if (known !== undefined) return known
    const own = this.#leases.get(delivery) ?? findLease(this.#transaction, this.#row.id, delivery)
    const leases = own === undefined || own.delivery !== delivery ? [] : [this.#now(own)]
    // Only a delivery that is not whole any more can have been moved.
    if (own === undefined || own.open < own.count)
      leases.push(...movedLeases(this.#transaction, this.#row.id, delivery).map((lease) => this.#now(lease)))
    this.#deliveries.set(delivery, leases)
    return leases
  }

  /** The lease as this command has changed it. */
  #now(stored: Lease): Lease {
    const known = this.#leases.get(stored.id)
    if (known !== undefined) return known
    this.#leases.set(stored.id, stored)
    return stored
  }
}

function shortened(lease: Lease): Lease {
  shorten(lease)
  return lease
}
