/** The servers of a cluster: by address, by node, and which one to ask when any will do. */
import type { ConnectionChange } from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import type { MetadataResponse } from "../protocol/messages.generated.ts"
import type { NodeVersions } from "../wire/node-versions.ts"
import type { ClusterNode } from "./cluster.ts"
import { Server } from "./server.ts"

export interface DirectoryOptions {
  /** The addresses of the URL. */
  readonly bootstrap: readonly { readonly host: string; readonly port: number }[]
  readonly clientId: string
  readonly requestTimeoutMs: number
  readonly clock: Clock
  readonly random: Random
  readonly onConnection?: ((change: ConnectionChange) => void) | undefined
}

export class ServerDirectory {
  readonly #options: DirectoryOptions
  readonly #servers = new Map<string, Server>()
  #nodes: ReadonlyMap<number, ClusterNode> = new Map()
  #byId: ReadonlyMap<number, Server> = new Map()
  #controllerId: number | undefined = -1
  #versions: NodeVersions | undefined
  /** Where requests for any node go: one at a time, so that one view of the cluster follows the other. */
  #preferred: Server | undefined
  #closed = false

  constructor(options: DirectoryOptions) {
    this.#options = options
  }

  get nodes(): readonly ClusterNode[] {
    return [...this.#nodes.values()]
  }

  /** What the newest connection said of its broker. */
  get versions(): NodeVersions | undefined {
    return this.#versions
  }

  /** As the newest metadata has it, −1 where it names none; `undefined` when it is in doubt, until the next. */
  get controllerId(): number | undefined {
    return this.#controllerId
  }

  doubtController(): void {
    this.#controllerId = undefined
  }

  /** The one that requests for any node go to, if there is one now. */
  get preferred(): Server | undefined {
    return this.#preferred
  }

  /** The servers of the URL's addresses. */
  first(): Server[] {
    return this.#options.bootstrap.map(({ host, port }) => this.#server(host, port, -1))
  }

  /** `undefined` for a node that the newest metadata does not have. */
  byId(id: number): Server | undefined {
    return this.#byId.get(id)
  }

  prefer(server: Server): void {
    this.#preferred = server
  }

  /** The preferred one did not serve: the next question for any goes elsewhere. */
  doubtPreferred(): void {
    this.#preferred = undefined
  }

  /** Nothing that was learned counts any more: the next question goes to the URL's addresses (KIP-1102). */
  beginAgain(): void {
    this.#nodes = new Map()
    this.#byId = new Map()
    this.#preferred = undefined
  }

  /** One that is connected, else one that may be, else one of the first addresses: a cluster that moved is found again (KIP-899). */
  any(): Server {
    if (this.#preferred?.shared !== undefined) return this.#preferred
    const known = [...this.#byId.values()]
    const good =
      known.find((server) => server.shared !== undefined) ?? this.#picked(known.filter((server) => !server.isDown))
    if (good !== undefined) {
      this.#preferred = good
      return good
    }
    const first = this.first()
    const all = [...known, ...first.filter((server) => !known.includes(server))]
    return this.#picked(first.filter((server) => !server.isDown)) ?? (this.#picked(all) as Server)
  }

  /** Takes note of the nodes that a broker tells. Servers that are no part of the cluster any more are let go. */
  accept(answer: MetadataResponse): void {
    if (this.#closed || answer.brokers.length === 0) return
    this.#controllerId = answer.controllerId
    const nodes = answer.brokers.map(({ nodeId, host, port, rack }) => ({
      id: nodeId,
      host,
      port,
      rack: rack ?? undefined,
    }))
    this.#nodes = new Map(nodes.map((node) => [node.id, node]))
    this.#byId = new Map(nodes.map(({ id, host, port }) => [id, this.#server(host, port, id)]))
    const listed = new Set(this.#byId.values())
    this.#preferListed(listed)
    for (const [address, server] of this.#servers) {
      const gone = !listed.has(server)
      if (gone && server.isLost) this.#tellReplaced(server)
      server.retire(gone)
      if (gone && server.isIdle && server !== this.#preferred) {
        server.close()
        this.#servers.delete(address)
      }
    }
  }

  close(): void {
    this.#closed = true
    for (const server of this.#servers.values()) server.close()
  }

  /** From an address of the URL to the node that it leads to. */
  #preferListed(listed: ReadonlySet<Server>): void {
    if (this.#preferred !== undefined && listed.has(this.#preferred)) return
    const up = [...listed].find((server) => server.shared !== undefined)
    if (up !== undefined) this.#preferred = up
  }

  /** A server that was lost is no part of the cluster any more, and another one says so: the cluster answers again. */
  #tellReplaced(lost: Server): void {
    const by = this.#preferred?.address ?? lost.address
    this.#options.onConnection?.({ state: "restored", server: by, afterMs: lost.lostForMs })
  }

  #picked(servers: readonly Server[]): Server | undefined {
    return servers.length === 0 ? undefined : servers[this.#options.random.uint32() % servers.length]
  }

  #server(host: string, port: number, nodeId: number): Server {
    const address = `${host}:${port}`
    const known = this.#servers.get(address)
    if (known !== undefined) {
      if (nodeId >= 0) known.nodeId = nodeId
      return known
    }
    const { clientId, requestTimeoutMs, clock, random } = this.#options
    const tools = { host, port, clientId, requestTimeoutMs, clock, random }
    const server = new Server(
      {
        ...tools,
        onConnection: (change) => this.#options.onConnection?.(change),
        onOpen: (connection) => {
          this.#versions = connection.versions
        },
      },
      nodeId,
    )
    if (this.#closed) server.close()
    this.#servers.set(address, server)
    return server
  }
}
