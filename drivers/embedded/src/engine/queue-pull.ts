/** Handing out: what is over first, then what was never handed out, with the records themselves. */
import type { QueuePullLimits } from "@millrace/contract"
import type { TopicRow, WriteAccess, WriteCommand } from "./command.ts"
import type { QueueHolders } from "./queue-holders.ts"
import {
  allLeases,
  closeBelow,
  closePlace,
  emptyMirror,
  firstOpen,
  insertLease,
  isOpen,
  type Lease,
  lastOpen,
  openAt,
  saveLease,
  shorten,
} from "./queue-lease.ts"
import type { PullBudget, PulledBatch, QueueRecords, Run } from "./queue-records.ts"
import {
  placesOf,
  type QueueCall,
  type QueuePlace,
  type QueueRow,
  requireQueue,
  savePlace,
  waitOf,
} from "./queue-row.ts"
import type { QueueView } from "./queue-view.ts"
import { storageError } from "./storage-error.ts"
import type { Transaction } from "./transaction.ts"

/** A lease holds so many offsets at most, so that its bits stay small. */
const mostPerLease = 16_384

/** Arguments of `queues.pull`. */
export interface QueuePull extends QueueCall {
  readonly limits: Pick<QueuePullLimits, "maxMessages" | "maxBytes">
  /** Batches that the taker still has. */
  readonly have: readonly bigint[]
}

/** Records that were handed out together. */
export interface PulledLease {
  /** 0: handing out has settled them. */
  readonly lease: number
  readonly partition: number
  readonly first: bigint
  readonly count: number
  /** A bit for each offset from the first on that is not among them; absent: all are. */
  readonly done: Uint8Array | undefined
  readonly deliveries: number
  readonly batches: readonly PulledBatch[]
}

/** The answer of a pull. Batches point into the buffers. */
export interface PullAnswer {
  readonly leases: readonly PulledLease[]
  readonly lineage: string
  readonly buffers: readonly ArrayBuffer[]
}

/** What a queue's commands share in one engine. */
export interface QueueParts {
  readonly holders: QueueHolders
  readonly records: QueueRecords
  /** What the engine knows of a queue. */
  view(row: QueueRow): QueueView
}

/** Never waits: the answer is empty when there is nothing. A crash of the machine may undo it, and then they come again. */
export function pullCommand(parts: QueueParts): WriteCommand<QueuePull, PullAnswer> {
  return {
    mode: "write",
    name: "queues.pull",
    durability: () => "written",
    run: (access, args) => new Pull(access as Transaction, parts, args).run(),
  }
}

/** How many records of a partition were never handed out and can be read by this transaction. */
export function newIn(access: Transaction, { state, next }: QueuePlace): bigint {
  const end = access.unflushed.get(state.key) ?? state.next
  return next < end ? end - next : 0n
}

class Pull {
  readonly #transaction: Transaction
  readonly #parts: QueueParts
  readonly #row: QueueRow
  readonly #topic: TopicRow
  readonly #view: QueueView
  readonly #budget: PullBudget
  readonly #have: ReadonlySet<bigint>
  readonly #leases: PulledLease[] = []
  #places: QueuePlace[] = []
  #nextLease: number
  #pending: number
  #error: unknown

  constructor(transaction: Transaction, parts: QueueParts, args: QueuePull) {
    const { row, topic } = requireQueue(transaction, args)
    this.#transaction = transaction
    this.#parts = parts
    this.#row = row
    this.#topic = topic
    this.#view = parts.view(row)
    this.#budget = { messages: args.limits.maxMessages, bytes: args.limits.maxBytes, first: true }
    this.#have = new Set(args.have)
    this.#nextLease = row.nextLease
    this.#pending = row.pending
  }

