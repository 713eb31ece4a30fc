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
  type SessionOptions,
  type StateStore,
  type Transactions,
} from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import { IggyCatalog } from "./catalog.ts"
import { type ConnectionOptions, IggyConnection } from "./connection/connection.ts"
import { IggyGroups } from "./group-coordinator.ts"
import { Incarnations } from "./incarnations.ts"
import { IggyLog } from "./log.ts"
import { iggyManifest } from "./manifest.ts"
import type { MembershipTools } from "./membership.ts"
import { IggyOffsets } from "./offset-store.ts"
import { Places } from "./places.ts"
import { SessionRequests } from "./session-requests.ts"
import type { IggyTarget } from "./target.ts"

interface Tools {
  readonly clock: Clock
  readonly random: Random
}

/** One session: a connection for all but groups, and one more for each membership, since the server knows members by their sessions. */
export class IggySession implements Session {
  readonly manifest: Manifest
  readonly catalog: Catalog
  readonly log: PartitionLog
  readonly offsets: OffsetStore
  readonly groups: GroupCoordinator
  readonly queues: QueueBroker = absentQueues(iggyManifest.backend, iggyManifest.queues)
  readonly transactions: Transactions = absentTransactions(iggyManifest.backend, iggyManifest.transactions)
  readonly state: StateStore = absentState(iggyManifest.backend, iggyManifest.state)
  /** The connection, for commands of the protocol that the contract has no words for. */
  readonly native: IggyConnection
  readonly #requests: SessionRequests
  readonly #log: IggyLog
  readonly #groups: IggyGroups
  #closing: Promise<void> | undefined

  /**
   * Connects and logs in.
   * @throws AuthenticationError, ConnectionError, CancelledError
   */
  static async open(target: IggyTarget, options: SessionOptions, tools: Tools): Promise<IggySession> {
    const { timeoutMs, signal, onConnection } = options
    const settings: ConnectionOptions = {
      addresses: target.addresses,
      credentials: target.credentials,
      ...tools,
      ...(target.version === undefined ? {} : { version: target.version }),
      dialTimeoutMs: timeoutMs,
      heartbeatMs: target.heartbeatMs,
    }
    const limits = { timeoutMs, ...(signal === undefined ? {} : { signal }) }
    const connection = await IggyConnection.open(
      { ...settings, ...(onConnection === undefined ? {} : { onConnection }) },
      limits,
    )
    const openMember: MembershipTools["open"] = async (onSession) => {
      // A server that was killed remembers the members of its groups: one that comes back under its id takes its own place.
      const member = {
        ...settings,
        keepClient: true,
        onSession: ({ state }: { readonly state: "ready" | "lost" }) => onSession(state),
      }
      return new SessionRequests(await IggyConnection.open(member, { timeoutMs }), target.requestTimeoutMs)
    }
    return new IggySession(new SessionRequests(connection, target.requestTimeoutMs), { ...tools, open: openMember })
  }

  private constructor(requests: SessionRequests, tools: Tools & { readonly open: MembershipTools["open"] }) {
    const places = new Places(requests)
    const incarnations = new Incarnations(requests, tools.clock)
    this.#requests = requests
    this.#log = new IggyLog({ requests, places, incarnations, clock: tools.clock })
    this.#groups = new IggyGroups(requests, tools)
    this.manifest = iggyManifest
    this.log = this.#log
    this.groups = this.#groups
    this.catalog = new IggyCatalog({ requests, incarnations, clock: tools.clock })
    this.offsets = new IggyOffsets(requests, places)
    this.native = requests.connection
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** Every part is closed even when one fails; the first failure is told. */
  async #close(): Promise<void> {
    const outcomes = await Promise.allSettled([this.#groups.close(), this.#log.close()])
    outcomes.push(...(await Promise.allSettled([this.#requests.close()])))
    const failure = outcomes.find((outcome) => outcome.status === "rejected")
    if (failure !== undefined) throw failure.reason
  }
}
