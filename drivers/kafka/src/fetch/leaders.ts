/** The brokers that a reader asks. */
import type { Cluster } from "../cluster/cluster.ts"
import { Lane } from "./lane.ts"

/** One broker, over two connections of the reader's own. */
export interface Leader {
  /** For long polls, with a session. */
  readonly long: Lane
  /** For what cannot wait for the long poll to end. */
  readonly short: Lane
  /** How often in a row it could not be asked. */
  failures: number
  /** Not to be asked before this time (monotonic). */
  retryAtMs: number
}

export class Leaders {
  readonly #cluster: Cluster
  readonly #leaders = new Map<number, Leader>()

  constructor(cluster: Cluster) {
    this.#cluster = cluster
  }

  of(nodeId: number): Leader {
    let leader = this.#leaders.get(nodeId)
    if (leader === undefined) {
      leader = {
        long: new Lane(this.#cluster, nodeId, { session: true }),
        short: new Lane(this.#cluster, nodeId, { session: false }),
        failures: 0,
        retryAtMs: 0,
      }
      this.#leaders.set(nodeId, leader)
    }
    return leader
  }

  /** Cuts all connections. What is under way ends with ClosedError. */
  close(): void {
    for (const { long, short } of this.#leaders.values()) {
      long.close()
      short.close()
    }
  }
}
