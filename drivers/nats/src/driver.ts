import type { Driver } from "@millrace/contract"
import { systemClock, systemRandom } from "@millrace/runtime"
import { Connection } from "./connection.ts"
import { natsManifest } from "./manifest.ts"
import { NatsSession } from "./session.ts"

/**
 * NATS JetStream: `nats://user:password@host:4222,host:4222`. The option `requestTimeout` (default 10 s) bounds each request to the
 * server. TLS is used where the server asks for it, with the certificates that Node trusts.
 */
export const natsDriver: Driver = {
  schemes: ["nats"],
  options: { requestTimeout: "duration" },
  manifest: natsManifest,
  async connect(target, options) {
    return new NatsSession(await Connection.open(target, options, { clock: systemClock, random: systemRandom }))
  },
}
