/** A process that opens a store and does single things with it, as it is asked. */
import type { Session, TopicDescription } from "@millrace/contract"
import { checkSound } from "./ledger.ts"
import { serve } from "./serve.ts"
import { appendTrialBatch, ensureTopic, openSession, readPartition, trialTopic } from "./trial-log.ts"

let session: Session
let topic: TopicDescription

serve({
  /** Gives up the rights of root. */
  become(user: number) {
    process.setgroups?.([])
    process.setgid?.(user)
    process.setuid?.(user)
  },
  async open(directory: string) {
    session = await openSession(directory)
  },
  async ensure() {
    topic = await ensureTopic(session)
  },
  append: (records: { writer: number; first: number; count: number; bytes: number }) =>
    appendTrialBatch(session, topic, records),
  /** What is in the log, checked: writer and sequence of each record. */
  async read() {
    const reading = await readPartition(session, trialTopic)
    if (reading.error !== undefined) throw reading.error
    return checkSound(reading)
  },
  close: () => session.close(),
})
