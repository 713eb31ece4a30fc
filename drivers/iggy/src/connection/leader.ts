/** In a cluster only the leader takes writes: after a login the others send us there (iggy-wire.md: Leader). */
import { ConnectionError, type MillraceError, PermissionError } from "@millrace/contract"
import type { Cluster } from "../codec/server-structures.ts"
import type { Address } from "./connection.machine.ts"

export interface Leader {
  readonly address: Address
  /** Why the connection is given up for it. */
  readonly error: MillraceError
}

/** A cluster that elects its leader is asked again so often and so many times; then any node will do. */
const pauseMs = 250
const mostPauses = 20

/**
 * The leader, unless it is at `current` or there is none. A user who may not ask stays where he is.
 * @throws whatever `ask` and `pause` throw
 */
export async function leaderElsewhere(
  current: Address,
  ask: () => Promise<Cluster>,
  pause: (ms: number) => Promise<void>,
): Promise<Leader | undefined> {
  for (let round = 0; round < mostPauses; round++) {
    const nodes = await ask().then(
      (cluster) => cluster.nodes,
      (error: unknown) => {
        if (error instanceof PermissionError) return []
        throw error
      },
    )
    if (nodes.length < 2) return undefined
    const leader = nodes.find((node) => node.role === "leader" && node.status === "healthy")
    if (leader !== undefined) {
      const address = { host: leader.ip, port: leader.tcpPort }
      if (address.host === current.host && address.port === current.port) return undefined
      return { address, error: new ConnectionError(`the leader of the cluster is at ${address.host}:${address.port}`) }
    }
    await pause(pauseMs)
  }
  return undefined
}
