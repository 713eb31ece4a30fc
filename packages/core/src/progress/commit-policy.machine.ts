/**
 * Decides which progress may be stored, and when. Pure: events in, commands out. It knows partitions as keys `K` and progress as
 * *next* offsets; that a prefix is handled is told by `handled`, and nothing is ever stored that was not told so.
 *
 *     event         stores
 *     handled       each: that partition · every: all, when so many were handled since the last store · all: all, when the page is whole
 *     pollStarted   polling: all · all: all, when nothing of the page is unhandled
 *     tick          all, of policies with an interval
 *     marked        disabled: that partition
 *     released      that partition
 *     dropped,      all: all, when the rest of the page is handled
 *     moved
 *     shutdown      all
 *     submitted,    none: the caller has given it to the store; what is ahead of it stays so (submitted), or counts no more (placed)
 *     placed
 *
 * With `onRead` nothing is stored here, and with `disabled` only of partitions of which something was marked: these are stored with every
 * `handled`.
 *
 * "All" is every partition whose handled prefix is ahead of what was given to the store. What is on the way to the store counts as stored
 * until `storeFailed` says otherwise.
 */
import { type CommitMoments, type CommitPolicy, momentsOf } from "./commit-policy.ts"

export type CommitEvent<K> =
  /** A partition was gained. `stored` is its stored progress, when reading goes on from it. */
  | { readonly type: "gained"; readonly key: K; readonly stored: bigint | undefined }
  /** Everything before `next` is handled: `count` more messages than before. */
  | { readonly type: "handled"; readonly key: K; readonly next: bigint; readonly count: number }
  /** The caller marks a message of this partition: from now on its progress is what is marked. */
  | { readonly type: "marked"; readonly key: K }
  /** The next page is asked for. `handed`: how far messages of the pages before were handed out. */
  | { readonly type: "pollStarted"; readonly handed: Iterable<StoreCommand<K>> }
  /** The interval is over. */
  | { readonly type: "tick" }
  /** The caller commits: everything before `next` is handled, and given to the store. */
  | { readonly type: "submitted"; readonly key: K; readonly next: bigint }
  /** The caller has stored this, forward or back, whatever is handled; `undefined`: deleted what was stored. */
  | { readonly type: "placed"; readonly key: K; readonly next: bigint | undefined }
  /** A store that was commanded has failed: the progress is ahead of the store again. */
  | { readonly type: "storeFailed"; readonly key: K }
  | { readonly type: "released"; readonly key: K }
  /** Reading goes on elsewhere in the partition: what was handed out of it is waited for no more. */
  | { readonly type: "moved"; readonly key: K }
  /** Gone: nothing of this partition may be stored any more. */
  | { readonly type: "dropped"; readonly key: K }
  | { readonly type: "shutdown" }

/** Progress of a partition. As a command: store it; it is always ahead of what was given out before. */
export interface StoreCommand<K> {
  readonly key: K
  readonly next: bigint
}

const nothing: readonly never[] = []

export class CommitPolicyMachine<K> {
  readonly #moments: CommitMoments
  /** Everything of a partition before this is handled; `undefined`: nothing is. */
  readonly #handledNext = new Map<K, bigint | undefined>()
  /** Partitions whose handled prefix is ahead of what was given to the store. */
  readonly #ahead = new Set<K>()
  /** Partitions of which the caller has marked messages: what is handled of them is stored under `disabled` too. */
  readonly #marked = new Set<K>()
  /** Messages handled since the last store. */
  #count = 0
  /** What of the pages that were asked for first is still to be handled, and what of the pages since. */
  #page = new Map<K, bigint>()
  #later = new Map<K, bigint>()

  constructor(policy: CommitPolicy) {
    this.#moments = momentsOf(policy)
  }

  /** Whether something waits for the end of an interval. */
  get waiting(): boolean {
    return this.#moments.intervalMs !== undefined && this.#ahead.size > 0
  }

  /** How many messages may still be handed out before this must hear which of them are handled, so that it stores in time. */
  get window(): number {
    return this.#moments.each ? 1 : Math.max(1, this.#moments.every - this.#count)
  }

