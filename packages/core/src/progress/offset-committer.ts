/**
 * Stores progress in the background: one store under way at a time, and of what comes meanwhile only the newest of each partition
 * (table 1.5, "Native commits"). A caller's own commit goes through the same queue, so that stores never overtake each other.
 */
import { type MillraceError, NotAssignedError, type OffsetOwner, type OffsetStore } from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import { asMillraceError } from "../partition/failure.ts"
import type { Lane } from "../partition/lane.ts"

/**
 * Failures that may pass are tried again for as long as the consumer lives. When they have gone on for so long, in ms, the next reader is
 * told, and again after as long: an outage of some seconds ends nobody's loop.
 */
export const quietMs: number = 60_000

interface CommitterHost {
  /** `next` is stored (`undefined`: deleted). */
  stored(lane: Lane, next: bigint | undefined): void
  /** A store that nobody waits for failed for good, or for too long; then it is still tried. */
  storeFailed(lane: Lane, error: MillraceError): void
  /** Nothing is under way or waiting any more. */
  idle(): void
}

interface Pending {
  /** `undefined`: forget the stored offset. */
  next: bigint | undefined
  readonly callers: { resolve(): void; reject(error: unknown): void }[]
  /** Whether it is to be stored in the background too, and so tried again whatever its callers are told. */
  background: boolean
  /** The history that the progress belongs to. */
  lineage: string
}

export class OffsetCommitter {
  readonly #offsets: OffsetStore
  readonly #owner: OffsetOwner
  readonly #clock: Clock
  readonly #retryMs: number
  readonly #host: CommitterHost
  #pending = new Map<Lane, Pending>()
  #running = false
  #retry: Timer | undefined
  #settlers: (() => void)[] = []
  #underWay: ReadonlyMap<Lane, Pending> = new Map()
  #laneSettlers: { readonly lane: Lane; readonly resolve: () => void }[] = []
  #triers: (() => void)[] = []
  /** What fails is not tried again. */
  #ended = false

  constructor(
    store: { readonly offsets: OffsetStore; readonly owner: OffsetOwner },
    time: { readonly clock: Clock; readonly retryMs: number },
    host: CommitterHost,
  ) {
    this.#offsets = store.offsets
    this.#owner = store.owner
    this.#clock = time.clock
    this.#retryMs = time.retryMs
    this.#host = host
  }

  /** Whether something is under way or waits to be. */
  get busy(): boolean {
    return this.#running || this.#pending.size > 0
  }

  /** Stores `next` some time soon; failures that may pass are tried again. */
  submit(lane: Lane, next: bigint): void {
    this.#put(lane, next).background = true
    this.#start()
  }

