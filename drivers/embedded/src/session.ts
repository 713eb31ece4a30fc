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
import type { Clock, Random } from "@millrace/runtime"
import { EmbeddedCatalog } from "./catalog.ts"
import type { WorkerChannel } from "./channel.ts"
import { EmbeddedGroups } from "./group-coordinator.ts"
import { EmbeddedLog } from "./log.ts"
import { embeddedManifest } from "./manifest.ts"
import { EmbeddedOffsets } from "./offset-store.ts"

/** What `Session.native` is for this driver: there is no client underneath, only files. */
export interface EmbeddedNative {
  /** The real path of the store's directory. Its files belong to the store: look, and change nothing. */
  readonly directory: string
}

/** One session: a worker with an engine, and the contract's facets over it. */
export class EmbeddedSession implements Session {
  readonly manifest: Manifest = embeddedManifest
  readonly catalog: Catalog
  readonly log: PartitionLog
  readonly offsets: OffsetStore
  readonly groups: GroupCoordinator
  readonly queues: QueueBroker = absentQueues(embeddedManifest.backend, embeddedManifest.queues)
  readonly transactions: Transactions = absentTransactions(embeddedManifest.backend, embeddedManifest.transactions)
  readonly state: StateStore = absentState(embeddedManifest.backend, embeddedManifest.state)
  readonly native: EmbeddedNative
  readonly #channel: WorkerChannel
  readonly #log: EmbeddedLog
  readonly #groups: EmbeddedGroups
  readonly #afterClose: () => void
  #closing: Promise<void> | undefined

  /** @param parts `afterClose` runs once the store is closed, however that went. */
  constructor(
    channel: WorkerChannel,
    parts: { readonly clock: Clock; readonly random: Random; readonly afterClose: () => void },
  ) {
    const { clock, random } = parts
    this.#channel = channel
    this.#log = new EmbeddedLog(channel)
    this.#groups = new EmbeddedGroups({ channel, clock, random })
    this.#afterClose = parts.afterClose
    this.log = this.#log
    this.groups = this.#groups
    this.catalog = new EmbeddedCatalog(channel)
    this.offsets = new EmbeddedOffsets(channel)
    this.native = Object.freeze({ directory: channel.directory })
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** Every part is closed even when one fails; the first failure is told. */
  async #close(): Promise<void> {
    const outcomes = await Promise.allSettled([this.#groups.close(), this.#log.close()])
    outcomes.push(...(await Promise.allSettled([this.#channel.close()])))
    this.#afterClose()
    const failure = outcomes.find((outcome) => outcome.status === "rejected")
    if (failure !== undefined) throw failure.reason
  }
}
