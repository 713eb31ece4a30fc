import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { clientConformance, queueChapterNames } from "./client-suite.ts"

const directories: string[] = []

clientConformance(
  "queues over file:",
  {
    async url() {
      const directory = await mkdtemp(join(tmpdir(), "millrace-queues-"))
      directories.push(directory)
      return `file:${join(directory, "log")}`
    },
    async cleanup() {
      for (const directory of directories) await rm(directory, { recursive: true, force: true })
    },
  },
  { only: queueChapterNames },
)

clientConformance(
  "queues over memory:",
  {
    url: () => "memory:",
    isolated: "every client of memory: has a log of its own",
    cleanup: async () => {},
  },
  { only: queueChapterNames.filter((name) => name !== "queue-waits") },
)
