import type { Session, TopicDescription, TopicName } from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import type { Encryptor } from "../encryption/encryptor.ts"
import type { FilterWatch } from "../filter/filter-watch.ts"
import type { ProducerRegistry } from "../observe/producer-registry.ts"
import type { Telemetry } from "../observe/telemetry.ts"
import type { ConnectionWatch } from "./connection-watch.ts"

/** What every room of the core gets from the client that it works for. */
export interface ClientContext {
  readonly session: Session
  readonly clock: Clock
  readonly random: Random
  readonly connection: ConnectionWatch
  /** The connection's publish settings, which producers inherit (table 1.14). */
  readonly publish: { readonly timeoutMs: number; readonly retries: number; readonly retryBackoffMs: number }
  /** What producers and consumers encrypt and decrypt with unless they say otherwise. */
  readonly encryptor?: Encryptor | undefined
  readonly topics: TopicDirectory
  /** The filters of consumer groups, read when somebody needs them. */
  readonly filters: FilterWatch
  /** The live producers, for reports of their statistics. */
  readonly producers: ProducerRegistry
  /** Spans and metrics; absent when nobody collects any. */
  readonly telemetry?: Telemetry | undefined
  /** Opens the log that a spool lives in, for this process alone; absent where there is none to be had. */
  readonly openSpool?: ((directory: string) => Promise<Session>) | undefined
  /** Registers what `client.close()` must shut down; the answer forgets it again. */
  own(owned: Owned): () => void
}

export interface Owned {
  shutdown(options?: { readonly timeoutMs?: number }): Promise<void>
}

/** Topic descriptions, asked for once and shared. */
export interface TopicDirectory {
  /** The cached description, or a fresh one. @throws NotFoundError */
  describe(name: TopicName): Promise<TopicDescription>
  /** The topic is not what the cache thinks: the next `describe` asks the backend. Touches no other topic. */
  forget(name: TopicName): void
}
