import {
  type Claim,
  ClosedError,
  CorruptionError,
  type EncodedBatch,
  HistoryChangedError,
  type LogReader,
  MillraceError,
  type PartitionRead,
  type ReadLimits,
  type ReadPosition,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { readBatches } from "./batch/encoded-batch.ts"
import type { Partition } from "./codec/catalog-structures.ts"
import { pollMessages } from "./codec/message-commands.ts"
import { Pauses } from "./pause.ts"
import { outOfRange, type Places, passer } from "./places.ts"
import { type Candidate, type Share, shareOut } from "./reader-plan.ts"
import { code, type Requests, refusedWith } from "./requests.ts"
import {
  endOf,
  goneTopic,
  keyOf,
  lookUpTopic,
  missingPartition,
  nameOf,
  partitionOf,
  type TopicView,
} from "./topic-lookup.ts"

/** Assumed of a record while the partition says nothing. */
const unknownRecordBytes = 1024

/** A partition under one position. `set` replaces it when the position is another: what a poll brings for the old one is dropped. */
interface Slot {
  readonly position: ReadPosition
  claim: Claim | undefined
  /** Where reading goes on. */
  offset: bigint
  /** The end as it was last seen; at or below `offset` when there is nothing to read. */
  head: bigint
  bytesPerRecord: number
  failed: boolean
}

interface SlotCandidate extends Candidate {
  readonly slot: Slot
}

/** A poll of one slot, as the server answered. */
interface Fetched {
  readonly slot: Slot
  readonly batches: readonly EncodedBatch[]
  readonly head: bigint
  readonly error?: MillraceError
}

/**
 * Reads by offset from any number of partitions. A round looks at the topics, polls the partitions that have more, and looks at their
 * topics again: records count only when the history is the same behind them, since the server answers polls by name and offset alone.
 */
export class IggyReader implements LogReader {
  readonly #requests: Requests
  readonly #places: Places
  readonly #clock: Clock
  readonly #closed: (reader: IggyReader) => void
  readonly #pauses: Pauses
  #slots: Slot[] = []
  /** Who comes first in the next poll. */
  #turn = 0
  #ended = false

  constructor(
    tools: { readonly requests: Requests; readonly places: Places; readonly clock: Clock },
    closed: (reader: IggyReader) => void,
  ) {
    this.#requests = tools.requests
    this.#places = tools.places
    this.#clock = tools.clock
    this.#pauses = new Pauses(tools.clock)
    this.#closed = closed
  }

  set(positions: readonly ReadPosition[]): void {
    const known = new Map(this.#slots.map((slot) => [placeKey(slot.position), slot]))
    this.#slots = positions.map((position) => {
      const old = known.get(placeKey(position))
      if (old === undefined || !goesOn(old, position)) return newSlot(position)
      old.claim = position.claim
      return old
    })
    this.#pauses.wake()
  }

  async next(limits: ReadLimits): Promise<PartitionRead[]> {
    if (this.#ended) throw new ClosedError("the reader is closed")
    const deadlineMs = this.#clock.monotonicMs() + limits.maxWaitMs
    this.#pauses.reset()
    for (;;) {
      const leftMs = deadlineMs - this.#clock.monotonicMs()
      const reads = await this.#round(limits, leftMs > 0 ? Math.min(limits.minRecords, limits.maxRecords) : 1)
      if (this.#ended) return []
      if (reads.length > 0 || leftMs <= 0) return reads
      await this.#pauses.pause(leftMs)
      if (this.#ended) return []
    }
  }

  async close(): Promise<void> {
    if (this.#ended) return
    this.#ended = true
    this.#slots = []
    this.#closed(this)
    this.#pauses.wake()
  }

  /** Reads when at least `minRecords` can be had; answers at least what went wrong. */
  async #round(limits: ReadLimits, minRecords: number): Promise<PartitionRead[]> {
    this.#requests.assertOpen()
    const failures = this.#enough(minRecords, limits.maxBytes) ? [] : await this.#survey()
    // Told at once: a poll that fails behind it would take the only word of them along.
    if (failures.length > 0 || !this.#enough(Math.max(1, minRecords), limits.maxBytes)) return failures
    return this.#take(await this.#fetch(limits), limits.maxBytes)
  }

  #live(): Slot[] {
    return this.#slots.filter((slot) => !slot.failed)
  }

  /** Whether what is known to be there is as many records as are wanted, or as many bytes as a poll may bring. */
  #enough(minRecords: number, maxBytes: number): boolean {
    let records = 0
    let bytes = 0
    for (const { head, offset, bytesPerRecord } of this.#live()) {
      if (head <= offset) continue
      records += Number(head - offset)
      bytes += Number(head - offset) * bytesPerRecord
    }
    return records >= minRecords || (records > 0 && bytes >= maxBytes)
  }

  /** Looks at every topic: learns the ends, and which positions are none. */
  async #survey(): Promise<PartitionRead[]> {
    const slots = this.#live()
    const views = await this.#look(slots)
    return this.#tell(slots.map((slot) => [slot, () => this.#observe(slot, views.get(keyOf(slot.position)))]))
  }

  /**
   * What there is to tell of slots that are still the reader's. A failure that a pause may mend is thrown only when there is nothing else:
   * what was told of other slots must not be lost with it, and the next round comes upon it again.
   */
  async #tell(acts: readonly (readonly [Slot, () => Promise<PartitionRead | undefined>])[]): Promise<PartitionRead[]> {
    const reads: PartitionRead[] = []
    let obstacle: { readonly error: unknown } | undefined
    for (const [slot, act] of acts) {
      if (!this.#slots.includes(slot)) continue
      try {
        const read = await act()
        if (read !== undefined && this.#slots.includes(slot)) reads.push(read)
      } catch (error) {
        obstacle ??= { error }
      }
    }
    if (obstacle !== undefined && reads.length === 0) throw obstacle.error
    return reads
  }

  async #observe(slot: Slot, view: TopicView | MillraceError | undefined): Promise<PartitionRead | undefined> {
    const found = checkHistory(slot, view)
    if (isError(found)) return failed(slot, found)
    slot.head = endOf(found)
    if (found.messagesCount > 0n) slot.bytesPerRecord = Math.max(1, Number(found.sizeBytes / found.messagesCount))
    if (slot.offset <= slot.head) return undefined
    return failed(slot, await this.#places.outOfRange({ ...slot.position, offset: slot.offset }, found))
  }

  /** The topics of these slots as they are now, each once. A topic that is not there is an answer, too. */
  async #look(slots: readonly Slot[]): Promise<Map<string, TopicView | MillraceError>> {
    const looks = new Map<string, Promise<TopicView | MillraceError>>()
    for (const { position } of slots) {
      const key = keyOf(position)
      if (!looks.has(key)) looks.set(key, lookUpTopic(this.#requests, position).catch(unlessRetryable))
    }
    const views = await Promise.all(looks.values())
    return new Map([...looks.keys()].map((key, index) => [key, views[index] as TopicView | MillraceError]))
  }

  async #fetch(limits: ReadLimits): Promise<Fetched[]> {
    return Promise.all(shareOut(this.#candidates(), limits).map((share) => this.#poll(share)))
  }

  /** Those with more to read, beginning with another one each time. */
  #candidates(): SlotCandidate[] {
    const ready = this.#live().filter(({ head, offset }) => head > offset)
    const turn = ready.length === 0 ? 0 : this.#turn++ % ready.length
    return [...ready.slice(turn), ...ready.slice(0, turn)].map((slot) => ({
      slot,
      available: Number(slot.head - slot.offset),
      bytesPerRecord: slot.bytesPerRecord,
    }))
  }

  async #poll({ candidate: { slot }, records }: Share<SlotCandidate>): Promise<Fetched> {
    const { stream, topic, partition } = slot.position
    const strategy = { kind: "offset", value: slot.offset } as const
    try {
      const poll = { consumer: passer, stream, topic, partition, strategy, count: records, autoCommit: false }
      const answer = await this.#requests.request(pollMessages, poll)
      const batches = readBatches(answer.records)
      const head = batches.length === 0 ? slot.offset : answer.currentOffset + 1n
      return { slot, batches, head }
    } catch (error) {
      // What became of the topic, the look behind the polls tells.
      if (refusedWith(error, code.streamNotFound, code.topicNotFound, code.partitionNotFound)) {
        return { slot, batches: [], head: slot.offset }
      }
      return { slot, batches: [], head: slot.offset, error: placed(slot, unlessRetryable(error)) }
    }
  }

  /**
   * Hands over what belongs to the history that each slot is in, in whole batches: what is above the limit is polled again. All topics are
   * looked at, so that partitions at whose end the reader stood are not forgotten while others flow.
   */
  async #take(fetched: readonly Fetched[], maxBytes: number): Promise<PartitionRead[]> {
    const slots = this.#live()
    const views = await this.#look(slots)
    const answers: Fetched[] = []
    let room = maxBytes
    for (const whole of fetched) {
      if (!this.#slots.includes(whole.slot)) continue
      const batches = fitting(whole.batches, room, room === maxBytes)
      if (batches.length === 0 && whole.batches.length > 0) continue
      room -= batches.reduce((sum, { bytes }) => sum + bytes, 0)
      answers.push({ ...whole, batches })
    }
    const polled = new Set(fetched.map(({ slot }) => slot))
    const others = slots.filter((slot) => !polled.has(slot))
    return this.#tell([
      ...answers.map(
        (answer) => [answer.slot, () => this.#judge(answer, views.get(keyOf(answer.slot.position)))] as const,
      ),
      ...others.map((slot) => [slot, () => this.#observe(slot, views.get(keyOf(slot.position)))] as const),
    ])
  }

  async #judge(answer: Fetched, view: TopicView | MillraceError | undefined): Promise<PartitionRead | undefined> {
    const { slot, batches, head } = answer
    const found = checkHistory(slot, view)
    if (isError(found)) return failed(slot, found)
    if (answer.error !== undefined) return failed(slot, answer.error)
    const [first, last] = [batches[0], batches.at(-1)]
    if (first === undefined || last === undefined) {
      // Nothing there though the end lies behind: retention took it, or the partition is only just being made.
      const retained = await this.#places.first(slot.position, found)
      slot.head = slot.offset
      if (retained <= slot.offset) return undefined
      return failed(slot, outOfRange({ ...slot.position, offset: slot.offset }, retained, endOf(found)))
    }
    if (first.firstOffset > slot.offset)
      return failed(slot, outOfRange({ ...slot.position, offset: slot.offset }, first.firstOffset, head))
    const { stream, topic, partition, lineage } = slot.position
    slot.offset = last.lastOffset + 1n
    slot.head = slot.offset
    if (head > slot.offset) slot.head = head
    const { claim } = slot
    const read = { stream, topic, partition, batches, nextOffset: slot.offset, head: slot.head, lineage }
    return claim === undefined ? read : { ...read, claim }
  }
}

function newSlot(position: ReadPosition): Slot {
  const { offset, claim } = position
  return { position, claim, offset, head: offset, bytesPerRecord: unknownRecordBytes, failed: false }
}

function goesOn(slot: Slot, position: ReadPosition): boolean {
  return !slot.failed && slot.offset === position.offset && slot.position.lineage === position.lineage
}

function placeKey(position: ReadPosition): string {
  return `${position.partition}/${keyOf(position)}`
}

/** The leading batches that fit; with `first` at least one. */
function fitting(batches: readonly EncodedBatch[], room: number, first: boolean): readonly EncodedBatch[] {
  let bytes = 0
  for (const [index, batch] of batches.entries()) {
    bytes += batch.bytes
    if (bytes > room && !(first && index === 0)) return batches.slice(0, index)
  }
  return batches
}

/** The slot's partition in a view, when it is still the one of the slot's lineage. */
function checkHistory(slot: Slot, view: TopicView | MillraceError | undefined): Partition | MillraceError {
  const { position } = slot
  if (view === undefined) return goneTopic(position)
  if (isError(view)) return view
  const { stream, topic, partition, lineage } = position
  if (view.lineage !== lineage) {
    return new HistoryChangedError(
      `topic ${nameOf(position)} was purged or recreated: its history is ${view.lineage}, not ${JSON.stringify(lineage)}`,
      { context: { stream, topic, partition, offset: slot.offset, lineage: view.lineage } },
    )
  }
  return partitionOf(view, partition) ?? missingPartition(position, partition, view.topic.partitions.length)
}

/** Damage in a reply says where it is. A batch may begin before the place that was asked for. */
function placed(slot: Slot, error: MillraceError): MillraceError {
  if (!(error instanceof CorruptionError)) return error
  const { stream, topic, partition } = slot.position
  const context = { ...error.context, stream, topic, partition, offset: slot.offset }
  return new CorruptionError(
    `${nameOf(slot.position)}, partition ${partition}, at offset ${slot.offset}: ${error.message}`,
    {
      context,
      cause: error,
    },
  )
}

function failed(slot: Slot, error: MillraceError): PartitionRead {
  slot.failed = true
  const { stream, topic, partition } = slot.position
  return { stream, topic, partition, error }
}

function isError(value: unknown): value is MillraceError {
  return value instanceof MillraceError
}

/** What a pause may mend fails the whole poll and leaves the reader as it is; anything else is the partition's own. */
function unlessRetryable(error: unknown): MillraceError {
  if (error instanceof MillraceError && !error.retryable && error.kind !== "closed") return error
  throw error
}
