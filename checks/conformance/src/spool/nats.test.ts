import { test } from "node:test"
import { natsDriver } from "@millrace/nats"
import { serverNeed, startNats } from "@millrace/servers"
import { spoolKills } from "./spool-kill-suite.ts"

const need = await serverNeed("nats", { to: "start" })
if (need === undefined) spoolKills("NATS", { open: () => startNats({ proxied: true }), manifest: natsDriver.manifest })
else test("NATS: a spool before it", (t) => t.skip(`needs nats: ${need}`))
