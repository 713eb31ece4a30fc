import { test } from "node:test"
import { natsDriver } from "@millrace/nats"
import { serverNeed, sharedServer } from "@millrace/servers"
import { conformance } from "./suite.ts"

const need = await serverNeed("nats")
if (need === undefined) {
  conformance("NATS JetStream", {
    driver: natsDriver,
    async target() {
      const { ports } = await sharedServer("nats")
      const hosts = ports.map((port) => ({ host: "127.0.0.1", port }))
      return { scheme: "nats", hosts, path: "", options: {} }
    },
    cleanup: async () => {},
  })
} else {
  test("NATS JetStream", (t) => t.skip(`needs nats: ${need}`))
}