  handle(event: CommitEvent<K>): readonly StoreCommand<K>[] {
    switch (event.type) {
      case "handled":
        return this.#handled(event.key, event.next, event.count)
      case "pollStarted":
        return this.#pollStarted(event.handed)
      case "tick":
        return this.#moments.intervalMs === undefined ? nothing : this.#storeAll()
      case "marked":
        return this.#markedFirst(event.key)
      case "gained":
        this.#ahead.delete(event.key)
        this.#marked.delete(event.key)
        this.#handledNext.set(event.key, event.stored)
        return nothing
      case "submitted":
        this.#submitted(event.key, event.next)
        return nothing
      case "placed":
        this.#placed(event.key, event.next)
        return nothing
      case "storeFailed":
        if (this.#handledNext.get(event.key) !== undefined) this.#ahead.add(event.key)
        return nothing
      case "released":
        return this.#store([event.key])
      case "moved":
        return this.#leavePage(event.key)
      case "dropped":
        this.#handledNext.delete(event.key)
        this.#ahead.delete(event.key)
        this.#marked.delete(event.key)
        return this.#leavePage(event.key)
      case "shutdown":
        return this.#storeAll()
    }
  }

  #handled(key: K, next: bigint, count: number): readonly StoreCommand<K>[] {
    if (!this.#handledNext.has(key)) return nothing
    const known = this.#handledNext.get(key)
    // Nothing new: a replay, or what the caller has stored before it was handled.
    if (known !== undefined && next <= known) return nothing
    this.#handledNext.set(key, next)
    this.#ahead.add(key)
    this.#count += count
    const { each, every, manual } = this.#moments
    if (each || manual) return this.#store([key])
    return this.#count >= every || this.#wholePage() ? this.#storeAll() : nothing
  }

  #pollStarted(handed: Iterable<StoreCommand<K>>): readonly StoreCommand<K>[] {
    if (this.#moments.polling) return this.#storeAll()
    if (!this.#moments.all) return nothing
    this.#later = this.#unhandled(handed)
    if (this.#page.size > 0) return nothing
    this.#page = this.#later
    this.#later = new Map()
    return this.#page.size === 0 ? this.#storeAll() : nothing
  }

  /** Whether the page that was waited for is handled now. Then what was handed out since is the next to wait for. */
  #wholePage(): boolean {
    if (this.#page.size === 0) return false
    this.#page = this.#unhandled(entriesOf(this.#page))
    if (this.#page.size > 0) return false
    this.#nextPage()
    return true
  }

  #nextPage(): void {
    this.#page = this.#unhandled(entriesOf(this.#later))
    this.#later = new Map()
  }

  #unhandled(handed: Iterable<StoreCommand<K>>): Map<K, bigint> {
    const unhandled = new Map<K, bigint>()
    for (const { key, next } of handed) {
      if (!this.#handledNext.has(key)) continue
      const handledNext = this.#handledNext.get(key)
      if (handledNext === undefined || handledNext < next) unhandled.set(key, next)
    }
    return unhandled
  }

  /** What is handled behind it stays ahead of the store. */
  #submitted(key: K, next: bigint): void {
    const known = this.#handledNext.get(key)
    if (known === undefined || next >= known) this.#placed(key, next)
  }

  /** What the caller stores stands until more than it is handled; a deletion, until anything more is. */
  #placed(key: K, next: bigint | undefined): void {
    if (!this.#handledNext.has(key)) return
    this.#ahead.delete(key)
    this.#handledNext.set(key, next)
    if (this.#ahead.size === 0) this.#count = 0
  }

  #markedFirst(key: K): readonly StoreCommand<K>[] {
    if (!this.#moments.manual || !this.#handledNext.has(key)) return nothing
    this.#marked.add(key)
    return this.#store([key])
  }

  #leavePage(key: K): readonly StoreCommand<K>[] {
    this.#later.delete(key)
    if (!this.#page.delete(key)) return nothing
    // As if the last of it had been handled.
    if (this.#page.size > 0) return nothing
    this.#nextPage()
    return this.#storeAll()
  }

  #storeAll(): readonly StoreCommand<K>[] {
    this.#count = 0
    return this.#ahead.size === 0 ? nothing : this.#store([...this.#ahead])
  }

  #store(keys: readonly K[]): readonly StoreCommand<K>[] {
    const commands: StoreCommand<K>[] = []
    for (const key of keys) {
      if (this.#moments.manual && !this.#marked.has(key)) continue
      const next = this.#handledNext.get(key)
      if (this.#ahead.delete(key) && next !== undefined) commands.push({ key, next })
    }
    return commands
  }
}

function* entriesOf<K>(page: ReadonlyMap<K, bigint>): Iterable<StoreCommand<K>> {
  for (const [key, next] of page) yield { key, next }
}
