/** Readers: their positions, and polls over all of them. */
import {
  CorruptionError,
  HistoryChangedError,
  OffsetOutOfRangeError,
  type Position,
  type ReadLimits,
  type TopicFilter,
} from "@millrace/contract"
import { noPartition } from "./append.ts"
import { topicText } from "./catalog-cache.ts"
import type { ReadCommand, Room, TopicRow, WaitCommand } from "./command.ts"
import { firstBatchWhere, type PartitionState, readBatchRow, readPartition } from "./partition-state.ts"
import { type BatchRun, type Budget, readRun } from "./read-batches.ts"
import {
  batchNumber,
  failSlot,
  moveSlot,
  newSlot,
  type ReaderSlot,
  type ReadySlot,
  readError,
  type SlotPosition,
  type SlotRead,
} from "./reader-slot.ts"
import { readSelected, type Selections, selectionsOf, tellProgress } from "./selected-run.ts"
import type { Transaction } from "./transaction.ts"

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
  /** Of the reader, for as long as it lives; looked at when it is made. */
  readonly filters?: readonly TopicFilter[]
}

/** Arguments of `reader.next`. */
export interface ReaderNext {
  readonly reader: number
  readonly limits: ReadLimits
}

interface Reader {
  slots: ReaderSlot[]
  /** Which slot the next poll begins with. */
  turn: number
  /** By topic; absent when the reader has no filter at all. */
  readonly selections: Selections | undefined
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

  #set({ reader: id, slots, fresh, filters }: ReaderSet): undefined {
    const reader = this.#readers.get(id) ?? { slots: [], turn: 0, selections: selectionsOf(filters) }
    const known = new Map(reader.slots.map((slot) => [slot.position.slot, slot]))
    for (const position of fresh) known.set(position.slot, newSlot(position))
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
    const looked: ReadySlot[] = []
    const ready: ReadySlot[] = []
    let records = 0n
    for (let i = 0; i < reader.slots.length; i++) {
      const slot = reader.slots[(reader.turn + i) % reader.slots.length] as ReaderSlot
      if (slot.failed) continue
      try {
        const state = this.#look(transaction, slot)
        looked.push({ slot, state })
        if (slot.offset === state.next) continue
        ready.push({ slot, state })
        records += state.next - slot.offset
      } catch (error) {
        reads.push(failSlot(slot, error))
      }
    }
    const { selections } = reader
    if (selections !== undefined) {
      turnOn(reader)
      const news = readSelected(transaction, { ready, limits, selections, reads })
      if (!news && !over) return undefined
      tellProgress(looked, reads)
      return { reads, buffers: transaction.transfer }
    }
    const enough = records >= BigInt(Math.ceil(limits.minRecords)) || fills(transaction, ready, limits)
    if (reads.length === 0 && !enough && !over) return undefined
    turnOn(reader)
    readReady(transaction, { ready, limits, reads })
    // Nothing to show for records that are there happens only when a segment has vanished: the owner asks again.
    return { reads, buffers: transaction.transfer }
  }

  /** The state of a slot's partition, once the position is known to lie in it. */
  #look(transaction: Transaction, slot: ReaderSlot): PartitionState {
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

function turnOn(reader: Reader): void {
  reader.turn = reader.slots.length === 0 ? 0 : (reader.turn + 1) % reader.slots.length
}

/** Shares the limits among the partitions that have something, each its part first, in turn. */
function readReady(
  transaction: Transaction,
  { ready, limits, reads }: { readonly ready: ReadySlot[]; readonly limits: ReadLimits; readonly reads: SlotRead[] },
): void {
  const whole = { bytes: limits.maxBytes, records: limits.maxRecords, first: true }
  ready.forEach(({ slot, state }, i) => {
    const others = ready.length - i
    if (!whole.first && (whole.bytes <= 0 || whole.records <= 0)) return
    const bytes = Math.ceil(whole.bytes / others)
    const records = Math.ceil(whole.records / others)
    const part: Budget = { bytes, records, pollBytes: whole.bytes, first: whole.first }
    const run = readRun(transaction, state, { number: batchNumber(slot), offset: slot.offset, budget: part })
    whole.bytes -= bytes - part.bytes
    whole.records -= records - part.records
    whole.first &&= part.first
    addRead(reads, slot, { run, head: state.next })
  })
}

function addRead(
  reads: SlotRead[],
  slot: ReaderSlot,
  { run, head }: { readonly run: BatchRun; readonly head: bigint },
): void {
  const { batches, nextOffset, nextBatch, error } = run
  if (batches.length > 0) {
    moveSlot(slot, { offset: nextOffset, number: nextBatch })
    slot.told = nextOffset
    reads.push({ slot: slot.position.slot, batches, nextOffset, head })
  } else if (error !== undefined) {
    const read = readError(slot, error)
    if (read !== undefined) reads.push(read)
  }
}

/** Whether what is there fills a poll by its bytes or records, however few it wants at least. */
function fills(transaction: Transaction, ready: readonly ReadySlot[], { maxRecords, maxBytes }: ReadLimits): boolean {
  let bytes = 0n
  let records = 0n
  for (const { slot, state } of ready) {
    bytes += state.written - writtenBefore(transaction, slot, state)
    records += state.next - slot.offset
  }
  return ready.length > 0 && (bytes >= BigInt(Math.ceil(maxBytes)) || records >= BigInt(Math.ceil(maxRecords)))
}

/** Bytes of the partition before the batch that comes next. Damage there counts as nothing: reading on finds it, in its place. */
function writtenBefore(transaction: Transaction, slot: ReaderSlot, state: PartitionState): bigint {
  const number = batchNumber(slot)
  if (number === state.firstBatch) return state.removed
  try {
    return readBatchRow(transaction, state, number - 1n).total
  } catch (error) {
    if (error instanceof CorruptionError) return 0n
    throw error
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
  { position, offset }: ReaderSlot,
  { first, next }: PartitionState,
): OffsetOutOfRangeError {
  return new OffsetOutOfRangeError(
    `offset ${offset} of partition ${position.partition} of topic ${topicText(topic)} is out of range: it holds ${first} to ${next} (the end)`,
    { context: { offset, first, end: next } },
  )
}
