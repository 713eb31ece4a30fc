import { test } from "node:test"
import type { ConnectTarget } from "@millrace/contract"
import { iggyDriver } from "@millrace/iggy"
import { type Server, serverNeed, startIggy } from "@millrace/servers"
import { conformance } from "./suite.ts"

const need = await serverNeed("iggy", { to: "start" })
if (need === undefined) {
  let server: Server | undefined
  conformance("Apache Iggy", {
    driver: iggyDriver,
    async target() {
      // Its retention looks every minute by default.
      server ??= await startIggy({ env: { IGGY_DATA_MAINTENANCE_MESSAGES_INTERVAL: "1s" } })
      return targetOf(server.url)
    },
    eagerRetention: { native: { segment_size: 1 << 20 }, recordBytes: 8_000_000 },
    async cleanup() {
      await server?.stop()
    },
  })
} else {
  test("Apache Iggy", (t) => t.skip(`needs iggy: ${need}`))
}

function targetOf(url: string): ConnectTarget {
  const { hostname, port, username, password } = new URL(url)
  return { scheme: "iggy", hosts: [{ host: hostname, port: Number(port) }], path: "", username, password, options: {} }
}
