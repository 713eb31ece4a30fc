/** A process that reads a partition from its start, again and again, until it is asked to read to a certain record and end. */
import type { LogReader, Session } from "@millrace/contract"
import { serve } from "./serve.ts"
import { ensureTopic, openSession, trialTopic } from "./trial-log.ts"
import { readTrialPayload } from "./trial-record.ts"

const limits = { maxRecords: 50, maxBytes: 1 << 20, minRecords: 1, maxWaitMs: 50 }

let session: Session
let reader: LogReader
let read = 0
let wanted = Number.POSITIVE_INFINITY
let reading: Promise<void>

async function readOn(): Promise<void> {
  while (read < wanted) {
    for (const part of await reader.next(limits)) {
      if (part.error !== undefined) throw part.error
      for (const batch of part.batches) {
        for (let index = batch.indexOf(BigInt(read)); index < batch.count; index += 1) {
          readTrialPayload(batch.payload(index))
        }
      }
      read = Number(part.nextOffset)
    }
  }
}

serve({
  async open(directory: string) {
    session = await openSession(directory)
    const { lineage } = await ensureTopic(session)
    reader = session.log.openReader({ isolation: "committed" })
    reader.set([{ ...trialTopic, partition: 0, offset: 0n, lineage }])
  },
  readOn() {
    reading = readOn()
  },
  readTo(end: number) {
    wanted = end
    return reading
  },
  close: () => session.close(),
})
