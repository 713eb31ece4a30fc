import {
  type Claim,
  ClosedError,
  type EncodedBatch,
  errorFromWire,
  type LogReader,
  type PartitionRead,
  type ReadLimits,
  type ReadPosition,
  type TopicFilter,
} from "@millrace/contract"
import { BatchBody } from "./batch/batch-body.ts"
import { StoredBatch } from "./batch/encoded-batch.ts"
import { PickedBatch } from "./batch/picked-batch.ts"
import type { Channel } from "./channel.ts"
import type { ReadBatch } from "./engine/read-batches.ts"
import type { SlotPosition, SlotRead } from "./engine/reader-slot.ts"
import type { PollAnswer, ReaderNext, ReaderSet } from "./engine/readers.ts"

interface Slot {
  readonly slot: number
  readonly position: ReadPosition
  readonly claim: Claim | undefined
  /** Where reading goes on. */
  offset: bigint
  failed: boolean
}

/**
 * The main thread's side of a reader. A slot is a partition under one position: an answer to a slot that `set` has replaced meanwhile
 * is dropped.
 */
export class EmbeddedReader implements LogReader {
  readonly #channel: Channel
  readonly #id: number
  readonly #closed: (reader: EmbeddedReader) => void
  readonly #filters: readonly TopicFilter[]
  #slots: Slot[] = []
  #lastSlot = 0
  #ended = false

  constructor(
    channel: Channel,
    id: number,
    {
      closed,
      filters,
    }: { readonly closed: (reader: EmbeddedReader) => void; readonly filters: readonly TopicFilter[] },
  ) {
    this.#channel = channel
    this.#id = id
    this.#closed = closed
    this.#filters = filters
  }

  set(positions: readonly ReadPosition[]): void {
    if (this.#ended) return
    const fresh: SlotPosition[] = []
    const known = new Map(this.#slots.map((slot) => [placeKey(slot.position), slot]))
    this.#slots = positions.map((position) => {
      const old = known.get(placeKey(position))
      if (old !== undefined && goesOn(old, position)) return { ...old, claim: position.claim }
      const slot = ++this.#lastSlot
      const { stream, topic, partition, offset, lineage } = position
      fresh.push({ slot, stream, topic, partition, offset, lineage })
      return { slot, position, claim: position.claim, offset, failed: false }
    })
    const slots = this.#slots.map(({ slot }) => slot)
    const args: ReaderSet = { reader: this.#id, slots, fresh, filters: this.#filters }
    // A failure of the worker reaches the owner through `next`.
    this.#channel.call("reader.set", args, { background: true }).catch(() => {})
  }

  async next(limits: ReadLimits): Promise<PartitionRead[]> {
    if (this.#ended) throw new ClosedError("the reader is closed")
    const args: ReaderNext = { reader: this.#id, limits: plain(limits) }
    const answer = await this.#channel.call<PollAnswer>("reader.next", args)
    return this.#ended ? [] : this.#take(answer)
  }

  async close(): Promise<void> {
    if (this.#ended) return
    this.#ended = true
    this.#slots = []
    this.#closed(this)
    await this.#channel.call("reader.close", this.#id).catch(unlessClosed)
  }

  #take({ reads, buffers }: PollAnswer): PartitionRead[] {
    const taken: PartitionRead[] = []
    for (const read of reads) {
      const slot = this.#slots.find((candidate) => candidate.slot === read.slot)
      if (slot !== undefined) taken.push(partitionRead(slot, read, buffers))
    }
    return taken
  }
}

function partitionRead(slot: Slot, read: SlotRead, buffers: readonly ArrayBuffer[]): PartitionRead {
  const { stream, topic, partition, lineage } = slot.position
  if (read.error !== undefined) {
    slot.failed = true
    return { stream, topic, partition, error: errorFromWire(read.error) }
  }
  slot.offset = read.nextOffset
  const batches = read.batches.map((batch) => encodedBatch(batch, buffers))
  const claim = slot.claim === undefined ? {} : { claim: slot.claim }
  return { stream, topic, partition, lineage, batches, nextOffset: read.nextOffset, head: read.head, ...claim }
}

/** A batch of an answer, over the answer's buffers. @internal */
export function encodedBatch(batch: ReadBatch, buffers: readonly ArrayBuffer[]): EncodedBatch {
  const { buffer, start, bytes, picked } = batch
  const body = new BatchBody(buffers[buffer] as ArrayBuffer, start, bytes)
  return picked === undefined ? new StoredBatch(body, batch) : new PickedBatch(body, batch, picked)
}

/** Whether a new position is where the slot stands anyway. A failed partition begins anew. */
function goesOn(slot: Slot, { offset, lineage }: ReadPosition): boolean {
  return !slot.failed && slot.offset === offset && slot.position.lineage === lineage
}

function placeKey({ stream, topic, partition }: ReadPosition): string {
  return `${stream}\u0000${topic}\u0000${partition}`
}

function plain({ maxRecords, maxBytes, minRecords, maxWaitMs }: ReadLimits): ReadLimits {
  return { maxRecords, maxBytes, minRecords, maxWaitMs }
}

/** A session that closes first has closed the reader too. */
function unlessClosed(error: unknown): void {
  if (!(error instanceof ClosedError)) throw error
}
