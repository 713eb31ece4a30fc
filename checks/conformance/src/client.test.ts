import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { clientChapterNames, clientConformance, queueChapterNames } from "./client-suite.ts"

const directories: string[] = []

clientConformance(
  "millrace over file:",
  {
    async url() {
      const directory = await mkdtemp(join(tmpdir(), "millrace-client-"))
      directories.push(directory)
      return `file:${join(directory, "log")}`
    },
    async cleanup() {
      for (const directory of directories) await rm(directory, { recursive: true, force: true })
    },
  },
  // Queues wait most of their time: they have a file of their own.
  { only: clientChapterNames.filter((name) => !queueChapterNames.includes(name)) },
)

clientConformance(
  "millrace over memory:",
  {
    url: () => "memory:",
    isolated: "every client of memory: has a log of its own",
    cleanup: async () => {},
  },
  {
    only: [
      "handles",
      "producing",
      "sending-failures",
      "background",
      "background-failures",
      "observing",
      "consuming",
      "grouping",
      "encryption",
    ],
  },
)
