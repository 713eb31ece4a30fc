import { test } from "node:test"
import { serverNeed, sharedServer } from "@millrace/servers"
import { clientConformance } from "./client-suite.ts"

const need = await serverNeed("iggy")
if (need === undefined) {
  clientConformance(
    "millrace over Apache Iggy",
    {
      url: async () => (await sharedServer("iggy")).url,
      ownKeyHash: "Iggy has a hash of its own, so that its other clients agree",
      cleanup: async () => {},
    },
    { lacks: ["queues", "transactions"] },
  )
} else {
  test("millrace over Apache Iggy", (t) => t.skip(`needs iggy: ${need}`))
}
