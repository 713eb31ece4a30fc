import { test } from "node:test"
import { serverNeed, startKafka } from "@millrace/servers"
import { brokerConformance } from "./broker-suite.ts"

const need = await serverNeed("kafka", { to: "start" })
if (need === undefined) {
  brokerConformance("Kafka in trouble", { start: () => startKafka({ proxied: true }), sessionTimeoutMs: 6_000 })
} else {
  test("Kafka in trouble", (t) => t.skip(`needs kafka: ${need}`))
}
