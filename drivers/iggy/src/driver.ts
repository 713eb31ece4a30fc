import { CancelledError, type Driver, type Session } from "@millrace/contract"
import { systemClock, systemRandom } from "@millrace/runtime"
import { iggyManifest } from "./manifest.ts"
import { IggySession } from "./session.ts"
import { iggyOptions, readTarget } from "./target.ts"

/**
 * Apache Iggy over its binary protocol on TCP: `iggy://user:password@host:port`, or `iggy://token@host:port`. Several hosts are addresses of
 * one cluster; the leader is found through any of them.
 *
 * A session keeps the process alive until it is closed.
 */
export const iggyDriver: Driver = {
  schemes: ["iggy"],
  options: iggyOptions,
  manifest: iggyManifest,
  async connect(target, options): Promise<Session> {
    if (options.signal?.aborted) {
      throw new CancelledError("the connection to Apache Iggy was cancelled", { cause: options.signal.reason })
    }
    return IggySession.open(readTarget(target), options, { clock: systemClock, random: systemRandom })
  },
}
