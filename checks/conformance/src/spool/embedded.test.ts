import { join } from "node:path"
import { embeddedDriver } from "@millrace/embedded"
import { spoolKills } from "./spool-kill-suite.ts"

spoolKills("embedded log", {
  manifest: embeddedDriver.manifest,
  open: async (directory) => ({
    url: `file:${join(directory, "log")}`,
    proxies: [],
    async [Symbol.asyncDispose]() {},
  }),
})
