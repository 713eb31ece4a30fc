import { test } from "node:test"
import { iggyDriver } from "@millrace/iggy"
import { serverNeed, startIggy } from "@millrace/servers"
import { spoolKills } from "./spool-kill-suite.ts"

const need = await serverNeed("iggy", { to: "start" })
if (need === undefined) spoolKills("Iggy", { open: () => startIggy({ proxied: true }), manifest: iggyDriver.manifest })
else test("Iggy: a spool before it", (t) => t.skip(`needs iggy: ${need}`))
