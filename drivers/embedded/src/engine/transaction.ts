import type { StatementSync } from "node:sqlite"
import type { TopicName } from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import type { CatalogCache } from "./catalog-cache.ts"
import type { Change, TopicRow, WriteAccess } from "./command.ts"
import type { Segments } from "./segments.ts"
import type { Store } from "./store.ts"
import type { TransactionalMemory } from "./transactional-memory.ts"

/** What lives as long as the engine and what every command may use. */
export interface EngineParts {
  readonly store: Store
  readonly clock: Clock
  readonly random: Random
  readonly catalog: CatalogCache
  readonly segments: Segments
  readonly transactional: TransactionalMemory
}

/** One transaction under way. The rooms of the log itself see all of it; others see it as `Access` or `WriteAccess`. */
export class Transaction implements WriteAccess {
  readonly nowMicros: bigint
  readonly monotonicMs: number
  readonly random: Random
  readonly segments: Segments
  readonly transactional: TransactionalMemory
  /** What has changed, for those who wait. */
  readonly changes: Set<Change> = new Set()
  /** Keys of the partitions that got records. */
  readonly appended: Set<number> = new Set()
  /** Encoded bytes that the commands of this commit bring, by topic. */
  readonly incoming: ReadonlyMap<string, number>
  /** Topics with limits that got records, by id, and how many bytes. */
  readonly grown: Map<number, { readonly topic: TopicRow; readonly bytes: number }> = new Map()
  /** Whether streams, topics or partitions have changed. */
  catalogTouched: boolean = false
  /** Whether there is something for the sweep that was not there before. */
  littered: boolean = false
  /** By partition key, the first offset whose bytes this transaction has placed in a segment and not written yet. */
  readonly unflushed: Map<number, bigint> = new Map()
  /** Bytes of staged batches that were copied into the log. */
  copiedBytes: number = 0
  /** Buffers to hand over instead of copying them. */
  transfer: ArrayBuffer[] = []
  readonly #parts: EngineParts
  /** Whether the cache of the catalog is known to fit this transaction. */
  #validated = false

  /** Whether the commit is synced, as far as this store syncs at all. */
  readonly synced: boolean

  constructor(
    parts: EngineParts,
    options: { readonly synced: boolean; readonly incoming?: ReadonlyMap<string, number> } = { synced: false },
  ) {
    this.#parts = parts
    this.nowMicros = parts.clock.nowMicros()
    this.monotonicMs = parts.clock.monotonicMs()
    this.random = parts.random
    this.segments = parts.segments
    this.transactional = parts.transactional
    this.incoming = options.incoming ?? new Map()
    this.synced = options.synced || !parts.store.synced
  }

  statement(sql: string): StatementSync {
    return this.#parts.store.statement(sql)
  }

  topic(name: TopicName): TopicRow {
    const { catalog, store } = this.#parts
    if (!this.#validated) catalog.validate(store)
    this.#validated = true
    return catalog.topic(store, name)
  }

  /**
   * What was last known of a topic, perhaps out of date: for those who find out by other means, since asking costs a statement. The
   * partition keys of a topic that was purged or deleted are used by nobody else, and have no counters any more.
   */
  lastKnown(name: TopicName): TopicRow {
    return this.#parts.catalog.peek(name) ?? this.topic(name)
  }

  changed(change: Change): void {
    this.changes.add(change)
  }

  /** Every change of streams and topics says so: it makes all sessions forget what they know of topics. */
  catalogChanged(): void {
    this.statement("UPDATE store_value SET value = value + 1 WHERE name = 'catalog'").run()
    this.#parts.catalog.forget()
    this.catalogTouched = true
    this.changes.add("groups")
    this.changes.add("appends")
  }

  /** The next number of one of the store's counters. */
  count(
    counter: "nextTopic" | "nextPartition" | "nextProducer" | "nextSegment" | "nextTransaction",
    by: number = 1,
  ): bigint {
    const row = this.statement("UPDATE store_value SET value = value + ? WHERE name = ? RETURNING value").get(
      BigInt(by),
      counter,
    )
    return (row?.value as bigint) - BigInt(by)
  }
}
