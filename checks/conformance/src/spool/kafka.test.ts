import { test } from "node:test"
import { kafkaDriver } from "@millrace/kafka"
import { serverNeed, startKafka } from "@millrace/servers"
import { spoolKills } from "./spool-kill-suite.ts"

const need = await serverNeed("kafka", { to: "start" })
if (need === undefined)
  spoolKills("Kafka", { open: () => startKafka({ proxied: true }), manifest: kafkaDriver.manifest })
else test("Kafka: a spool before it", (t) => t.skip(`needs kafka: ${need}`))
