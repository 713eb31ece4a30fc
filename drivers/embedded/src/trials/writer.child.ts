/** A process that writes: opens a session, appends without end while it is told to, and says what was confirmed and how fast. */
import { setTimeout as sleep } from "node:timers/promises"
import { MillraceError, type Session, type TopicDescription } from "@millrace/contract"
import { serve, tell } from "./serve.ts"
import { appendTrialBatch, ensureTopic, openSession } from "./trial-log.ts"

/** What a writer is told to do. */
export interface WriterSettings {
  readonly writer: number
  readonly records: number
  readonly bytes: number
  /** Appends under way at once. */
  readonly outstanding: number
  /** Between two appends of a lane. */
  readonly pauseMs?: number
  /** Whether each confirmation is told to the parent. */
  readonly tellConfirmed?: boolean
}

/** Times of appends in ms, in the order of their ends. */
export interface WriterSummary {
  readonly tookMs: readonly number[]
  readonly failures: readonly string[]
}

let session: Session
let topic: TopicDescription
let next = 0
let running = false
let lanes: Promise<void>[] = []
let tookMs: number[] = []
let failures: string[] = []

async function lane(settings: WriterSettings): Promise<void> {
  const { writer, records: count, bytes, pauseMs } = settings
  while (running) {
    const first = next
    next += count
    const started = performance.now()
    try {
      const base = await appendTrialBatch(session, topic, { writer, first, count, bytes })
      tookMs.push(performance.now() - started)
      if (settings.tellConfirmed) tell({ writer, base, first, count })
    } catch (error) {
      if (!(error instanceof MillraceError) || failures.length > 1_000) throw error
      failures.push(`${error.kind}: ${error.message}`)
    }
    if (pauseMs !== undefined) await sleep(pauseMs)
  }
}

serve({
  async open(directory: string) {
    session = await openSession(directory)
    topic = await ensureTopic(session)
  },
  start(settings: WriterSettings) {
    running = true
    lanes = Array.from({ length: settings.outstanding }, () => lane(settings))
  },
  /** Settles when nothing is under way; the next `start` goes on with the next record. */
  async stop(): Promise<WriterSummary> {
    running = false
    await Promise.all(lanes)
    const summary = { tookMs, failures }
    tookMs = []
    failures = []
    return summary
  },
  blockLoop(forMs: number) {
    const end = performance.now() + forMs
    while (performance.now() < end);
  },
  close: () => session.close(),
})
