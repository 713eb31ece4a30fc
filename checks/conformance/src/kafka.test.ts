import { test } from "node:test"
import { kafkaDriver } from "@millrace/kafka"
import { serverNeed, sharedServer } from "@millrace/servers"
import { conformance } from "./suite.ts"

const need = await serverNeed("kafka")
if (need === undefined) {
  conformance("Kafka", {
    driver: kafkaDriver,
    async target() {
      const { ports } = await sharedServer("kafka")
      const hosts = ports.map((port) => ({ host: "127.0.0.1", port }))
      return { scheme: "kafka", hosts, path: "", options: {} }
    },
    mostPartitions: 200,
    eagerRetention: { native: { config: { "segment.ms": "100", "segment.bytes": "1048576" } }, recordBytes: 300_000 },
    cleanup: async () => {},
  })
} else {
  test("Kafka", (t) => t.skip(`needs kafka: ${need}`))
}
