/** A batch with some of its records left out. */
import type { BatchBody } from "../batch/batch-body.ts"
import { EmbeddedBatchWriter } from "../batch/batch-writer.ts"
import { newSlabPools } from "../batch/slab.ts"

const nowhere = { topic: { stream: "", topic: "" }, lineage: "", partition: 0, durability: "synced" } as const

/**
 * The bytes of a batch without the records at these indexes; `undefined` when none is left. Records that stay carry their ids
 * themselves, since their indexes have changed.
 */
export function withoutRecords(body: BatchBody, left: { has(index: number): boolean }): Uint8Array | undefined {
  const writer = new EmbeddedBatchWriter(nowhere, newSlabPools(), {
    records: body.count,
    bytes: Number.POSITIVE_INFINITY,
    sizeHintBytes: body.bytes,
  })
  for (let index = 0; index < body.count; index++) {
    if (left.has(index)) continue
    writer.tryAppend({
      payload: body.payload(index),
      key: body.key(index),
      headers: body.headers(index),
      id: body.id(index),
      timestampMicros: body.ownTimeMicros(index),
    })
  }
  if (writer.count === 0) return undefined
  const sealed = writer.seal({ id: body.batchId, timestampMicros: body.batchTimeMicros, resend: false })
  return sealed.content.slab.subarray(0, sealed.bytes)
}
