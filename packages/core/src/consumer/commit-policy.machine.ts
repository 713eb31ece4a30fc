/**
 * Decides which progress may be stored, and when. Pure: events in, commands out. It knows partitions as keys `K` and progress as
 * *next* offsets; that a prefix is handled is told by `handled`, and nothing is ever stored that was not told so.
 */
import type { CommitPolicy } from "./commit-policy.ts"

/** Which policy stores at which moment. `released` is a partition that is about to be handed over. */
const stores: Readonly<Record<CommitPolicy["kind"], Readonly<Record<Moment, boolean>>>> = {
  //          each handled   next page asked for   whole page handled   partition handed over   shutdown
  disabled: { handled: false, pollStarted: false, pageHandled: false, released: false, shutdown: false },
  polling: { handled: false, pollStarted: true, pageHandled: false, released: true, shutdown: true },
  all: { handled: false, pollStarted: false, pageHandled: true, released: true, shutdown: true },
  each: { handled: true, pollStarted: true, pageHandled: true, released: true, shutdown: true },
}

type Moment = "handled" | "pollStarted" | "pageHandled" | "released" | "shutdown"

export type CommitEvent<K> =
  /** A partition was gained: reading begins at `position`, and `stored` is its stored progress, if that is not ahead of it. */
  | { readonly type: "gained"; readonly key: K; readonly stored: bigint | undefined }
  /** Everything before `next` is handled. `open` counts the messages of all partitions that are handed out and not handled. */
  | { readonly type: "handled"; readonly key: K; readonly next: bigint; readonly open: number }
  /** The next page is asked for. */
  | { readonly type: "pollStarted"; readonly open: number }
  /** Progress was stored, or given to the store, by the caller's own will; `undefined`: it was deleted. */
  | { readonly type: "submitted"; readonly key: K; readonly next: bigint | undefined }
  /** A store that was commanded has failed: the progress is ahead of the store again. */
  | { readonly type: "storeFailed"; readonly key: K }
  | { readonly type: "released"; readonly key: K }
  /** Gone: nothing of this partition may be stored any more. */
  | { readonly type: "dropped"; readonly key: K }
  | { readonly type: "shutdown" }

/** Store `next` as the progress of a partition. Always ahead of what was given out before. */
export interface StoreCommand<K> {
  readonly key: K
  readonly next: bigint
}

export class CommitPolicyMachine<K> {
  readonly #stores: Readonly<Record<Moment, boolean>>
  /** Everything of a partition before this is handled; `undefined`: nothing is. */
  readonly #handledNext = new Map<K, bigint | undefined>()
  /** Partitions whose handled prefix is ahead of what was given to the store. */
  readonly #ahead = new Set<K>()
  /** A page has ended while some of its messages were still open. */
  #pageOpen = false

  constructor(policy: CommitPolicy) {
    this.#stores = stores[policy.kind]
  }

  handle(event: CommitEvent<K>): readonly StoreCommand<K>[] {
    switch (event.type) {
      case "gained":
        this.#handledNext.set(event.key, event.stored)
        this.#ahead.delete(event.key)
        return []
      case "handled":
        return this.#handled(event.key, event.next, event.open)
      case "pollStarted":
        this.#pageOpen = event.open > 0
        return this.#stores.pollStarted || (this.#stores.pageHandled && !this.#pageOpen) ? this.#storeAll() : []
      case "submitted":
        this.#submitted(event.key, event.next)
        return []
      case "storeFailed":
        if (this.#handledNext.has(event.key)) this.#ahead.add(event.key)
        return []
      case "released":
        return this.#stores.released ? this.#store([event.key]) : []
      case "dropped":
        this.#handledNext.delete(event.key)
        this.#ahead.delete(event.key)
        return []
      case "shutdown":
        return this.#stores.shutdown ? this.#storeAll() : []
    }
  }

  #handled(key: K, next: bigint, open: number): readonly StoreCommand<K>[] {
    if (!this.#handledNext.has(key)) return []
    const known = this.#handledNext.get(key)
    if (known === undefined || next > known) {
      this.#handledNext.set(key, next)
      this.#ahead.add(key)
    }
    if (this.#stores.handled) return this.#store([key])
    if (!this.#pageOpen || open > 0) return []
    this.#pageOpen = false
    return this.#stores.pageHandled ? this.#storeAll() : []
  }

  /** What the caller stores stands until more than it is handled; a deletion, until anything more is. */
  #submitted(key: K, next: bigint | undefined): void {
    if (!this.#handledNext.has(key)) return
    const known = this.#handledNext.get(key)
    if (next !== undefined && known !== undefined && next < known) return
    this.#ahead.delete(key)
    if (next !== undefined) this.#handledNext.set(key, next)
  }

  #storeAll(): readonly StoreCommand<K>[] {
    return this.#ahead.size === 0 ? [] : this.#store([...this.#ahead])
  }

  #store(keys: readonly K[]): readonly StoreCommand<K>[] {
    const commands: StoreCommand<K>[] = []
    for (const key of keys) {
      const next = this.#handledNext.get(key)
      if (this.#ahead.delete(key) && next !== undefined) commands.push({ key, next })
    }
    return commands
  }
}
