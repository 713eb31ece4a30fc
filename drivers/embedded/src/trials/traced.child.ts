/**
 * The process whose writes and syncs are traced: opens a store, appends and stores offsets, and says on its standard output what was
 * confirmed, at the moment at which it is.
 *
 *     open                                      a session is open and the topics are there
 *     synced|written <base> <first> <count>     a batch of the topic of this durability, of writer 1 or 2
 *     offset <first> <next>                     the offset of the consumer `traced-<first>` in the synced topic
 */
import { writeSync } from "node:fs"
import type { Session, TopicDescription } from "@millrace/contract"
import { appendTrialBatch, ensureTopic, openSession } from "./trial-log.ts"

const [directory, sessionsText, appendsText] = process.argv.slice(2) as [string, string, string]

/** Appends under way at once. */
const lanes = 3

let next = 0

async function lane(session: Session, topics: readonly TopicDescription[], until: number): Promise<void> {
  while (next < until) {
    const first = next
    const count = 1 + (first % 3)
    next += count
    const topic = topics[first % 5 === 3 ? 1 : 0] as TopicDescription
    const writer = topic.durability === "synced" ? 1 : 2
    // Now and then a batch that is large enough for a segment file.
    const bytes = first % 7 === 0 ? 70_000 : 40 + ((first * 37) % 700)
    const base = await appendTrialBatch(session, topic, { writer, first, count, bytes })
    writeSync(1, `${topic.durability} ${base} ${first} ${count}\n`)
    if (first % 2 === 0 && topic.durability === "synced") {
      const { stream, topic: name, lineage } = topic
      const entry = { stream, topic: name, partition: 0, offset: base, lineage }
      const [refused] = await session.offsets.store({ kind: "consumer", name: `traced-${first}` }, [entry])
      if (refused !== undefined) throw refused
      writeSync(1, `offset ${first} ${base}\n`)
    }
  }
}

for (let opened = 1; opened <= Number(sessionsText); opened += 1) {
  const session = await openSession(directory)
  const topics = [
    await ensureTopic(session, { stream: "trials", topic: "synced" }),
    await ensureTopic(session, { stream: "trials", topic: "written" }, { durability: "written" }),
  ]
  writeSync(1, `open\n`)
  await Promise.all(Array.from({ length: lanes }, () => lane(session, topics, opened * Number(appendsText))))
  await session.close()
}
