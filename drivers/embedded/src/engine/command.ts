/**
 * What the main thread can ask of the engine. A command is a plain function that runs inside a transaction; the engine decides when
 * it runs, shares one commit among all that wait, and answers after the commit.
 */
import type { StatementSync } from "node:sqlite"
import type { Durability, TopicName } from "@millrace/contract"
import type { Random } from "@millrace/runtime"

/** A topic as the store has it now. Numbers in it are the store's own keys. */
export interface TopicRow {
  /** Never used again, not even when a topic of the same name is created. */
  readonly id: number
  readonly stream: string
  readonly topic: string
  /** Opaque text of the contract: the id and a number that grows with each purge. */
  readonly lineage: string
  /** The store's key of each partition's present history, by partition number. */
  readonly partitionKeys: readonly number[]
  readonly durability: Durability
  readonly offsetDurability: Durability
  readonly deduplicationWindowMs: number
  readonly deduplicateIds: boolean
  readonly expireAfterMs: number | undefined
  readonly maxBytes: bigint | undefined
  readonly createdMicros: bigint
  /** The `native` of the topic's specification as JSON text. */
  readonly native: string | undefined
}

/** What may have changed for those who wait. */
export type Change = "appends" | "groups" | "queues" | "state"

/** A consistent view of the store: everything that one command sees belongs to one snapshot. */
export interface Access {
  /** The prepared statement of a text, from a cache. Every INTEGER that it reads is a bigint. Never leave `iterate()` open. */
  statement(sql: string): StatementSync
  /** @throws NotFoundError when the stream or the topic does not exist */
  topic(name: TopicName): TopicRow
  /** The wall clock when the transaction began. */
  readonly nowMicros: bigint
  /** The engine's monotonic clock when the transaction began. Means nothing in another process. */
  readonly monotonicMs: number
  readonly random: Random
}

/** What a command that changes the store has in addition. */
export interface WriteAccess extends Access {
  /** After the commit, wakes those who wait for such a change: here, and in other sessions and processes. */
  changed(change: Change): void
}

/** Looks, and changes nothing. Runs in a read transaction of its own; touches no lock that a writer waits for. */
export interface ReadCommand<A = unknown, R = unknown> {
  readonly mode: "read"
  /** Commands that wait for such a change look again after this one. */
  readonly rechecks?: Change
  readonly name: string
  run(access: Access, args: A): R
}

/**
 * Changes the store. All write commands that wait share one commit. Throwing undoes what this command did and nobody else's work; the
 * answer leaves only after the commit (and, when `durability` says so, the sync).
 */
export interface WriteCommand<A = unknown, R = unknown> {
  readonly mode: "write"
  readonly name: string
  /**
   * Whether the commit must be synced before the answer. `lookup` may be out of date: it gives undefined for a topic that is gone.
   */
  durability(args: A, lookup: (name: TopicName) => TopicRow | undefined): Durability
  /** Whether `run` throws a `MillraceError` only before its first change, so that there is nothing to undo. Default false. */
  readonly checksFirst?: boolean
  /** The encoded bytes that the command brings to a topic, known before it runs. */
  incoming?(args: A): { readonly topic: TopicName; readonly bytes: number }
  run(access: WriteAccess, args: A): R
}

/**
 * A read that answers later: run at once, then again whenever something of `interest` may have changed in any process, until it gives
 * something other than `undefined`. When `maxWaitMs` is over it runs once more with `over` true and must answer.
 */
export interface WaitCommand<A = unknown, R = unknown> {
  readonly mode: "wait"
  readonly name: string
  readonly interest: Change | readonly Change[]
  maxWaitMs(args: A): number
  /** When it looks again though nothing has changed, on the engine's monotonic clock: behind its last run. Default: only when the wait is over. */
  dueMs?(args: A): number
  /** Whether appends to the partitions with these keys can concern it, for those of this engine. Default: yes. */
  concerns?(args: A, partitionKeys: ReadonlySet<number>): boolean
  run(access: Access, args: A, over: boolean): R | undefined
}

// biome-ignore lint/suspicious/noExplicitAny: commands of different arguments stand in one registry
export type Command = ReadCommand<any, any> | WriteCommand<any, any> | WaitCommand<any, any>

/** A part of the engine that owns tables: its schema, its commands, and what it must do when a topic goes. */
export interface Room {
  /** `CREATE TABLE` statements, run once: when a store is made, or brought up to `format`. */
  readonly schema: string
  /** The store's format that has these tables first. Default 1. */
  readonly format?: number
  readonly commands: readonly Command[]
  /** In the transaction that purges a topic: its offsets belong to a history that is over. */
  topicPurged?(access: WriteAccess, topicId: number): void
  /** In the transaction that deletes a topic. */
  topicDeleted?(access: WriteAccess, topicId: number): void
}
