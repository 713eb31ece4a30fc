/** The sessions that have taken records from queues, and whose process is gone. */
import type { Access, WriteAccess } from "./command.ts"
import type { ProcessTable } from "./group-process.ts"

/** How often an engine looks for processes that are gone, in milliseconds. */
const lookEveryMs = 1000

/** One engine's row among the holders, and what it knows of the others. */
export class QueueHolders {
  readonly #processes: ProcessTable
  readonly #gone = new Set<number>()
  /** Those that the last look found. */
  #known = new Set<number>()
  #nonce = ""
  #self = 0
  #nextLookMs = 0
  #others = false

  constructor(processes: ProcessTable) {
    this.#processes = processes
  }

  /** This engine's number, which is in the store with this transaction. */
  self(access: WriteAccess): number {
    if (this.#self !== 0) {
      const row = access.statement("SELECT nonce FROM queue_holder WHERE id = ?").get(this.#self)
      if (row?.nonce === this.#nonce) return this.#self
    }
    // Rows that no lease names are of sessions that are closed, or that make a new one.
    access
      .statement("DELETE FROM queue_holder WHERE id NOT IN (SELECT holder FROM queue_lease WHERE holder IS NOT NULL)")
      .run()
    if (this.#nonce === "") this.#nonce = newNonce(access)
    const { pid, started, place } = this.#processes.self
    const { lastInsertRowid } = access
      .statement("INSERT INTO queue_holder (nonce, pid, started, place) VALUES (?, ?, ?, ?)")
      .run(this.#nonce, pid, started, place)
    this.#self = Number(lastInsertRowid)
    return this.#self
  }

  /** Whether it is this engine's number, as far as it knows without asking. */
  isSelf(holder: number): boolean {
    return holder === this.#self
  }

  /** Notes that somebody holds something: one that is not known yet is looked at as soon as may be. */
  note(access: Access, holder: number): void {
    if (this.isSelf(holder) || this.#known.has(holder)) return
    this.#others = true
    this.#nextLookMs = Math.min(this.#nextLookMs, access.monotonicMs)
  }

  /** Those whose process is gone. A holder that is gone never comes back. Looks at the processes now and then. */
  gone(access: Access): ReadonlySet<number> {
    if (access.monotonicMs < this.#nextLookMs) return this.#gone
    this.#nextLookMs = access.monotonicMs + lookEveryMs
    const { self } = this.#processes
    const known = new Set<number>()
    this.#others = false
    for (const row of access.statement("SELECT id, pid, started, place FROM queue_holder").all()) {
      const id = Number(row.id)
      const identity = { pid: Number(row.pid), started: row.started as string, place: row.place as string }
      known.add(id)
      if (this.#gone.has(id)) continue
      if (identity.pid === self.pid && identity.started === self.started && identity.place === self.place) continue
      if (this.#processes.isGone(identity)) this.#gone.add(id)
      else this.#others = true
    }
    for (const id of this.#gone) if (!known.has(id)) this.#gone.delete(id)
    this.#known = known
    return this.#gone
  }

  /** When the next look is of use; infinite while no other process has taken anything. */
  get nextLookMs(): number {
    return this.#others ? this.#nextLookMs : Number.POSITIVE_INFINITY
  }
}

function newNonce({ random }: Access): string {
  return `${random.uint32().toString(16)}.${random.uint32().toString(16)}.${random.uint32().toString(16)}`
}
