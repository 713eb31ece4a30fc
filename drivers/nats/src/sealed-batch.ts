import { type BatchStamp, InvalidError, type MessageId, type SealedBatch, type WireRecord } from "@millrace/contract"
import { type BatchContent, idOf, recordAt } from "./batch-content.ts"
import type { PartitionTarget } from "./partition-target.ts"

/** Records of one partition, encoded but for what the way of sending adds. Its memory goes when nobody holds it any more. */
export class NatsSealedBatch implements SealedBatch {
  readonly target: PartitionTarget
  readonly content: BatchContent
  /** The records of the content that are the batch's: from `from` to `from` + `count` − 1. */
  readonly from: number
  readonly count: number
  readonly bytes: number

  constructor(
    target: PartitionTarget,
    content: BatchContent,
    range: { readonly from: number; readonly count: number },
  ) {
    this.target = target
    this.content = content
    this.from = range.from
    this.count = range.count
    this.bytes = (content.starts[range.from + range.count] as number) - (content.starts[range.from] as number)
  }

  get partition(): number {
    return this.target.partition
  }

  get stamp(): BatchStamp {
    return this.content.stamp
  }

  /** The id of record i of this batch. */
  id(index: number): MessageId {
    return idOf(this.content, this.from + index)
  }

  /** Whether record i carries its id, so that the server looks it up. */
  carriesId(index: number): boolean {
    return this.content.allIds || this.content.givenIds.has(this.from + index)
  }

  /** A part of this batch. */
  part(from: number, count: number): NatsSealedBatch {
    return new NatsSealedBatch(this.target, this.content, { from: this.from + from, count })
  }

  records(): WireRecord[] {
    return Array.from({ length: this.count }, (_, index) => recordAt(this.content, this.from + index))
  }

  split(): readonly [NatsSealedBatch, NatsSealedBatch] {
    if (this.count < 2) throw new InvalidError("a batch of one record cannot be split")
    const half = this.count >>> 1
    return [this.part(0, half), this.part(half, this.count - half)]
  }

  release(): void {
    // Buffers are not reused: an append under way keeps what it needs.
  }
}
