import { test } from "node:test"
import { serverNeed, startNats } from "@millrace/servers"
import { brokerConformance } from "./broker-suite.ts"

const need = await serverNeed("nats", { to: "start" })
if (need === undefined) {
  brokerConformance("NATS JetStream in trouble", { start: () => startNats({ proxied: true }), sessionTimeoutMs: 6_000 })
} else {
  test("NATS JetStream in trouble", (t) => t.skip(`needs nats: ${need}`))
}
