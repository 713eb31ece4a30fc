/** A process that works: takes messages of a queue, writes down what it got, settles it, and says what was confirmed. */
import { appendFileSync } from "node:fs"
import { MillraceError, type QueueSession, type Session } from "@millrace/contract"
import { serve, tell } from "./serve.ts"
import { openSession, trialTopic } from "./trial-log.ts"
import { type Taken, takenText, trialQueue } from "./trial-queue.ts"

let session: Session
let queue: QueueSession
let running = false
let lane: Promise<void> = Promise.resolve()

async function work(file: string): Promise<void> {
  while (running) {
    const messages = await queue.pull({ maxMessages: 20, maxBytes: 1 << 20, maxWaitMs: 100 })
    if (messages.length === 0) continue
    const taken = messages.map(({ offset, deliveries }): Taken => ({ offset: Number(offset), deliveries }))
    // In the file before anything else: that outlives the process.
    appendFileSync(file, takenText(taken))
    const outcomes = await queue.settle(
      messages.map(({ token }) => ({ token, verdict: "ack" as const })),
      { confirm: true },
    )
    if (outcomes.some((outcome) => outcome instanceof MillraceError)) throw new Error("a settlement failed")
    tell({ settled: taken.filter((_, i) => outcomes[i] === true) })
  }
}

serve({
  async open(directory: string) {
    session = await openSession(directory)
    queue = await session.queues.open(trialTopic, trialQueue.name, trialQueue.spec)
  },
  start(file: string) {
    running = true
    lane = work(file)
    // A failure ends the process, which the test sees.
    lane.catch((error: unknown) => {
      throw error
    })
  },
  async stop() {
    running = false
    await lane
  },
  close: () => session.close(),
})
