import { test } from "node:test"
import { serverNeed, sharedServer } from "@millrace/servers"
import { clientConformance } from "./client-suite.ts"

const need = await serverNeed("nats")
if (need === undefined) {
  clientConformance("millrace over NATS JetStream", {
    url: async () => (await sharedServer("nats")).url,
    cleanup: async () => {},
  })
} else {
  test("millrace over NATS JetStream", (t) => t.skip(`needs nats: ${need}`))
}
