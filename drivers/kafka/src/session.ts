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
import { KafkaPartitionLog } from "./append/partition-log.ts"
import { KafkaCatalog } from "./catalog/catalog.ts"
import { TopicFacts } from "./catalog/topic-facts.ts"
import type { Cluster } from "./cluster/cluster.ts"
import { KafkaGroupCoordinator } from "./groups/group-coordinator.ts"
import { KafkaOffsetStore } from "./offsets/offset-store.ts"
import type { KafkaSettings } from "./options.ts"
import { Pauses } from "./pauses.ts"

/** What `Session.native` is for this driver. */
export interface KafkaNative {
  /** Sends any request that the protocol's codecs know, to any broker. It ends with the session. */
  readonly cluster: Cluster
}

export interface SessionParts {
  readonly settings: KafkaSettings
  readonly manifest: Manifest
  readonly clock: Clock
  readonly random: Random
}

/** One session: a cluster's connections, and the contract's facets over them. */
export class KafkaSession implements Session {
  readonly manifest: Manifest
  readonly catalog: Catalog
  readonly log: PartitionLog
  readonly offsets: OffsetStore
  readonly groups: GroupCoordinator
  readonly queues: QueueBroker
  readonly transactions: Transactions
  readonly state: StateStore
  readonly native: KafkaNative
  readonly #cluster: Cluster
  readonly #catalog: KafkaCatalog
  readonly #pauses: Pauses
  readonly #log: KafkaPartitionLog
  readonly #offsets: KafkaOffsetStore
  readonly #groups: KafkaGroupCoordinator
  #closing: Promise<void> | undefined

  constructor(cluster: Cluster, { settings, manifest, clock, random }: SessionParts) {
    const facts = new TopicFacts()
    const { compression, fetch, groupProtocol } = settings
    const pauses = new Pauses(clock)
    this.#pauses = pauses
    this.manifest = manifest
    this.#cluster = cluster
    this.#log = new KafkaPartitionLog({ cluster, clock, random, pauses, facts, compression, fetch })
    this.#offsets = new KafkaOffsetStore({ cluster, clock, random, pauses })
    this.#groups = new KafkaGroupCoordinator({ cluster, clock, random, pauses, protocol: groupProtocol })
    this.#catalog = new KafkaCatalog({ cluster, clock, pauses, facts })
    this.catalog = this.#catalog
    this.log = this.#log
    this.offsets = this.#offsets
    this.groups = this.#groups
    this.queues = absentQueues(manifest.backend, manifest.queues)
    this.transactions = absentTransactions(manifest.backend, manifest.transactions)
    this.state = absentState(manifest.backend, manifest.state)
    this.native = Object.freeze({ cluster })
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** Every part is closed even when one fails; the first failure is told. Members leave while there are connections to leave by. */
  async #close(): Promise<void> {
    const outcomes = await Promise.allSettled([this.#groups.close(), this.#log.close()])
    this.#offsets.close()
    this.#catalog.close()
    this.#pauses.close()
    outcomes.push(...(await Promise.allSettled([this.#cluster.close()])))
    const failure = outcomes.find((outcome) => outcome.status === "rejected")
    if (failure !== undefined) throw failure.reason
  }
}
