import {
  absentQueues,
  absentState,
  absentTransactions,
  type Catalog,
  type GroupCoordinator,
  type Manifest,
  type OffsetStore,
  type PartitionLog,
  type QueueBroker,
  type Session,
  type StateStore,
  type Transactions,
} from "@millrace/contract"
import type { NatsConnection } from "@nats-io/transport-node"
import { NatsCatalog } from "./catalog.ts"
import type { Connection } from "./connection.ts"
import { NatsGroups } from "./groups.ts"
import { NatsLog } from "./log.ts"
import { manifestOf } from "./manifest.ts"
import { NatsOffsets } from "./offsets.ts"
import { NatsReader } from "./reader.ts"
import { TopicLayouts } from "./topic-layout.ts"

/** What `Session.native` is for this driver. */
export interface NatsNative {
  /** The client's connection. It belongs to the session: use it, and do not close it. */
  readonly connection: NatsConnection
}

/** One session: a connection, and the contract's facets over it. */
export class NatsSession implements Session {
  readonly manifest: Manifest
  readonly catalog: Catalog
  readonly log: PartitionLog
  readonly offsets: OffsetStore
  readonly groups: GroupCoordinator
  readonly queues: QueueBroker
  readonly transactions: Transactions
  readonly state: StateStore
  readonly native: NatsNative
  readonly #connection: Connection
  readonly #groups: NatsGroups
  #closing: Promise<void> | undefined

  constructor(connection: Connection) {
    const layouts = new TopicLayouts(connection)
    const offsets = new NatsOffsets({ connection, layouts })
    const { maxPayloadBytes } = connection
    const manifest = manifestOf({ maxPayloadBytes, fastIngest: connection.isAtLeast(2, 14) })
    this.#connection = connection
    this.#groups = new NatsGroups({ connection, layouts, offsets })
    this.manifest = manifest
    this.catalog = new NatsCatalog(connection, layouts, { forgetOffsets: (topic) => offsets.forget(topic) })
    this.log = new NatsLog(connection, layouts, { openReader: () => new NatsReader({ connection, layouts }) })
    this.offsets = offsets
    this.groups = this.#groups
    this.queues = absentQueues(manifest.backend, manifest.queues)
    this.transactions = absentTransactions(manifest.backend, manifest.transactions)
    this.state = absentState(manifest.backend, manifest.state)
    this.native = Object.freeze({ connection: connection.nc })
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** Members leave while messages can still be sent; the connection is closed even when that fails. */
  async #close(): Promise<void> {
    const [left] = await Promise.allSettled([this.#groups.close()])
    await this.#connection.close()
    if (left.status === "rejected") throw left.reason
  }
}
