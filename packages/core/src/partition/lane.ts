import type { Claim, Lineage, MillraceError, TopicPartition } from "@millrace/contract"
import { topicKey } from "../client/names.ts"
import type { MessageSource } from "../record/message.ts"
import { HandledRanges } from "./handled-ranges.ts"
import { PartitionReaderMachine, type PartitionReaderPolicy } from "./partition-reader.machine.ts"
import { Holding } from "./read-ahead.ts"

/** A run of records of one batch that waits to be handed out: `index` to `count` − 1. */
export interface Slice {
  readonly lane: Lane
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
  /** Nothing is handed out, and nothing more is read ahead: the caller says so. */
  paused = false
  /** Nothing is handed out before it is known where reading goes on. */
  seeking = false
  /** How often reading was moved: a look-up that a later call has overruled knows it by this. */
  seeks = 0
  /** What of it is read ahead. */
  readonly holding: Holding = new Holding()
  /** Nothing is handed out before its last message is handled: the handler runner says so. */
  held = false
  /** Nothing is handed out before something was done about its next record: whoever does that. */
  suspended: object | undefined
  /** The next record, when it cannot be read and everything was done about it: it is passed over. */
  dealtWith: bigint | undefined
  /** The history that its progress is of: behind the reader's while the reader tells of another one. */
  history: Lineage = ""
  /** Gained after the consumer's start: `startAt` does not apply. */
  readonly gainedLater: boolean
  /** Progress behind the last message that was handed out; absent until there was one. */
  handedNext: bigint | undefined
  /** What of it is handled. */
  readonly ranges: HandledRanges = new HandledRanges()
  /** Something is handed out and not handled. */
  inHand = false
  /** Messages that were handled since the commit policy last heard of the partition. */
  uncounted = 0
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
  /** Why what was read is not let through: shown behind what may be handed out, before what may not. */
  gateError: MillraceError | undefined
  /** The last error that the reader came upon, and where it stood. */
  failure: { readonly error: MillraceError; readonly offset: bigint } | undefined
  /** The last error of it that was handed out. */
  told: MillraceError | undefined
  /** Whether it stands in the merge's queue. */
  queued = false
  #first: Slice | undefined
  #last: Slice | undefined
  #gated = false
  /** The first slice that must not be handed out yet. */
  #staged: Slice | undefined
  #error: MillraceError | undefined

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

  /** The history that is being read. */
  get lineage(): Lineage {
    return this.machine.lineage
  }

  /** The first message that is handed out and not handled. */
  get oldestOpen(): bigint | undefined {
    return this.inHand ? this.ranges.prefix : undefined
  }

  /** The slice to hand out next. */
  get slice(): Slice | undefined {
    return this.#first === this.#staged ? undefined : this.#first
  }

  /** The error to hand out once `slice` has nothing. */
  get error(): MillraceError | undefined {
    return this.gateError ?? (this.#staged === undefined ? this.#error : undefined)
  }

  /** The reader's, shown behind everything that was read before. `undefined`: the one that is shown was handed out. */
  set error(error: MillraceError | undefined) {
    if (error === undefined && this.gateError !== undefined) this.gateError = undefined
    else this.#error = error
  }

  /** From now on what is read waits for `pass` (policy `onRead`). */
  gate(): void {
    this.#gated = true
  }

  get gated(): boolean {
    return this.#gated
  }

  /** Progress behind everything that was read, while some of it waits for `pass`. */
  get stagedNext(): bigint | undefined {
    return this.#staged === undefined ? undefined : this.#last?.after
  }

  /** What lies before `next` may be handed out. */
  pass(next: bigint): void {
    while (this.#staged !== undefined && this.#staged.after <= next) this.#staged = this.#staged.next
  }

  push(slice: Slice): void {
    if (this.#gated) this.#staged ??= slice
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
    this.#staged = undefined
    this.#error = undefined
    this.gateError = undefined
    return dropped
  }
}
