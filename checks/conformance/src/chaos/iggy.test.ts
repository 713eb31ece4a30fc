import { test } from "node:test"
import { iggyDriver } from "@millrace/iggy"
import { serverNeed, startIggy } from "@millrace/servers"
import { chaos } from "./chaos-suite.ts"
import { readAfresh } from "./read-afresh.ts"

const need = await serverNeed("iggy", { to: "start" })
if (need === undefined) {
  // No other client speaks this server's protocol: a connection of its own reads the log back.
  chaos("Iggy", { start: () => startIggy({ proxied: true }), manifest: iggyDriver.manifest, read: readAfresh })
} else {
  test("Iggy in chaos", (t) => t.skip(`needs iggy: ${need}`))
}
