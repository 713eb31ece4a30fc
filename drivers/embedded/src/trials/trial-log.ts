/** The log as the trials use it: through the driver contract alone. */
import {
  AlreadyExistsError,
  batchId,
  Headers,
  MillraceError,
  type SealedBatch,
  type Session,
  type TopicDescription,
  type TopicName,
  type TopicSpec,
} from "@millrace/contract"
import { systemClock, systemRandom } from "@millrace/runtime"
import { embeddedDriver } from "../driver.ts"
import { type VerifyReport, verifyStore } from "../verify.ts"
import type { LogSession } from "./thread-session.ts"
import { trialPayload } from "./trial-record.ts"

/** Where the trials write unless they say otherwise. */
export const trialTopic: TopicName = { stream: "trials", topic: "log" }

/** A session on a directory. */
export function openSession(directory: string, timeoutMs: number = 20_000): Promise<Session> {
  return embeddedDriver.connect({ scheme: "file", hosts: [], path: directory, options: {} }, { timeoutMs })
}

/** The offline check of a store that nobody has open. */
export async function verify(directory: string): Promise<VerifyReport> {
  return await verifyStore(directory)
}

/** The topic, created when it is missing. Creators may race. */
export async function ensureTopic(
  session: LogSession,
  name: TopicName = trialTopic,
  spec: Partial<TopicSpec> = {},
): Promise<TopicDescription> {
  const whole: TopicSpec = {
    partitions: 1,
    durability: "synced",
    offsetDurability: "synced",
    deduplicationWindowMs: 120_000,
    deduplicateIds: false,
    ...spec,
  }
  await session.catalog.createStream(name.stream).catch(unlessThere)
  await session.catalog.createTopic(name, whole).catch(unlessThere)
  return session.catalog.describeTopic(name)
}

function unlessThere(error: unknown): void {
  if (!(error instanceof AlreadyExistsError)) throw error
}

/** Records `first` to `first + count − 1` of a writer, as one batch. */
export function sealTrialBatch(
  session: LogSession,
  topic: TopicDescription,
  records: { writer: number; first: number; count: number; bytes: number; partition?: number },
): SealedBatch {
  const { batchRecords, batchBytes } = session.manifest.limits
  const writer = session.log.writer(topic, records.partition ?? 0, { records: batchRecords, bytes: batchBytes })
  for (let index = 0; index < records.count; index += 1) {
    const payload = trialPayload(records.writer, records.first + index, records.bytes)
    if (!writer.tryAppend({ payload, key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined })) {
      throw new Error(`${records.count} records of ${records.bytes} bytes do not fit one batch of ${batchBytes} bytes`)
    }
  }
  const now = systemClock.nowMicros()
  const id = batchId(Number(now / 1000n), systemRandom.uint32() & 0xfff, BigInt(systemRandom.uint32()))
  return writer.seal({ id, timestampMicros: now, resend: false })
}

/** Appends a batch of a writer's records and answers where it went. */
export async function appendTrialBatch(
  session: LogSession,
  topic: TopicDescription,
  records: { writer: number; first: number; count: number; bytes: number },
): Promise<bigint> {
  const batch = sealTrialBatch(session, topic, records)
  try {
    const result = await session.log.append(batch, {})
    if (result.base === undefined || !result.contiguous) throw new Error("the log did not say where the batch went")
    return result.base
  } finally {
    batch.release()
  }
}

/** What a partition gave: records from the first one on, and why it stopped before its end, if it did. */
export interface Reading {
  readonly first: bigint
  readonly head: bigint
  readonly records: { readonly offset: bigint; readonly payload: Uint8Array | null }[]
  readonly error?: MillraceError
}

/** Reads a partition to its end. A failure is part of the answer; one that is not a `MillraceError` is thrown. */
export async function readPartition(session: LogSession, topic: TopicName, partition: number = 0): Promise<Reading> {
  const records: { offset: bigint; payload: Uint8Array | null }[] = []
  const [marks] = await session.log.watermarks([{ ...topic, partition }]).catch((error: unknown) => [asKnown(error)])
  if (marks === undefined || marks instanceof MillraceError) {
    return { first: 0n, head: 0n, records, ...(marks === undefined ? {} : { error: marks }) }
  }
  const reader = session.log.openReader({ isolation: "committed" })
  let next = marks.first
  let empty = false
  const answer = { first: marks.first, head: marks.end, records }
  try {
    reader.set([{ ...topic, partition, offset: next, lineage: marks.lineage }])
    while (next < marks.end) {
      const [read] = await reader.next({ maxRecords: 50_000, maxBytes: 4 << 20, minRecords: 1, maxWaitMs: 2_000 })
      // One empty answer may be: retention in another process was met half-way. A second means that the reader stands still.
      if (read === undefined && !empty) {
        empty = true
        continue
      }
      if (read === undefined) throw new Error(`a read at ${next} below the end ${marks.end} gave nothing`)
      empty = false
      if (read.error !== undefined) return { ...answer, error: read.error }
      for (const batch of read.batches) {
        for (let index = batch.indexOf(next); index < batch.count; index += 1) {
          records.push({ offset: batch.offset(index), payload: batch.payload(index) })
        }
      }
      if (read.nextOffset <= next) throw new Error(`a read at ${next} did not move on`)
      next = read.nextOffset
    }
    return answer
  } catch (error) {
    return { ...answer, error: asKnown(error) }
  } finally {
    await reader.close()
  }
}

function asKnown(error: unknown): MillraceError {
  if (error instanceof MillraceError) return error
  throw error
}
