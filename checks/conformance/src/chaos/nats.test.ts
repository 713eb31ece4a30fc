import { test } from "node:test"
import { natsDriver } from "@millrace/nats"
import { serverNeed, startNats } from "@millrace/servers"
import { chaos } from "./chaos-suite.ts"
import { readWithNats } from "./foreign-nats.ts"

const need = await serverNeed("nats", { to: "start" })
if (need === undefined) {
  chaos("NATS", { start: () => startNats({ proxied: true }), manifest: natsDriver.manifest, read: readWithNats })
} else {
  test("NATS in chaos", (t) => t.skip(`needs nats: ${need}`))
}
