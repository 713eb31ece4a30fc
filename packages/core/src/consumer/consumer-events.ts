import { type DecodeError, MillraceError, type TopicPartition } from "@millrace/contract"
import { isThenable } from "../handler/observed.ts"

/** What a consumer tells of its partitions (`consumer.on`). Called in order, while nothing is being handed out. */
export interface ConsumerEvents {
  /** The member reads these from now on. A listener that comes later is told at once of those that it has. */
  assigned(partitions: readonly TopicPartition[]): void
  /**
   * These are about to go to another member: nothing more of them is handed out, and commits of what was are still good. The time for
   * a program to store what it keeps of them beside the log. A promise is awaited, for `deadlineMs` at the most; a rejection is told to
   * the next read and hinders nothing.
   */
  revoking(revocation: Revocation): void | Promise<void>
  /** These were handed over; their progress is stored as the policy has it. Later commits are refused. */
  revoked(partitions: readonly TopicPartition[]): void
  /** These were taken away: another member may be reading them already. Later commits are refused. */
  lost(partitions: readonly TopicPartition[]): void
  /**
   * What was handed out was not handled within `handlerTimeoutMs`: the member leaves the group, its partitions go to others, and later
   * commits are refused. It joins again when the caller asks for the next message.
   */
  handlerTimeout(overdue: OverdueHandling): void
  /**
   * A partition has records behind what was handed out, somebody wants them, and nothing came for `stalledAfterMs`. Told again each time
   * that has doubled. The consumer looks for a way out by itself; this is for those who want to know.
   */
  stalled(stall: Stall): void
  /** The event loop did not turn for so long that heartbeats and timers of this process came late. */
  loopBlocked(block: LoopBlock): void
  /**
   * The topic was purged or recreated: what was read ahead is thrown away, and reading goes on at the start of the new history. A listener
   * is told at once of those that nobody heard of.
   */
  sourceChanged(change: SourceChange): void
  /**
   * The position was not in the log, and was moved as `onOutOfRange` says; or a typed consumer went past a record that does not decode, as
   * `onDecodeError: "skip"` says. A listener hears at once of those that nobody did.
   */
  skipped(skip: Skip): void
  /** The connection was lost and is there again; reading goes on where it stood. */
  reconnected(change: Reconnection): void
}

export interface Reconnection {
  /** `host:port` of the server that answers now. */
  readonly server: string
  /** For how long there was no connection, in ms. */
  readonly afterMs: number
}

/** Partitions that another member takes over. */
export interface Revocation {
  readonly partitions: readonly TopicPartition[]
  /** How long listeners are waited for, in ms. */
  readonly deadlineMs: number
}

/** What was in a caller's hands for too long. */
export interface OverdueHandling {
  /** The partition of the message, where it is known: of a handler of `run`. Absent for a caller that did not come back. */
  readonly partition?: TopicPartition
  /** The oldest message that is not handled. */
  readonly offset?: bigint
  /** For how long, in ms; at least. */
  readonly forMs: number
}

/** A partition that gives nothing though it has something. */
export interface Stall extends TopicPartition {
  /** The offset that would be handed out next. */
  readonly position: bigint
  /** The offset that the partition's next record gets. */
  readonly head: bigint
  /** For how long nothing came, in ms; at least. */
  readonly forMs: number
  /**
   * What stands in the way: `reading` (the backend answers nothing), `holding` (a store has to come first), or what the partition's
   * reader is doing instead: `starting`, `locating`, `waiting` (to try again after a failure), `failed`.
   */
  readonly doing: string
  /** Whether the consumer put a fresh reader in the place of the present one. */
  readonly renewed: boolean
}

/** How long the event loop stood still. */
export interface LoopBlock {
  /** By how much a timer came late, in ms: at least so long nothing else ran. */
  readonly delayMs: number
  /** Above which it is told, in ms: a third of the group's session time-out, 1,000 without a group. */
  readonly thresholdMs: number
}

export interface SourceChange extends TopicPartition {
  /** Where reading goes on. */
  readonly offset: bigint
}

export interface Skip extends TopicPartition {
  /** The position that was not in the log, or whose record does not decode. */
  readonly from: bigint
  readonly to: bigint
  /** How many records nobody will see; 0 when the position moved back. */
  readonly count: bigint
  /** Why the record is not handed out; absent where the position was moved. */
  readonly error?: DecodeError
}

/** Events that wait for a listener; of more the oldest are forgotten. As many as a topic has partitions, at the most. */
const unheardKept = 1000

/**
 * The listeners of one consumer. What records nobody will see (`skipped`, `sourceChanged`) is kept for the first that wants to know, since a
 * group's member reads before its caller has the consumer. A failing listener is reported, and hinders neither the others nor the consumer.
 */
export class ConsumerListeners {
  readonly #listeners = new Set<Entry>()
  readonly #failed: (error: MillraceError) => void
  /** What nobody listened to. */
  #unheard: Unheard[] = []

  constructor(failed: (error: MillraceError) => void) {
    this.#failed = failed
  }

  /** @param assigned What the newcomer is told to be assigned already. */
  add(listener: Partial<ConsumerEvents>, assigned: readonly TopicPartition[]): Disposable {
    const entry: Entry = { listener }
    this.#listeners.add(entry)
    if (assigned.length > 0) void this.#tellOne(entry, "assigned", assigned)
    const unheard = this.#unheard
    this.#unheard = unheard.filter(({ event }) => listener[event] === undefined)
    for (const { event, value } of unheard) void this.#tellOne(entry, event, value)
    return { [Symbol.dispose]: () => void this.#listeners.delete(entry) }
  }

  tell<K extends keyof ConsumerEvents>(event: K, value: Parameters<ConsumerEvents[K]>[0]): void {
    let heard = false
    for (const entry of [...this.#listeners]) {
      heard ||= entry.listener[event] !== undefined
      void this.#tellOne(entry, event, value)
    }
    if (heard || (event !== "skipped" && event !== "sourceChanged")) return
    this.#unheard.push({ event, value } as Unheard)
    if (this.#unheard.length > unheardKept) this.#unheard.shift()
  }

  /** The same; settles when every listener's promise has. Never rejects: failures are reported. */
  async tellAndWait<K extends keyof ConsumerEvents>(event: K, value: Parameters<ConsumerEvents[K]>[0]): Promise<void> {
    const answers = [...this.#listeners].map((entry) => this.#tellOne(entry, event, value))
    await Promise.all(answers)
  }

  /** The promise of an async listener, observed; `undefined` from one that answers nothing. */
  #tellOne<K extends keyof ConsumerEvents>(
    { listener }: Entry,
    event: K,
    value: Parameters<ConsumerEvents[K]>[0],
  ): Promise<void> | undefined {
    try {
      // A listener may be async though its type says void: its rejection is observed all the same.
      const answer = listener[event]?.(value as never) as unknown
      if (!isThenable(answer)) return undefined
      return Promise.resolve(answer).then(
        () => {},
        (cause) => this.#report(event, cause),
      )
    } catch (cause) {
      this.#report(event, cause)
      return undefined
    }
  }

  #report(event: keyof ConsumerEvents, cause: unknown): void {
    this.#failed(new MillraceError("handler", `the listener for "${event}" failed: ${String(cause)}`, { cause }))
  }
}

/** An object of its own, so that the same listener can be added twice and taken away once. */
interface Entry {
  readonly listener: Partial<ConsumerEvents>
}

type Unheard =
  | { readonly event: "skipped"; readonly value: Skip }
  | { readonly event: "sourceChanged"; readonly value: SourceChange }
