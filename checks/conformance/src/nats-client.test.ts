import { test } from "node:test"
import { serverNeed, sharedServer } from "@millrace/servers"
import { clientConformance } from "./client-suite.ts"

const need = await serverNeed("nats")
if (need === undefined) {
  clientConformance(
    "millrace over NATS JetStream",
    {
      url: async () => (await sharedServer("nats")).url,
      tight: { options: { native: { max_msg_size: 2_000 } }, limitBytes: 2_000, tooLargeBytes: 3_000 },
      cleanup: async () => {},
    },
    { lacks: ["queues", "transactions"] },
  )
} else {
  test("millrace over NATS JetStream", (t) => t.skip(`needs nats: ${need}`))
}
