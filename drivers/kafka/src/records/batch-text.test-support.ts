/** Records and batches as text, in the form of the oracle: what one side says can be compared with what the other does. */

import type { TopicDescription, WireRecord } from "@millrace/contract"
import { SlabPool } from "@millrace/runtime"
import type { CodecName } from "../compression/codecs.ts"
import { KafkaBatchWriter, type WriterLimits } from "./batch-writer.ts"
import type { KafkaEncodedBatch } from "./encoded-batch.ts"
import type { KafkaSealedBatch } from "./sealed-batch.ts"

/** A topic for writers. */
const topic: TopicDescription = {
  stream: "",
  topic: "seals",
  lineage: "1",
  partitions: [{ partition: 0 }, { partition: 1 }],
  durability: "written",
  offsetDurability: "written",
  deduplicationWindowMs: 0,
  deduplicateIds: false,
}

/** A partition of it. */
export const place = { stream: "", topic: "seals", partition: 1 } as const

/** A writer of that partition. */
export function writerOf(limits: Partial<WriterLimits> = {}, pool: SlabPool = new SlabPool()): KafkaBatchWriter {
  return new KafkaBatchWriter({ topic, partition: place.partition }, pool, {
    records: 1_000_000,
    bytes: 1 << 30,
    ...limits,
  })
}

/** A sealed batch of these records. */
export function sealed(
  records: readonly WireRecord[],
  options: { codec?: CodecName; micros?: bigint } = {},
): KafkaSealedBatch {
  const writer = writerOf({ compression: options.codec ?? "none" })
  for (const record of records) if (!writer.tryAppend(record)) throw new Error("the batch is full")
  return writer.seal({ id: 1n << 64n, timestampMicros: options.micros ?? 1_700_000_000_123_456n, resend: false })
}

/** `offset:millis:key:value:name=value,…`; headers as they are on the wire are for the caller to give. */
export function recordText(record: {
  readonly offset: bigint | number
  readonly millis: bigint
  readonly key: Uint8Array | null
  readonly value: Uint8Array | null
  readonly headers: readonly (readonly [string, Uint8Array | null])[]
}): string {
  const headers = record.headers.map(([name, value]) => `${hexOf(Buffer.from(name))}=${hexOf(value)}`)
  return `${record.offset}:${record.millis}:${hexOf(record.key)}:${hexOf(record.value)}:${headers.join(",")}`
}

/** What we read of a batch, with the headers that are left to the reader. */
export function readText(batch: KafkaEncodedBatch): string[] {
  return Array.from({ length: batch.count }, (_, i) =>
    recordText({
      offset: batch.offset(i),
      millis: batch.timestampMicros(i) / 1000n,
      key: batch.key(i),
      value: batch.payload(i),
      headers: Array.from(batch.headers(i), ([name, value]) => [name, value.bytes]),
    }),
  )
}

/** Bytes as hex, null as ~. */
function hexOf(bytes: Uint8Array | null): string {
  return bytes === null ? "~" : Buffer.from(bytes).toString("hex")
}