  run(): PullAnswer {
    const { id } = this.#row
    this.#places = placesOf(this.#transaction, this.#topic, id)
    this.#view.look(this.#transaction)
    this.#view.keys = this.#topic.partitionKeys
    for (const place of this.#places) if (place.stale) this.#pending -= dropGone(this.#transaction, id, place)
    this.#again()
    this.#anew()
    this.#view.offers.pulled(this.#transaction)
    if (this.#nextLease !== this.#row.nextLease || this.#pending !== this.#row.pending)
      this.#transaction
        .statement("UPDATE work_queue SET next_lease = ?, pending = ? WHERE id = ?")
        .run(this.#nextLease, this.#pending, id)
    if (this.#leases.length === 0 && this.#error !== undefined) throw this.#error
    return { leases: this.#leases, lineage: this.#topic.lineage, buffers: this.#transaction.transfer }
  }

  get #isFull(): boolean {
    const { messages, bytes, first } = this.#budget
    return messages <= 0 || (bytes <= 0 && !first)
  }

  /** Hands out again what is over. What cannot be read stays where it is. */
  #again(): void {
    const left: { due: { lease: number; dueMs: number } }[] = []
    while (!this.#isFull) {
      const found = this.#view.takeOver(this.#transaction)
      if (found === undefined) break
      const { lease } = found
      const run = this.#read(lease.partition, {
        from: lease.first + BigInt(firstOpen(lease)),
        to: lease.first + BigInt(lastOpen(lease) + 1),
        wants: (offset) => isOpen(lease, Number(offset - lease.first)),
      })
      if (run !== undefined && run.taken > 0) this.#passOn(lease, run)
      if (lease.open > 0) left.push(found)
      if (run !== undefined && run.taken === 0) break
    }
    for (const { due } of left) this.#view.leave(due)
  }

  /** Moves what was read of an old lease into a new one. */
  #passOn(old: Lease, run: Run): void {
    const deliveries = old.deliveries + 1
    const waitMs = waitOf(this.#view.spec, deliveries)
    const what = { waitMs, holder: this.#parts.holders.self(this.#transaction), delivery: 0 }
    const lease = { ...emptyMirror(old, what), deliveries }
    const end = Number(run.until - old.first)
    for (let place = 0; place < end; place++) {
      if (!isOpen(old, place)) continue
      closePlace(old, place)
      openAt(lease, place)
    }
    saveLease(this.#transaction, this.#row.id, old)
    shorten(lease)
    this.#hand(lease, run.batches)
  }

  /** Hands out what never was, beginning with another partition each time. */
  #anew(): void {
    const { spec } = this.#view
    const places = this.#places
    const turn = this.#view.turn
    for (let i = 0; i < places.length; i++) {
      const place = places[(turn + i) % places.length] as QueuePlace
      while (!this.#isFull && newIn(this.#transaction, place) > 0n) {
        const free = spec.ackPolicy === "none" ? undefined : spec.maxAckPending
        const room = Math.min(mostPerLease, free === undefined ? mostPerLease : free - this.#pending)
        if (room <= 0) return
        this.#view.turn = (turn + i + 1) % places.length
        const end = this.#transaction.unflushed.get(place.state.key) ?? place.state.next
        const limit = place.next + BigInt(room)
        const run = this.#readNew(place, limit < end ? limit : end)
        if (run === undefined || run.taken === 0) break
        this.#handNew(place, run)
      }
    }
  }

  #readNew(place: QueuePlace, to: bigint): Run | undefined {
    const known = this.#view.known.get(place.partition)
    const { key } = place.state
    const near = known !== undefined && known.key === key && known.offset === place.next ? known.batch : undefined
    const run = this.#read(place.partition, { from: place.next, to, near })
    if (run !== undefined) this.#view.known.set(place.partition, { key, offset: run.until, batch: run.batch })
    return run
  }

  #handNew(place: QueuePlace, { until, taken, batches }: Run): void {
    const { partition } = place
    const first = place.next
    place.next = until
    savePlace(this.#transaction, this.#row.id, { partition, next: until, trimmed: place.state.first })
    if (this.#view.spec.ackPolicy === "none") {
      this.#leases.push({ lease: 0, partition, first, count: taken, done: undefined, deliveries: 1, batches })
      return
    }
    this.#pending += taken
    const holder = this.#parts.holders.self(this.#transaction)
    const waitMs = waitOf(this.#view.spec, 1)
    this.#hand(
      {
        id: 0,
        partition,
        first,
        count: taken,
        open: taken,
        done: undefined,
        deliveries: 1,
        waitMs,
        holder,
        delivery: 0,
      },
      batches,
    )
  }

  #hand(lease: Lease, batches: readonly PulledBatch[]): void {
    const id = this.#nextLease++
    const { partition, first, count, done, deliveries, waitMs } = lease
    insertLease(this.#transaction, this.#row.id, { ...lease, id, delivery: id })
    this.#view.made(this.#transaction, id, waitMs)
    this.#leases.push({ lease: id, partition, first, count, done, deliveries, batches })
  }

  /** One partition that cannot be read keeps nothing back from the others; its error is told when they have nothing either. */
  #read(
    partition: number,
    wanted: {
      readonly from: bigint
      readonly to: bigint
      readonly wants?: (offset: bigint) => boolean
      readonly near?: bigint | undefined
    },
  ): Run | undefined {
    const { state } = this.#places[partition] as QueuePlace
    const { budget, have } = { budget: this.#budget, have: this.#have }
    try {
      return this.#parts.records.read(this.#transaction, state, { wanted, budget, have })
    } catch (error) {
      this.#error ??= storageError(error, `reading partition ${partition}`)
      return undefined
    }
  }
}

/** Offsets below a partition's first one are gone: they leave the queue. Answers how many were handed out. */
function dropGone(access: WriteAccess, queue: number, { partition, state, next }: QueuePlace): number {
  let dropped = 0
  for (const lease of allLeases(access, queue, partition)) {
    const closed = closeBelow(lease, state.first)
    if (closed === 0) continue
    dropped += closed
    saveLease(access, queue, lease)
  }
  savePlace(access, queue, { partition, next, trimmed: state.first })
  return dropped
}
