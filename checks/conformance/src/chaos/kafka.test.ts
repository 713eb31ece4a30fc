import { test } from "node:test"
import { kafkaDriver } from "@millrace/kafka"
import { serverNeed, startKafka } from "@millrace/servers"
import { chaos } from "./chaos-suite.ts"
import { readWithJava } from "./foreign-kafka.ts"

const need = await serverNeed("kafka", { to: "start" })
if (need === undefined) {
  chaos("Kafka", {
    start: () => startKafka({ proxied: true }),
    manifest: kafkaDriver.manifest,
    read: (url, { stream, topic }) => readWithJava(url, `${stream}.${topic}`),
  })
} else {
  test("Kafka in chaos", (t) => t.skip(`needs kafka: ${need}`))
}
