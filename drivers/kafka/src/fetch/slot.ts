/** One partition of a reader under one position: what was fetched of it, and how far the owner has it. */
import type { Claim, MillraceError, PartitionRead, ReadPosition } from "@millrace/contract"
import { kafkaTopic } from "../names.ts"
import type { KafkaEncodedBatch } from "../records/encoded-batch.ts"
import type { FetchTarget } from "./fetch-session.ts"

/** A batch that waits to be handed over, and where reading goes on behind it: also over what is left out after it. */
export interface QueuedBatch {
  readonly batch: KafkaEncodedBatch
  readonly next: bigint
}

/**
 * - seeking: its leader is to be found.
 * - fetching: its leader is known.
 * - checking: the broker called the offset out of range; where the log begins and ends is asked for.
 * - failed: over, until the owner sets it again.
 */
export type SlotPhase = "seeking" | "fetching" | "checking" | "failed"

export class Slot {
  /** The name of the topic in Kafka. */
  readonly kafkaName: string
  readonly position: ReadPosition
  claim: Claim | undefined
  phase: SlotPhase = "seeking"
  leader = -1
  leaderEpoch = -1
  /** Where the next fetch begins. */
  fetchFrom: bigint
  /** Where the owner goes on: behind what it was given. */
  given: bigint
  readonly queue: QueuedBatch[] = []
  queuedBytes = 0
  queuedRecords = 0
  /** The end of the partition when it was last told. */
  head: bigint
  /** To be told once, behind what is queued. */
  error: MillraceError | undefined
  /** Why nothing comes at the moment, although it may come again. */
  trouble: MillraceError | undefined
  /** How often in a row looking it up or fetching it went wrong. */
  failures = 0
  /** How often in a row its topic was not there. */
  missing = 0
  /** Not to be tried before this time (monotonic). */
  retryAtMs = 0
  /** The last request that the broker answered for it. */
  answered = 0
  /** When a broker last said something of it, or its leader was looked up (monotonic). A session leaves out what has no news. */
  heardAtMs: number = Number.NEGATIVE_INFINITY

  constructor(position: ReadPosition) {
    this.position = position
    this.claim = position.claim
    this.kafkaName = kafkaTopic(position)
    this.fetchFrom = position.offset
    this.given = position.offset
    this.head = position.offset
  }

  /** Whether a position is where this slot stands anyway. A failed one begins anew. */
  continues(position: ReadPosition): boolean {
    return this.phase !== "failed" && this.given === position.offset && this.position.lineage === position.lineage
  }

  /** Whether the owner can be told something: records, an error, or that the position moved over what it does not see. */
  get tellable(): boolean {
    return this.queue.length > 0 || this.error !== undefined || this.fetchFrom > this.given
  }

  /** Whether no broker has answered for it yet, although one may at any moment. */
  get unheard(): boolean {
    return this.answered === 0 && this.trouble === undefined && this.phase !== "failed"
  }

  /** Whether its server cannot be reached, in contrast to a partition that is on its way to another one. */
  get outage(): boolean {
    return this.trouble?.kind === "connection" || this.trouble?.kind === "timeout"
  }

  target(): FetchTarget {
    return {
      topic: this.kafkaName,
      topicId: this.position.lineage,
      partition: this.position.partition,
      leaderEpoch: this.leaderEpoch,
      offset: this.fetchFrom,
    }
  }

  push(item: QueuedBatch): void {
    this.queue.push(item)
    this.queuedBytes += item.batch.bytes
    this.queuedRecords += this.#recordsOf(item.batch)
  }

  /** How many records of the next batch count. */
  get nextRecords(): number {
    const item = this.queue[0]
    return item === undefined ? 0 : this.#recordsOf(item.batch)
  }

  shift(): QueuedBatch | undefined {
    const item = this.queue.shift()
    if (item === undefined) return undefined
    this.queuedBytes -= item.batch.bytes
    this.queuedRecords -= this.#recordsOf(item.batch)
    return item
  }

  /** The owner's part of a poll: the batches that were shifted, and how far they lead. */
  read(batches: readonly KafkaEncodedBatch[], nextOffset: bigint): PartitionRead {
    const { stream, topic, partition, lineage } = this.position
    this.given = nextOffset
    const head = this.head < nextOffset ? nextOffset : this.head
    const claim = this.claim === undefined ? {} : { claim: this.claim }
    return { stream, topic, partition, lineage, batches, nextOffset, head, ...claim }
  }

  /** Its leader is known: it can be asked. */
  found({ leader, leaderEpoch }: { readonly leader: number; readonly leaderEpoch: number }, nowMs: number): void {
    this.phase = "fetching"
    this.trouble = undefined
    this.leader = leader
    this.leaderEpoch = leaderEpoch
    this.heardAtMs = nowMs
  }

  fail(error: MillraceError): void {
    this.phase = "failed"
    this.error = error
    this.trouble = undefined
  }

  /** Of a batch that begins before the position only what lies behind it counts. At most: offsets may have holes. */
  #recordsOf(batch: KafkaEncodedBatch): number {
    const from = this.position.offset
    if (batch.firstOffset >= from) return batch.count
    return Math.min(batch.count, Number(batch.lastOffset - from) + 1)
  }
}

/** What tells the partitions of a reader apart. */
export function slotKey(position: ReadPosition): string {
  return `${position.stream}\u0000${position.topic}\u0000${position.partition}`
}
