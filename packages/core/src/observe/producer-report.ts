/**
 * Reports of producer statistics as they are stored (seed 000, "Producer statistics"; table 1.10 of the options):
 *
 *     {producer_presence_version: 1, observed_at_millis, expires_after_millis, producers: [{instance_id, stream, topic,
 *      first_activity_millis, last_activity_millis, submitted_records, submitted_payload_bytes, confirmed_records,
 *      confirmed_payload_bytes, retries, failed_calls, last_success_millis,
 *      latency: {samples, p50_micros, p99_micros, p999_micros}}]}
 *
 * A value that is not known is null there, and absent here.
 */
import { readCbor, type TopicName } from "@millrace/contract"
import type { LatencySummary, ProducerStatistics } from "../producer/statistics.ts"
import { type CborValue, encodeCbor } from "./cbor.ts"

/** A report that is nested deeper is none. */
const deepestReport = 16

/**
 * What one live producer told of itself. Counts are its own and say nothing of what other producers wrote; they are no proof of
 * delivery: a failed call can have stored a part that the confirmed counters leave out.
 */
export interface ProducerReport extends ReportedCounts {
  /** A ULID that stays with the producer for its life, across reconnects. */
  readonly instanceId: string
  /** The producer's own topic: what it sent elsewhere with `sendTo` is counted here. */
  readonly stream: string
  readonly topic: string
  /** When the counts were taken, by the reporting process's clock. */
  readonly observedAtMillis: number
  /** From then on the report says nothing any more. */
  readonly expiresAtMillis: number
}

/** As `ProducerStatistics`; a report by another SDK may leave out what it does not know. */
export type ReportedCounts = Omit<ProducerStatistics, "confirmedRecords" | "confirmedPayloadBytes" | "retries"> &
  Partial<Pick<ProducerStatistics, "confirmedRecords" | "confirmedPayloadBytes" | "retries">>

/** One producer as it is reported. */
export interface ObservedProducer {
  readonly instanceId: string
  readonly name: TopicName
  readonly statistics: ProducerStatistics
}

/** All that one process reports at a time. */
export interface Observation {
  readonly observedAtMillis: number
  readonly expiresAfterMillis: number
  readonly producers: readonly ObservedProducer[]
}

/** A larger report is not sent. @internal */
export const largestReportBytes: number = 65_536

const version = 1

/** The bytes of a report. @returns `undefined` when it has more than 64 KiB */
export function encodeObservation({
  observedAtMillis,
  expiresAfterMillis,
  producers,
}: Observation): Uint8Array | undefined {
  const bytes = encodeCbor({
    producer_presence_version: version,
    observed_at_millis: observedAtMillis,
    expires_after_millis: expiresAfterMillis,
    producers: producers.map(stored),
  })
  return bytes.length <= largestReportBytes ? bytes : undefined
}

/** The producers of a stored report. @throws SyntaxError for bytes that are no report of this version */
export function decodeObservation(bytes: Uint8Array): ProducerReport[] {
  const report = fields(readCbor(bytes, { deepest: deepestReport }), "the report")
  const found = report.get("producer_presence_version")
  if (found !== version) throw new SyntaxError(`version ${String(found)} is not known`)
  const observedAtMillis = whole(report, "observed_at_millis")
  const expiresAtMillis = observedAtMillis + whole(report, "expires_after_millis")
  const producers = report.get("producers")
  if (!Array.isArray(producers)) throw new SyntaxError("producers is not a list")
  return producers.map((producer) => ({ ...read(fields(producer, "a producer")), observedAtMillis, expiresAtMillis }))
}

/** A producer of this process, as others will read it. */
export function reportOf(
  { instanceId, name, statistics }: ObservedProducer,
  observed: { readonly atMillis: number; readonly expiresAfterMillis: number },
): ProducerReport {
  return {
    ...statistics,
    instanceId,
    stream: name.stream,
    topic: name.topic,
    observedAtMillis: observed.atMillis,
    expiresAtMillis: observed.atMillis + observed.expiresAfterMillis,
  }
}

function stored({ instanceId, name, statistics }: ObservedProducer): CborValue {
  const { latency } = statistics
  return {
    instance_id: instanceId,
    stream: name.stream,
    topic: name.topic,
    first_activity_millis: statistics.firstActivityMillis ?? null,
    last_activity_millis: statistics.lastActivityMillis ?? null,
    submitted_records: statistics.submittedRecords,
    submitted_payload_bytes: statistics.submittedPayloadBytes,
    confirmed_records: statistics.confirmedRecords,
    confirmed_payload_bytes: statistics.confirmedPayloadBytes,
    retries: statistics.retries,
    failed_calls: statistics.failedCalls,
    last_success_millis: statistics.lastSuccessMillis ?? null,
    latency: {
      samples: latency.samples,
      p50_micros: latency.p50Micros ?? null,
      p99_micros: latency.p99Micros ?? null,
      p999_micros: latency.p999Micros ?? null,
    },
  }
}

type Fields = ReadonlyMap<unknown, unknown>

function read(producer: Fields): Omit<ProducerReport, "observedAtMillis" | "expiresAtMillis"> {
  return {
    instanceId: text(producer, "instance_id"),
    stream: text(producer, "stream"),
    topic: text(producer, "topic"),
    ...known("firstActivityMillis", maybe(producer, "first_activity_millis")),
    ...known("lastActivityMillis", maybe(producer, "last_activity_millis")),
    submittedRecords: whole(producer, "submitted_records"),
    submittedPayloadBytes: whole(producer, "submitted_payload_bytes"),
    ...known("confirmedRecords", maybe(producer, "confirmed_records")),
    ...known("confirmedPayloadBytes", maybe(producer, "confirmed_payload_bytes")),
    ...known("retries", maybe(producer, "retries")),
    failedCalls: whole(producer, "failed_calls"),
    ...known("lastSuccessMillis", maybe(producer, "last_success_millis")),
    latency: latencyOf(fields(producer.get("latency"), "latency")),
  }
}

function latencyOf(latency: Fields): LatencySummary {
  return {
    samples: whole(latency, "samples"),
    ...known("p50Micros", maybe(latency, "p50_micros")),
    ...known("p99Micros", maybe(latency, "p99_micros")),
    ...known("p999Micros", maybe(latency, "p999_micros")),
  }
}

function known<K extends string>(key: K, value: number | undefined): { readonly [P in K]?: number } {
  return (value === undefined ? {} : { [key]: value }) as { readonly [P in K]?: number }
}

function fields(value: unknown, what: string): Fields {
  if (value instanceof Map) return value
  throw new SyntaxError(`${what} is not a map`)
}

function text(from: Fields, key: string): string {
  const value = from.get(key)
  if (typeof value === "string") return value
  throw new SyntaxError(`${key} is not a text`)
}

function whole(from: Fields, key: string): number {
  const value = maybe(from, key)
  if (value !== undefined) return value
  throw new SyntaxError(`${key} is missing`)
}

function maybe(from: Fields, key: string): number | undefined {
  const value = from.get(key)
  if (value === null || value === undefined) return undefined
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return value
  throw new SyntaxError(`${key} is not a whole number from 0`)
}
