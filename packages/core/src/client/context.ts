import type { Session, TopicDescription, TopicName } from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import type { ConnectionWatch } from "./connection-watch.ts"

/** What every room of the core gets from the client that it works for. */
export interface ClientContext {
  readonly session: Session
  readonly clock: Clock
  readonly random: Random
  readonly connection: ConnectionWatch
  /** The connection's publish settings, which producers inherit (table 1.14). */
  readonly publish: { readonly timeoutMs: number; readonly retries: number; readonly retryBackoffMs: number }
  readonly topics: TopicDirectory
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
