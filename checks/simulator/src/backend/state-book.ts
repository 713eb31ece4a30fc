import { FencedError, RecordTooLargeError, type StateEntry, type StateStore, stateValueBytes } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"

interface Kept extends StateEntry {
  readonly goneMs: number
}

type Change = StateEntry | { readonly key: string; readonly deleted: true }

/** The small values that a backend keeps for the SDK, versioned. No requests, no faults. */
export class StateBook {
  readonly #clock: Clock
  readonly #entries = new Map<string, Kept>()
  readonly #watchers = new Set<(change: Change) => void>()
  #revision = 0n

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get(key: string): StateEntry | undefined {
    const kept = this.#entries.get(key)
    if (kept === undefined || kept.goneMs <= this.#clock.monotonicMs()) return undefined
    return { key, value: kept.value.slice(), revision: kept.revision }
  }

  /** @throws FencedError, RecordTooLargeError */
  put(
    key: string,
    value: Uint8Array,
    { ifRevision, ttlMs = Number.POSITIVE_INFINITY }: Parameters<StateStore["put"]>[2],
  ): StateEntry {
    if (value.length > stateValueBytes) {
      const context = { sizeBytes: value.length, limitBytes: stateValueBytes }
      throw new RecordTooLargeError(`a value of ${value.length} bytes is too large`, { context })
    }
    this.#check(key, ifRevision)
    const goneMs = this.#clock.monotonicMs() + ttlMs
    this.#entries.set(key, { key, value: value.slice(), revision: ++this.#revision, goneMs })
    const entry = this.get(key) as StateEntry
    for (const watcher of this.#watchers) watcher(entry)
    return entry
  }

  /** @throws FencedError */
  delete(key: string, { ifRevision }: Parameters<StateStore["delete"]>[1]): void {
    this.#check(key, ifRevision)
    if (!this.#entries.delete(key)) return
    this.#revision++
    for (const watcher of this.#watchers) watcher({ key, deleted: true })
  }

  list(prefix: string): StateEntry[] {
    return [...this.#entries.keys()]
      .filter((key) => key.startsWith(prefix))
      .sort(byBytes)
      .flatMap((key) => this.get(key) ?? [])
  }

  /** Calls back at every change, until the answer is called. */
  onChange(watcher: (change: Change) => void): () => void {
    this.#watchers.add(watcher)
    return () => void this.#watchers.delete(watcher)
  }

  #check(key: string, ifRevision: bigint | undefined): void {
    if (ifRevision === undefined) return
    const revision = this.get(key)?.revision ?? 0n
    if (revision === ifRevision) return
    throw new FencedError(`"${key}" has revision ${revision}, not ${ifRevision}`, { context: { revision } })
  }
}

/** The state as one session sees it. @param onEnd Called with what ends its watches. */
export function stateStore(
  book: StateBook,
  ask: <T>(work: () => T) => Promise<T>,
  onEnd: (end: () => void) => void,
): StateStore {
  return {
    get: (key) => ask(() => book.get(key)),
    put: (key, value, options) => ask(() => book.put(key, value, options)),
    delete: (key, options) => ask(() => book.delete(key, options)),
    list: (prefix) => ask(() => book.list(prefix)),
    watch: (prefix) => watched(book, prefix, onEnd),
  }
}

async function* watched(book: StateBook, prefix: string, onEnd: (end: () => void) => void): AsyncGenerator<Change> {
  const changes: Change[] = []
  let isOver = false
  let wake = (): void => {}
  const unlisten = book.onChange((change) => {
    if (!change.key.startsWith(prefix)) return
    changes.push(change)
    wake()
  })
  onEnd(() => {
    isOver = true
    wake()
  })
  try {
    yield* book.list(prefix)
    while (!isOver) {
      const change = changes.shift()
      if (change !== undefined) yield change
      else {
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      }
    }
  } finally {
    unlisten()
  }
}

function byBytes(a: string, b: string): number {
  const [left, right] = [new TextEncoder().encode(a), new TextEncoder().encode(b)]
  for (let index = 0; index < Math.min(left.length, right.length); index++) {
    const difference = (left[index] as number) - (right[index] as number)
    if (difference !== 0) return difference
  }
  return left.length - right.length
}
