/** The commands of small state. */
import type { StateEntry } from "@millrace/contract"
import type { Access, Command, ReadCommand, Room, WaitCommand, WriteAccess, WriteCommand } from "./command.ts"
import {
  checkRevision,
  findValue,
  listRevisions,
  listValues,
  nextExpiry,
  nextRevision,
  StateClock,
  type StateTime,
  stateSchema,
} from "./state-rows.ts"

/** One answer of a watch has so many changes at most, so that it stays small; the next one goes on. */
const mostChanges = 64

/** Arguments of `state.put`. */
export interface PutState {
  readonly key: string
  readonly value: Uint8Array
  readonly ifRevision: bigint | undefined
  readonly ttlMs: number | undefined
}

/** Arguments of `state.delete`. */
export interface DeleteState {
  readonly key: string
  readonly ifRevision: bigint | undefined
}

/** Arguments of `state.watch`: which watch, by a number of the session's own. */
export interface WatchState {
  readonly watch: number
  readonly prefix: string
  readonly maxWaitMs: number
}

/** A change that a watch tells. */
export type StateChange = StateEntry | { readonly key: string; readonly deleted: true }

/** The tables of small state. */
export const stateRoom: Room = { schema: stateSchema, format: 2, commands: [] }

interface Watch {
  /** What the watcher knows. */
  readonly known: Map<string, bigint>
  /** The store's last revision when all of it was told. */
  revision: bigint
  expiresMicros: bigint | undefined
  /** When the next value is gone, on the monotonic clock. */
  dueMs: number
}

/** The small state as one engine sees it, and who watches it. */
export class SmallState {
  readonly #clock = new StateClock()
  readonly #watches = new Map<number, Watch>()

  get commands(): readonly Command[] {
    return [this.#get(), this.#list(), this.#put(), this.#delete(), this.#watch(), this.#unwatch()]
  }

  #get(): ReadCommand<string, StateEntry | undefined> {
    return {
      mode: "read",
      name: "state.get",
      run: (access, key) => findValue(access, bytesOf(key), this.#clock.read(access)),
    }
  }

  #list(): ReadCommand<string, StateEntry[]> {
    return {
      mode: "read",
      name: "state.list",
      run: (access, prefix) => listValues(access, bytesOf(prefix), this.#clock.read(access)),
    }
  }

  #put(): WriteCommand<PutState, StateEntry> {
    return {
      mode: "write",
      name: "state.put",
      durability: () => "synced",
      run: (access, { key, value, ifRevision, ttlMs }) => {
        const time = this.#clock.read(access)
        const bytes = bytesOf(key)
        checkRevision(key, findValue(access, bytes, time), ifRevision)
        const revision = nextRevision(access, time)
        const expires = ttlMs === undefined ? null : time.nowMicros + BigInt(Math.ceil(ttlMs * 1000))
        access
          .statement("INSERT OR REPLACE INTO small_state (key, value, revision, expires) VALUES (?, ?, ?, ?)")
          .run(bytes, value, revision, expires)
        access.changed("state")
        return { key, value, revision }
      },
    }
  }

  #delete(): WriteCommand<DeleteState, undefined> {
    return {
      mode: "write",
      name: "state.delete",
      durability: () => "synced",
      run: (access: WriteAccess, { key, ifRevision }) => {
        const time = this.#clock.read(access)
        const bytes = bytesOf(key)
        const present = findValue(access, bytes, time)
        checkRevision(key, present, ifRevision)
        if (present === undefined) return
        nextRevision(access, time)
        access.statement("DELETE FROM small_state WHERE key = ?").run(bytes)
        access.changed("state")
      },
    }
  }

  #watch(): WaitCommand<WatchState, StateChange[]> {
    return {
      mode: "wait",
      name: "state.watch",
      interest: "state",
      maxWaitMs: ({ maxWaitMs }) => maxWaitMs,
      dueMs: ({ watch }) => this.#watches.get(watch)?.dueMs ?? Number.POSITIVE_INFINITY,
      run: (access, args, over) => {
        const changes = this.#changes(access, args)
        return changes.length > 0 || over ? changes : undefined
      },
    }
  }

  #unwatch(): ReadCommand<number, undefined> {
    return { mode: "read", name: "state.unwatch", run: (_access, watch) => void this.#watches.delete(watch) }
  }

  /** What the watcher does not know yet. */
  #changes(access: Access, { watch: id, prefix: text }: WatchState): StateChange[] {
    const watch = this.#watches.get(id) ?? { known: new Map(), revision: -1n, expiresMicros: undefined, dueMs: 0 }
    this.#watches.set(id, watch)
    const time = this.#clock.read(access)
    const isOver = watch.expiresMicros !== undefined && watch.expiresMicros <= time.nowMicros
    if (watch.revision === time.revision && !isOver) {
      setDue(access, watch, time)
      return []
    }
    const prefix = bytesOf(text)
    const present = listRevisions(access, prefix, time)
    const changes: StateChange[] = []
    for (const [key, revision] of present) {
      if (watch.known.get(key) === revision || changes.length >= mostChanges) continue
      watch.known.set(key, revision)
      changes.push(findValue(access, bytesOf(key), time) as StateEntry)
    }
    for (const key of watch.known.keys()) {
      if (present.has(key) || changes.length >= mostChanges) continue
      watch.known.delete(key)
      changes.push({ key, deleted: true })
    }
    watch.expiresMicros = nextExpiry(access, prefix, time)
    watch.revision = changes.length >= mostChanges ? -1n : time.revision
    setDue(access, watch, time)
    return changes
  }
}

function setDue(access: Access, watch: Watch, { nowMicros }: StateTime): void {
  const { expiresMicros } = watch
  watch.dueMs =
    expiresMicros === undefined
      ? Number.POSITIVE_INFINITY
      : access.monotonicMs + Math.max(1, Math.ceil(Number(expiresMicros - nowMicros) / 1000))
}

const utf8 = new TextEncoder()

function bytesOf(key: string): Uint8Array {
  return utf8.encode(key)
}
