/** Builders of pooled batches over a pool that watches its slabs. */
import assert from "node:assert/strict"
import type { Manifest } from "@millrace/contract"
import { SlabPool } from "@millrace/runtime"
import { fakeManifest } from "./fake-backend.test-support.ts"
import type { PooledBatch } from "./pooled-batch.ts"
import { PooledBatchBuilder } from "./pooled-batch-builder.ts"

/** A pool that knows which slabs are out. */
export class CountingPool extends SlabPool {
  readonly out: Set<Buffer> = new Set()
  taken: number = 0

  override take(bytes: number): Buffer {
    const slab = super.take(bytes)
    assert.ok(!this.out.has(slab), "a slab has two owners")
    this.out.add(slab)
    this.taken++
    return slab
  }

  override give(slab: Buffer): void {
    assert.ok(this.out.delete(slab), "a slab was given back twice")
    // Whoever still looks at it sees that it is another's by now.
    slab.fill(0xee)
    super.give(slab)
  }
}

export const limits: Manifest["limits"] = fakeManifest().limits
export const bytes: (text: string) => Uint8Array = (text) => new TextEncoder().encode(text)
export const text: (payload: Uint8Array | null) => string | null = (payload) =>
  payload && new TextDecoder().decode(payload)
export const contents: (batch: PooledBatch) => (string | null)[] = (batch) =>
  Array.from({ length: batch.count }, (_, index) => text(batch.payload(index)))
export function builderOn(
  pool: SlabPool,
  sizeHintBytes: number = 16,
  own: Manifest["limits"] = limits,
): PooledBatchBuilder {
  return new PooledBatchBuilder({ limits: own, pool, sizeHintBytes })
}
