import { test } from "node:test"
import { serverNeed, startIggy } from "@millrace/servers"
import { brokerConformance } from "./broker-suite.ts"

const need = await serverNeed("iggy", { to: "start" })
if (need === undefined) {
  // A member that is not heard of for 1.2 times the server's heartbeat is taken for dead.
  const start = (): ReturnType<typeof startIggy> => startIggy({ proxied: true, env: { IGGY_HEARTBEAT_INTERVAL: "4s" } })
  brokerConformance("Apache Iggy in trouble", { start, sessionTimeoutMs: 6_000 })
} else {
  test("Apache Iggy in trouble", (t) => t.skip(`needs iggy: ${need}`))
}
