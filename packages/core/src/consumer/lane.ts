import type { Claim, MillraceError, TopicPartition } from "@millrace/contract"
import { topicKey } from "../client/names.ts"
import type { MessageSource } from "../record/message.ts"
import { PartitionReaderMachine, type PartitionReaderPolicy } from "./partition-reader.machine.ts"

/** A run of records of one batch that waits to be handed out: `index` to `count` − 1. */
export interface Slice {
  readonly source: MessageSource
  readonly count: number
  index: number
  /** Progress of the partition once all of it is handled. */
  after: bigint
  next: Slice | undefined
}

/** One text a partition, injective. */
export function laneKey(partition: TopicPartition): string {
  return `${topicKey(partition)}\n${partition.partition}`
}

/** One partition of a consumer: where it reads, what it has read ahead, and how far the caller has come. */
export class Lane {
  readonly partition: TopicPartition
  readonly key: string
  readonly claim: Claim | undefined
  readonly machine: PartitionReaderMachine
  /** Until it is dropped. */
  live = true
  /** No more is handed out: another member is about to take over. Commits are still good. */
  draining = false
  /** Gained after the consumer's start: `startAt` does not apply. */
  readonly gainedLater: boolean
  /** Progress behind the last message that was handed out; absent until there was one. */
  handedNext: bigint | undefined
  /** The last message that was handed out. */
  handedOffset: bigint | undefined
  /** Progress as far as it is known to be stored. */
  storedNext: bigint | undefined
  /** Progress that was last given to the store, whether or not it has arrived. */
  submittedNext: bigint | undefined
  /** Since when stores have failed that might have passed, in ms of the monotonic clock. */
  storeFailsSinceMs: number | undefined
  /** Where reading began; absent until that is found. */
  startNext: bigint | undefined
  /** Shown behind everything that was read before. */
  error: MillraceError | undefined
  /** Whether it stands in the merge's queue. */
  queued = false
  #first: Slice | undefined
  #last: Slice | undefined

  constructor(
    partition: TopicPartition,
    policy: PartitionReaderPolicy,
    options: { readonly claim: Claim | undefined; readonly gainedLater: boolean },
  ) {
    this.partition = partition
    this.key = laneKey(partition)
    this.claim = options.claim
    this.gainedLater = options.gainedLater
    this.machine = new PartitionReaderMachine(partition, policy)
  }

  /** The slice to hand out next. */
  get slice(): Slice | undefined {
    return this.#first
  }

  push(slice: Slice): void {
    if (this.#last === undefined) this.#first = slice
    else this.#last.next = slice
    this.#last = slice
  }

  /** Forgets the slice that was handed out in full. */
  shift(): void {
    this.#first = this.#first?.next
    if (this.#first === undefined) this.#last = undefined
  }

  /** Progress behind the newest slice becomes `next`; answers false when nothing is read ahead. */
  extend(next: bigint): boolean {
    if (this.#last === undefined) return false
    this.#last.after = next
    return true
  }

  /** Throws away what was read ahead, and answers it. */
  clear(): Slice[] {
    const dropped: Slice[] = []
    for (let slice = this.#first; slice !== undefined; slice = slice.next) dropped.push(slice)
    this.#first = undefined
    this.#last = undefined
    this.error = undefined
    return dropped
  }
}