  /** Stores `next`, or with `undefined` deletes what is stored. Settles as the store says. */
  commit(lane: Lane, next: bigint | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#put(lane, next).callers.push({ resolve, reject })
      this.#tryNow()
    })
  }

  /** Settles when nothing is under way or waiting. A store that waits to be tried again is tried now. */
  settled(): Promise<void> {
    if (!this.busy) return Promise.resolve()
    const settled = new Promise<void>((resolve) => this.#settlers.push(resolve))
    this.#tryNow()
    return settled
  }

  /** The same, but what fails and may pass is waited for no longer than one try. */
  tried(): Promise<void> {
    if (!this.busy) return Promise.resolve()
    const tried = new Promise<void>((resolve) => this.#triers.push(resolve))
    this.#tryNow()
    return tried
  }

  /** Settles when nothing of this partition is under way or waiting, whatever the others do. */
  settledOf(lane: Lane): Promise<void> {
    if (!this.#busyWith(lane)) return Promise.resolve()
    const settled = new Promise<void>((resolve) => this.#laneSettlers.push({ lane, resolve }))
    this.#tryNow()
    return settled
  }

  /** Nothing of this partition is to be stored any more; its callers are refused. */
  drop(lane: Lane, error: MillraceError): void {
    const pending = this.#pending.get(lane)
    this.#pending.delete(lane)
    for (const caller of pending?.callers ?? []) caller.reject(error)
    this.#tellSettled()
    if (pending !== undefined && !this.busy) this.#finish()
  }

  /** Gives up what waits. What is under way settles by itself, and is not tried again. */
  end(error: MillraceError): void {
    this.#ended = true
    this.#abandon(error)
  }

  #abandon(error: MillraceError): void {
    this.#retry?.cancel()
    this.#retry = undefined
    for (const lane of [...this.#pending.keys()]) this.drop(lane, error)
  }

  #put(lane: Lane, next: bigint | undefined): Pending {
    const lineage = lane.history
    const pending = this.#pending.get(lane)
    if (pending === undefined) {
      const fresh: Pending = { next, callers: [], background: false, lineage }
      this.#pending.set(lane, fresh)
      return fresh
    }
    pending.next = next
    pending.lineage = lineage
    return pending
  }

  #start(): void {
    if (this.#running || this.#retry !== undefined || this.#pending.size === 0) return
    this.#running = true
    this.#run().catch((error) => {
      // Only a fault of our own gets here: outcomes of the store are values.
      const fault = asMillraceError(error)
      this.#running = false
      for (const { callers } of this.#underWay.values()) for (const caller of callers) caller.reject(fault)
      this.#underWay = new Map()
      for (const lane of this.#pending.keys()) this.#host.storeFailed(lane, fault)
      this.#abandon(fault)
      this.#tellTried()
      this.#finish()
    })
  }

  /** Somebody waits: what waits to be tried again does so no longer. */
  #tryNow(): void {
    this.#retry?.cancel()
    this.#retry = undefined
    this.#start()
  }

  async #run(): Promise<void> {
    while (this.#pending.size > 0 && (this.#retry === undefined || this.#awaited())) {
      const batch = [...this.#pending]
      this.#underWay = this.#pending
      this.#pending = new Map()
      this.#retry?.cancel()
      this.#retry = undefined
      const outcomes = await this.#store(batch)
      this.#underWay = new Map()
      for (const [index, [lane, pending]] of batch.entries()) this.#settle(lane, pending, outcomes[index])
      this.#tellSettled()
    }
    this.#running = false
    this.#tellTried()
    if (this.#pending.size === 0) this.#finish()
  }

  #busyWith(lane: Lane): boolean {
    return this.#pending.has(lane) || this.#underWay.has(lane)
  }

  #tellSettled(): void {
    if (this.#laneSettlers.length === 0) return
    const waiting = this.#laneSettlers
    this.#laneSettlers = waiting.filter(({ lane }) => this.#busyWith(lane))
    for (const { lane, resolve } of waiting) if (!this.#busyWith(lane)) resolve()
  }

  /** Whether a caller waits for something that is queued. */
  #awaited(): boolean {
    for (const { callers } of this.#pending.values()) if (callers.length > 0) return true
    return false
  }

  #tellTried(): void {
    const triers = this.#triers
    this.#triers = []
    for (const resolve of triers) resolve()
  }

  #finish(): void {
    const settlers = this.#settlers
    this.#settlers = []
    for (const settle of settlers) settle()
    this.#host.idle()
  }

  /** One outcome an entry, whatever happens. */
  async #store(batch: readonly (readonly [Lane, Pending])[]): Promise<(MillraceError | undefined)[]> {
    const outcomes = new Array<MillraceError | undefined>(batch.length)
    const stores: number[] = []
    const deletes: number[] = []
    for (const [index, [, pending]] of batch.entries()) (pending.next === undefined ? deletes : stores).push(index)
    const run = async (indexes: number[], call: () => Promise<(MillraceError | undefined)[]>): Promise<void> => {
      if (indexes.length === 0) return
      try {
        const answers = await call()
        for (const [nth, index] of indexes.entries()) outcomes[index] = answers[nth]
      } catch (error) {
        for (const index of indexes) outcomes[index] = asMillraceError(error)
      }
    }
    const entryOf = (index: number): readonly [Lane, Pending] => batch[index] as readonly [Lane, Pending]
    await run(stores, () =>
      this.#offsets.store(
        this.#owner,
        stores.map((index) => {
          const [lane, pending] = entryOf(index)
          const { partition, claim } = lane
          const entry = { ...partition, offset: pending.next as bigint, lineage: pending.lineage }
          return claim === undefined ? entry : { ...entry, claim }
        }),
      ),
    )
    await run(deletes, () =>
      this.#offsets.delete(
        this.#owner,
        deletes.map((index) => {
          const { partition, claim } = entryOf(index)[0]
          return claim === undefined ? partition : { ...partition, claim }
        }),
      ),
    )
    return outcomes
  }

  #settle(lane: Lane, pending: Pending, error: MillraceError | undefined): void {
    if (error === undefined) {
      lane.storeFailsSinceMs = undefined
      if (pending.lineage === lane.history) this.#host.stored(lane, pending.next)
      for (const caller of pending.callers) caller.resolve()
      return
    }
    for (const caller of pending.callers.splice(0)) caller.reject(error)
    if (!pending.background || !lane.live || this.#ended) return
    // A partition that went to another member, or a history that is over: the membership and the reader tell of it.
    if (error instanceof NotAssignedError || error.kind === "history-changed") return
    if (!error.retryable) {
      this.#host.storeFailed(lane, error)
      return
    }
    const nowMs = this.#clock.monotonicMs()
    lane.storeFailsSinceMs ??= nowMs
    this.#again(lane, pending)
    if (nowMs - lane.storeFailsSinceMs < quietMs) return
    lane.storeFailsSinceMs = nowMs
    this.#host.storeFailed(lane, error)
  }

  /** Back into the queue, unless something newer is there, and a wait. */
  #again(lane: Lane, pending: Pending): void {
    if (!this.#pending.has(lane)) this.#pending.set(lane, pending)
    this.#retry ??= this.#clock.setTimer(this.#retryMs, () => {
      this.#retry = undefined
      this.#start()
    })
  }
}
