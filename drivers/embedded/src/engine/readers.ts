/** Readers: their positions, and polls over all of them. */
import {
  CorruptionError,
  type ErrorWire,
  errorToWire,
  HistoryChangedError,
  OffsetOutOfRangeError,
  type Position,
  type ReadLimits,
} from "@millrace/contract"
import { noPartition } from "./append.ts"
import { topicText } from "./catalog-cache.ts"
import type { ReadCommand, Room, TopicRow, WaitCommand } from "./command.ts"
import { firstBatchWhere, type PartitionState, readBatchRow, readPartition } from "./partition-state.ts"
import { type BatchRun, type Budget, type ReadBatch, readRun } from "./read-batches.ts"
import { storageError } from "./storage-error.ts"
import type { Transaction } from "./transaction.ts"

/** A position as the main thread numbers it: a number is used once, so that an answer to an old position is known as such. */
export interface SlotPosition extends Position {
  readonly slot: number
}

/** What a poll gave for one slot. */
export type SlotRead =
  | {
      readonly slot: number
      readonly batches: readonly ReadBatch[]
      readonly nextOffset: bigint
      readonly head: bigint
      readonly error?: undefined
    }
  | { readonly slot: number; readonly error: ErrorWire }

/** The answer of a poll. Batches point into the buffers. */
export interface PollAnswer {
  readonly reads: readonly SlotRead[]
  readonly buffers: readonly ArrayBuffer[]
}

/** Arguments of `reader.set`, which also makes a reader. */
export interface ReaderSet {
  readonly reader: number
  /** All slots, in order. */
  readonly slots: readonly number[]
  /** Positions of the slots that are new. */
  readonly fresh: readonly SlotPosition[]
}

/** Arguments of `reader.next`. */
export interface ReaderNext {
  readonly reader: number
  readonly limits: ReadLimits
}

interface Slot {
  readonly position: SlotPosition
  offset: bigint
  /** The batch that holds the offset, once it was looked for under this partition key. */
  batch: { readonly key: number; readonly number: bigint } | undefined
  failed: boolean
  /** Whether the last poll did not find a segment that it expected. */
  vanished: boolean
}

interface Reader {
  slots: Slot[]
  /** Which slot the next poll begins with. */
  turn: number
}

/** What can be read of a slot now. */
interface Ready {
  readonly slot: Slot
  readonly state: PartitionState
}

/** The readers of one engine, and their commands. */
export class Readers {
  readonly #readers = new Map<number, Reader>()

  readonly commands: Room["commands"] = [this.#setCommand(), this.#nextCommand(), this.#closeCommand()]

  #setCommand(): ReadCommand<ReaderSet, undefined> {
    return {
      mode: "read",
      name: "reader.set",
      rechecks: "appends",
      run: (_access, args) => this.#set(args),
    }
  }

  #nextCommand(): WaitCommand<ReaderNext, PollAnswer> {
    return {
      mode: "wait",
      name: "reader.next",
      interest: "appends",
      maxWaitMs: ({ limits }) => limits.maxWaitMs,
      concerns: ({ reader }, keys) => this.#concerns(reader, keys),
      run: (access, args, over) => this.#poll(access as Transaction, args, over),
    }
  }

  #closeCommand(): ReadCommand<number, undefined> {
    return {
      mode: "read",
      name: "reader.close",
      rechecks: "appends",
      run: (_access, reader) => void this.#readers.delete(reader),
    }
  }

  #set({ reader: id, slots, fresh }: ReaderSet): undefined {
    const reader = this.#readers.get(id) ?? { slots: [], turn: 0 }
    const known = new Map(reader.slots.map((slot) => [slot.position.slot, slot]))
    for (const position of fresh)
      known.set(position.slot, { position, offset: position.offset, batch: undefined, failed: false, vanished: false })
    reader.slots = slots.map((slot) => known.get(slot)).filter((slot) => slot !== undefined)
    reader.turn = 0
    this.#readers.set(id, reader)
  }

  #concerns(id: number, keys: ReadonlySet<number>): boolean {
    const reader = this.#readers.get(id)
    if (reader === undefined) return true
    return reader.slots.some(({ batch }) => batch === undefined || keys.has(batch.key))
  }

  #poll(transaction: Transaction, { reader: id, limits }: ReaderNext, over: boolean): PollAnswer | undefined {
    const reader = this.#readers.get(id)
    if (reader === undefined) return { reads: [], buffers: [] }
    const reads: SlotRead[] = []
    const ready: Ready[] = []
    let records = 0n
    for (let i = 0; i < reader.slots.length; i++) {
      const slot = reader.slots[(reader.turn + i) % reader.slots.length] as Slot
      if (slot.failed) continue
      try {
        const state = this.#look(transaction, slot)
        if (slot.offset === state.next) continue
        ready.push({ slot, state })
        records += state.next - slot.offset
      } catch (error) {
        reads.push(fail(slot, error))
      }
    }
    const enough = records >= BigInt(Math.ceil(limits.minRecords)) || fills(transaction, ready, limits)
    if (reads.length === 0 && !enough && !over) return undefined
    reader.turn = reader.slots.length === 0 ? 0 : (reader.turn + 1) % reader.slots.length
    readReady(transaction, { ready, limits, reads })
    // Nothing to show for records that are there happens only when a segment has vanished: the owner asks again.
    return { reads, buffers: transaction.transfer }
  }

  /** The state of a slot's partition, once the position is known to lie in it. */
  #look(transaction: Transaction, slot: Slot): PartitionState {
    const { position } = slot
    const topic = transaction.topic(position)
    const key = topic.partitionKeys[position.partition]
    if (key === undefined) throw noPartition(topic, position.partition)
    if (topic.lineage !== position.lineage) throw historyChanged(topic, position)
    const state = readPartition(transaction, key)
    if (slot.offset < state.first || slot.offset > state.next) throw outOfRange(topic, slot, state)
    if (slot.batch?.key !== key) {
      const { offset } = slot
      const number = firstBatchWhere(transaction, state, ({ base, count }) => base + count > offset)
      slot.batch = { key, number }
    }
    return state
  }
}

