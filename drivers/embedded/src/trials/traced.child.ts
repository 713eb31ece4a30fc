/**
 * The process whose writes and syncs are traced: opens a store, appends and stores offsets, and says on its standard output what was
 * confirmed, at the moment at which it is.
 *
 *     open                                      a session is open and the topics are there
 *     <topic> <base> <first> <count>            a batch: of writer 1 in `synced`, 2 in `written`, 3 in `limited`, which keeps little
 *     offset <first> <next>                     the offset of the consumer `traced-<first>` in the synced topic
 */
import { writeSync } from "node:fs"
import type { TopicDescription } from "@millrace/contract"
import { type LogSession, openThreadSession } from "./thread-session.ts"
import { appendTrialBatch, ensureTopic, openSession } from "./trial-log.ts"
import { takeSyncsOut } from "./without-sync.ts"

const [directory, sessionsText, appendsText, syncs] = process.argv.slice(2) as [string, string, string, string]

// Without syncs the engine runs in this thread, where they can be taken out.
if (syncs === "without") takeSyncsOut()
const open = syncs === "without" ? openThreadSession : openSession

/** Appends under way at once. */
const lanes = 3

let next = 0

const names = ["synced", "written", "limited"]

async function lane(session: LogSession, topics: readonly TopicDescription[], until: number): Promise<void> {
  while (next < until) {
    const first = next
    const count = 1 + (first % 3)
    next += count
    const which = first % 5 === 3 ? 1 : first % 5 === 4 ? 2 : 0
    const topic = topics[which] as TopicDescription
    // Now and then, and always in the topic whose old segments go, a batch that is large enough for a segment.
    const bytes = which === 2 || first % 7 === 0 ? 70_000 : 40 + ((first * 37) % 700)
    const base = await appendTrialBatch(session, topic, { writer: which + 1, first, count, bytes })
    writeSync(1, `${topic.topic} ${base} ${first} ${count}\n`)
    if (which === 0 && first % 2 === 0) {
      const { stream, topic: name, lineage } = topic
      const entry = { stream, topic: name, partition: 0, offset: base, lineage }
      const [refused] = await session.offsets.store({ kind: "consumer", name: `traced-${first}` }, [entry])
      if (refused !== undefined) throw refused
      writeSync(1, `offset ${first} ${base}\n`)
    }
  }
}

for (let opened = 1; opened <= Number(sessionsText); opened += 1) {
  const session = await open(directory)
  const topics: TopicDescription[] = []
  for (const topic of names) {
    topics.push(
      await ensureTopic(
        session,
        { stream: "trials", topic },
        {
          durability: topic === "written" ? "written" : "synced",
          ...(topic === "limited" ? { maxBytes: 1_000_000n } : {}),
        },
      ),
    )
  }
  writeSync(1, "open\n")
  await Promise.all(Array.from({ length: lanes }, () => lane(session, topics, opened * Number(appendsText))))
  await session.close()
}
