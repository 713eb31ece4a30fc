import { test } from "node:test"
import { serverNeed, sharedServer } from "@millrace/servers"
import { clientConformance } from "./client-suite.ts"

const need = await serverNeed("kafka")
if (need === undefined) {
  clientConformance(
    "millrace over Kafka",
    {
      url: async () => (await sharedServer("kafka")).url,
      tight: {
        options: { native: { config: { "max.message.bytes": "2000" } } },
        limitBytes: 2_000,
        tooLargeBytes: 3_000,
      },
      cleanup: async () => {},
    },
    { lacks: ["queues", "transactions"] },
  )
} else {
  test("millrace over Kafka", (t) => t.skip(`needs kafka: ${need}`))
}
