import { MillraceError, type TopicPartition } from "@millrace/contract"

/** What a consumer tells of its partitions (`consumer.on`). Called in order, while nothing is being handed out. */
export interface ConsumerEvents {
  /** The member reads these from now on. A listener that comes later is told at once of those that it has. */
  assigned(partitions: readonly TopicPartition[]): void
  /** These were handed over; their progress is stored as the policy has it. Later commits are refused. */
  revoked(partitions: readonly TopicPartition[]): void
  /** These were taken away: another member may be reading them already. Later commits are refused. */
  lost(partitions: readonly TopicPartition[]): void
  /** The topic was purged or recreated: what was read ahead is thrown away, and reading goes on at the start of the new history. */
  sourceChanged(change: SourceChange): void
  /** The position was not in the log, and was moved as `onOutOfRange` says. */
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

export interface SourceChange extends TopicPartition {
  /** Where reading goes on. */
  readonly offset: bigint
}

export interface Skip extends TopicPartition {
  /** The position that was not in the log. */
  readonly from: bigint
  readonly to: bigint
  /** How many records nobody will see; 0 when the position moved back. */
  readonly count: bigint
}

/** The listeners of one consumer. A failing listener is reported, and hinders neither the others nor the consumer. */
export class ConsumerListeners {
  readonly #listeners = new Set<Partial<ConsumerEvents>>()
  readonly #failed: (error: MillraceError) => void

  constructor(failed: (error: MillraceError) => void) {
    this.#failed = failed
  }

  /** @param assigned What the newcomer is told to be assigned already. */
  add(listener: Partial<ConsumerEvents>, assigned: readonly TopicPartition[]): Disposable {
    // An object of its own, so that the same listener can be added twice and taken away once.
    const entry: Partial<ConsumerEvents> = Object.create(listener)
    this.#listeners.add(entry)
    if (assigned.length > 0) this.#tellOne(entry, "assigned", assigned)
    return { [Symbol.dispose]: () => void this.#listeners.delete(entry) }
  }

  tell<K extends keyof ConsumerEvents>(event: K, value: Parameters<ConsumerEvents[K]>[0]): void {
    for (const listener of [...this.#listeners]) this.#tellOne(listener, event, value)
  }

  #tellOne<K extends keyof ConsumerEvents>(
    listener: Partial<ConsumerEvents>,
    event: K,
    value: Parameters<ConsumerEvents[K]>[0],
  ): void {
    try {
      // A listener may be async though its type says void: its rejection is observed all the same.
      const answer = listener[event]?.(value as never) as unknown
      if (answer instanceof Promise) answer.catch((cause) => this.#report(event, cause))
    } catch (cause) {
      this.#report(event, cause)
    }
  }

  #report(event: keyof ConsumerEvents, cause: unknown): void {
    this.#failed(new MillraceError("handler", `the listener for "${event}" failed: ${String(cause)}`, { cause }))
  }
}
