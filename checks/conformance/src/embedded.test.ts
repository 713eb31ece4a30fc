import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { embeddedDriver } from "@millrace/embedded"
import { conformance } from "./suite.ts"

const directories: string[] = []

conformance("embedded log, file:", {
  driver: embeddedDriver,
  async target() {
    const directory = await mkdtemp(join(tmpdir(), "millrace-conformance-"))
    directories.push(directory)
    return { scheme: "file", hosts: [], path: join(directory, "log"), options: {} }
  },
  async cleanup() {
    for (const directory of directories) await rm(directory, { recursive: true, force: true })
  },
})

conformance("embedded log, memory:", {
  driver: embeddedDriver,
  target: () => ({ scheme: "memory", hosts: [], path: "", options: {} }),
  isolated: "every connection to memory: has a log of its own",
  cleanup: async () => {},
})
