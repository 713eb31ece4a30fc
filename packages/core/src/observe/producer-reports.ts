/** Reading what the producers of a topic reported, here and in other processes. */
import { type EncodedBatch, MillraceError, NotFoundError, type TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { readLogRange } from "../client/log-range.ts"
import { ownWatermarks } from "../client/own-topic.ts"
import { decodeObservation, type ProducerReport, reportOf } from "./producer-report.ts"
import { reportTopic } from "./report-topic.ts"
import { defaultIntervalMs, expiryIntervals, largestIntervalMs } from "./statistics-settings.ts"

/** Reports that are older have expired, whatever their interval; and a minute for clocks that differ. */
const lookBackMs = expiryIntervals * largestIntervalMs + 60_000

/** At most so many of the newest records are looked at: 10 s apart, those of more than 400 processes. */
const mostRecords = 10_000

/** What has been read by then is told, in ms. */
const readTimeoutMs = 5000

/**
 * Reports of the producers of one topic that have not expired, by instance: those of other processes as they were last told, those of
 * this client as they are now. What is no report is passed over.
 * @throws what keeps the backend from being read
 */
export async function readReports(context: ClientContext, topic: TopicName): Promise<ProducerReport[]> {
  const nowMillis = Number(context.clock.nowMicros() / 1000n)
  const newest = new NewestReports(nowMillis, context.producers.reporter)
  try {
    await readStored(context, newest)
  } catch (error) {
    // Nobody has reported anything yet.
    if (!(error instanceof NotFoundError)) throw error
  }
  for (const observed of context.producers.observe()) {
    newest.replace(reportOf(observed, { atMillis: nowMillis, expiresAfterMillis: expiryIntervals * defaultIntervalMs }))
  }
  return newest.of(topic)
}

/** The newest report of each process, then of each producer. */
class NewestReports {
  readonly #nowMillis: number
  readonly #own: string
  readonly #byReporter = new Map<string, readonly ProducerReport[]>()
  readonly #live = new Map<string, ProducerReport>()
  #strangers = 0

  /** @param own What this client has reported: it knows better by now. */
  constructor(nowMillis: number, own: string) {
    this.#nowMillis = nowMillis
    this.#own = own
  }

  /** A record, in the order of the log: what a process told before no longer counts, nor do the producers that it no longer names. */
  add(batch: EncodedBatch, index: number): void {
    try {
      const payload = batch.payload(index)
      if (payload === null) return
      const key = batch.key(index)
      // Without a key it cannot be told who wrote it, and so it replaces nothing but reports of the same producers.
      const reporter = key === null ? `stranger ${this.#strangers++}` : Buffer.from(key).toString("latin1")
      if (reporter === this.#own) return
      const reports = decodeObservation(payload)
      this.#byReporter.delete(reporter)
      this.#byReporter.set(reporter, reports)
    } catch {
      // Anybody can write to the topic: what does not decode is not ours to complain about.
    }
  }

  replace(report: ProducerReport): void {
    this.#live.set(report.instanceId, report)
  }

  of(topic: TopicName): ProducerReport[] {
    const newest = new Map<string, ProducerReport>()
    const reports = [...this.#byReporter.values()].flat().filter((report) => report.expiresAtMillis > this.#nowMillis)
    for (const report of reports) {
      const known = newest.get(report.instanceId)
      if (known === undefined || known.observedAtMillis <= report.observedAtMillis)
        newest.set(report.instanceId, report)
    }
    for (const [instanceId, report] of this.#live) newest.set(instanceId, report)
    return [...newest.values()]
      .filter((report) => report.stream === topic.stream && report.topic === topic.topic)
      .sort((a, b) => (a.instanceId < b.instanceId ? -1 : 1))
  }
}

async function readStored(context: ClientContext, newest: NewestReports): Promise<void> {
  const { session, clock } = context
  const place = { ...reportTopic, partition: 0 }
  const since = clock.nowMicros() - BigInt(lookBackMs) * 1000n
  const { end } = await ownWatermarks(session, reportTopic)
  const [start] = await session.log.locate([{ ...place, at: { kind: "timestampMicros", value: since } }])
  if (start === undefined) return
  if (start instanceof MillraceError) throw start
  const least = end - BigInt(mostRecords)
  const from = { ...place, offset: start.offset > least ? start.offset : least, lineage: start.lineage }
  const untilMs = clock.monotonicMs() + readTimeoutMs
  // Deleted or purged meanwhile: what was there before is all there is to tell.
  await readLogRange(session, { from, end, enough: () => clock.monotonicMs() >= untilMs }, (batch, index) =>
    newest.add(batch, index),
  )
}
