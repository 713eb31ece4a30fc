import {
  batchId,
  Headers,
  type SealedBatch,
  type Session,
  type TopicDescription,
  type WireRecord,
} from "@millrace/contract"

let batches = 0

/** A record of a text, with parts that a test gives. */
export function record(text: string, parts: Partial<WireRecord> = {}): WireRecord {
  const payload = new TextEncoder().encode(text)
  return { payload, key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined, ...parts }
}

/** A batch of texts or records for a partition, with an id that no other has. */
export function sealed(
  session: Session,
  topic: TopicDescription,
  records: readonly (string | WireRecord)[],
  partition = 0,
): SealedBatch {
  const { batchRecords, batchBytes } = session.manifest.limits
  const writer = session.log.writer(topic, partition, { records: batchRecords, bytes: batchBytes })
  for (const [index, one] of records.entries()) {
    const taken = writer.tryAppend(typeof one === "string" ? record(one) : one)
    if (!taken) throw new Error(`record ${index} of ${records.length} did not fit`)
  }
  batches++
  return writer.seal({ id: batchId(Date.now(), batches & 0xfff, BigInt(batches)), timestampMicros: 1n, resend: false })
}