/** Shares the limits among the partitions that have something, each its part first, in turn. */
function readReady(
  transaction: Transaction,
  { ready, limits, reads }: { readonly ready: Ready[]; readonly limits: ReadLimits; readonly reads: SlotRead[] },
): void {
  const whole = { bytes: limits.maxBytes, records: limits.maxRecords, first: true }
  ready.forEach(({ slot, state }, i) => {
    const others = ready.length - i
    if (!whole.first && (whole.bytes <= 0 || whole.records <= 0)) return
    const bytes = Math.ceil(whole.bytes / others)
    const records = Math.ceil(whole.records / others)
    const part: Budget = { bytes, records, pollBytes: whole.bytes, first: whole.first }
    const run = readRun(transaction, state, { number: numberOf(slot), offset: slot.offset, budget: part })
    whole.bytes -= bytes - part.bytes
    whole.records -= records - part.records
    whole.first &&= part.first
    addRead(reads, slot, { run, head: state.next })
  })
}

function addRead(
  reads: SlotRead[],
  slot: Slot,
  { run, head }: { readonly run: BatchRun; readonly head: bigint },
): void {
  const { batches, nextOffset, nextBatch, error } = run
  if (batches.length > 0) {
    slot.offset = nextOffset
    slot.vanished = false
    slot.batch = { key: slot.batch?.key ?? 0, number: nextBatch }
    reads.push({ slot: slot.position.slot, batches, nextOffset, head })
  } else if (error !== undefined) {
    // A segment can vanish between the look at the index and the look at the file, when retention removes it in another process. The
    // next poll sees a newer index: then the position is out of range, or the segment is really lost.
    const vanished = error.context.vanished === true && !slot.vanished
    slot.vanished = vanished
    if (!vanished) reads.push(fail(slot, error))
  }
}

/** Whether what is there fills a poll by its bytes or records, however few it wants at least. */
function fills(transaction: Transaction, ready: readonly Ready[], { maxRecords, maxBytes }: ReadLimits): boolean {
  let bytes = 0n
  let records = 0n
  for (const { slot, state } of ready) {
    bytes += state.written - writtenBefore(transaction, slot, state)
    records += state.next - slot.offset
  }
  return ready.length > 0 && (bytes >= BigInt(Math.ceil(maxBytes)) || records >= BigInt(Math.ceil(maxRecords)))
}

/** Bytes of the partition before the batch that comes next. Damage there counts as nothing: reading on finds it, in its place. */
function writtenBefore(transaction: Transaction, slot: Slot, state: PartitionState): bigint {
  const number = numberOf(slot)
  if (number === state.firstBatch) return state.removed
  try {
    return readBatchRow(transaction, state, number - 1n).total
  } catch (error) {
    if (error instanceof CorruptionError) return 0n
    throw error
  }
}

function numberOf(slot: Slot): bigint {
  return slot.batch?.number ?? 0n
}

function fail(slot: Slot, error: unknown): SlotRead {
  slot.failed = true
  const { stream, topic, partition } = slot.position
  const known = storageError(error, `reading partition ${partition} of topic ${topicText(slot.position)}`)
  const wire = errorToWire(known)
  return {
    slot: slot.position.slot,
    error: { ...wire, context: { stream, topic, partition, offset: slot.offset, ...wire.context } },
  }
}

function historyChanged(topic: TopicRow, position: Position): HistoryChangedError {
  return new HistoryChangedError(
    `topic ${topicText(topic)} was purged or created again: offset ${position.offset} belongs to history ${position.lineage}, and ${topic.lineage} is the present one`,
    { context: { offset: position.offset, lineage: topic.lineage } },
  )
}

function outOfRange(
  topic: TopicRow,
  { position, offset }: Slot,
  { first, next }: PartitionState,
): OffsetOutOfRangeError {
  return new OffsetOutOfRangeError(
    `offset ${offset} of partition ${position.partition} of topic ${topicText(topic)} is out of range: it holds ${first} to ${next} (the end)`,
    { context: { offset, first, end: next } },
  )
}
