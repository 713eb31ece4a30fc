/**
 * The process whose writes and syncs are traced while it works on a queue: says on its standard output what was confirmed, at the moment
 * at which it is.
 *
 *     appended <count>      so many records are in the topic
 *     asked <offset>        a settlement is on its way
 *     settled <offset>      it was to be confirmed, and is
 */
import { writeSync } from "node:fs"
import type { Settlement } from "@millrace/contract"
import { openThreadSession } from "./thread-session.ts"
import { appendTrialBatch, ensureTopic, openSession, trialTopic } from "./trial-log.ts"
import { trialQueue } from "./trial-queue.ts"

const [directory, roundsText, syncs] = process.argv.slice(2) as [string, string, string]

let appended = 0

for (let opened = 0; opened < 2; opened += 1) {
  const session = await (syncs === "without" ? openThreadSession : openSession)(directory)
  const topic = await ensureTopic(session)
  const queue = await session.queues.open(trialTopic, trialQueue.name, trialQueue.spec)
  for (let round = 0; round < Number(roundsText); round += 1) {
    const count = 3 + (round % 4)
    await appendTrialBatch(session, topic, { writer: 1, first: appended, count, bytes: 40 })
    appended += count
    writeSync(1, `appended ${appended}\n`)
    const messages = await queue.pull({ maxMessages: 4, maxBytes: 1 << 20, maxWaitMs: 0 })
    const verdicts = messages.map(({ token }, i): Settlement => {
      if (round % 5 === 4 && i === 0) return { token, verdict: "nak", delayMs: 0 }
      return { token, verdict: round % 5 === 3 && i === 1 ? "terminate" : "ack" }
    })
    const confirm = round % 3 !== 2
    for (const [i, { offset }] of messages.entries())
      if (verdicts[i]?.verdict !== "nak") writeSync(1, `asked ${offset}\n`)
    const outcomes = await queue.settle(verdicts, { confirm })
    for (const [i, { offset }] of messages.entries())
      if (confirm && outcomes[i] === true && verdicts[i]?.verdict !== "nak") writeSync(1, `settled ${offset}\n`)
  }
  await session.close()
}
