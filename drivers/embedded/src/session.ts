import type {
  Catalog,
  GroupCoordinator,
  Manifest,
  OffsetStore,
  PartitionLog,
  QueueBroker,
  Session,
  StateStore,
  Transactions,
} from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import { EmbeddedCatalog } from "./catalog.ts"
import type { WorkerChannel } from "./channel.ts"
import { EmbeddedGroups } from "./group-coordinator.ts"
import { EmbeddedLog } from "./log.ts"
import { embeddedManifest } from "./manifest.ts"
import { EmbeddedOffsets } from "./offset-store.ts"
import { EmbeddedQueues } from "./queue-broker.ts"
import { EmbeddedState } from "./state-store.ts"
import { EmbeddedTransactions } from "./transactions.ts"

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
  readonly queues: QueueBroker
  readonly transactions: Transactions
  readonly state: StateStore
  readonly native: EmbeddedNative
  readonly #channel: WorkerChannel
  readonly #log: EmbeddedLog
  readonly #groups: EmbeddedGroups
  readonly #queues: EmbeddedQueues
  readonly #transactions: EmbeddedTransactions
  readonly #state: EmbeddedState
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
    this.#queues = new EmbeddedQueues({ channel, clock })
    this.#transactions = new EmbeddedTransactions(channel)
    this.#state = new EmbeddedState(channel)
    this.#afterClose = parts.afterClose
    this.log = this.#log
    this.groups = this.#groups
    this.catalog = new EmbeddedCatalog(channel)
    this.offsets = new EmbeddedOffsets(channel)
    this.queues = this.#queues
    this.transactions = this.#transactions
    this.state = this.#state
    this.native = Object.freeze({ directory: channel.directory })
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** Every part is closed even when one fails; the first failure is told. */
  async #close(): Promise<void> {
    this.#state.close()
    const parts = [this.#groups, this.#log, this.#queues, this.#transactions]
    const outcomes = await Promise.allSettled(parts.map((part) => part.close()))
    outcomes.push(...(await Promise.allSettled([this.#channel.close()])))
    this.#afterClose()
    const failure = outcomes.find((outcome) => outcome.status === "rejected")
    if (failure !== undefined) throw failure.reason
  }
}
