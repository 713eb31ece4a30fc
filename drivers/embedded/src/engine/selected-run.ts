/**
 * Polls through filters. A turn examines a bounded part of the log; what it selects goes over as it is stored where all of it was selected,
 * and moved together where not. Progress is told also when nothing was selected: at the end of the wait, or before that when there is more
 * to examine.
 */
import {
  compileFilter,
  errorAt,
  filterLimits,
  type MillraceError,
  type ReadLimits,
  Selection,
  type TopicFilter,
  type TopicName,
} from "@millrace/contract"
import { BatchBody } from "../batch/batch-body.ts"
import { pickedBytes, writePicked } from "../batch/picked-batch.ts"
import { type BatchRun, type Budget, type ReadBatch, readRun } from "./read-batches.ts"
import {
  batchNumber,
  failSlot,
  moveSlot,
  type ReaderSlot,
  type ReadySlot,
  readError,
  type SlotRead,
} from "./reader-slot.ts"
import type { Transaction } from "./transaction.ts"

/** The filters of a reader, ready to run, by topic. */
export type Selections = ReadonlyMap<string, Selection>

/** `undefined` for a reader without filters, which reads in the plain way. */
export function selectionsOf(filters: readonly TopicFilter[] | undefined): Selections | undefined {
  if (filters === undefined || filters.length === 0) return undefined
  return new Map(filters.map((filter) => [topicKey(filter), new Selection(compileFilter(filter.filter))] as const))
}

/** What a poll has to do, and where its answer goes. */
export interface SelectedPoll {
  readonly ready: readonly ReadySlot[]
  readonly limits: ReadLimits
  readonly selections: Selections
  readonly reads: SlotRead[]
}

/** Examines what is there, up to the bounds of a turn. Answers whether there is something to tell now: records, an error, or more to examine. */
export function readSelected(transaction: Transaction, { ready, limits, selections, reads }: SelectedPoll): boolean {
  const whole: Turn = {
    bytes: Math.min(limits.maxBytes, filterLimits.examinedBytes),
    examined: filterLimits.examinedRecords,
    selected: limits.maxRecords,
    work: filterLimits.patternWork,
    first: true,
  }
  let news = reads.length > 0
  ready.forEach(({ slot, state }, i) => {
    if (isSpent(whole) || (!whole.first && (whole.bytes <= 0 || whole.examined <= 0))) {
      news = true
      return
    }
    const others = ready.length - i
    const bytes = Math.ceil(whole.bytes / others)
    const records = Math.ceil(whole.examined / others)
    const budget: Budget = { bytes, records, pollBytes: whole.bytes, first: whole.first }
    const buffersBefore = transaction.transfer.length
    const run = readRun(transaction, state, { number: batchNumber(slot), offset: slot.offset, budget })
    const buffers = transaction.transfer.splice(buffersBefore)
    whole.bytes -= bytes - budget.bytes
    whole.first &&= budget.first
    const selection = selections.get(topicKey(slot.position))
    const found = examine(slot, { run, buffers, selection, turn: whole, offset: buffersBefore })
    transaction.transfer.push(...found.buffers)
    const error = found.error ?? (run.batches.length === 0 ? run.error : undefined)
    if (found.batches.length > 0) {
      slot.told = slot.offset
      reads.push({ slot: slot.position.slot, batches: found.batches, nextOffset: slot.offset, head: state.next })
    } else if (error !== undefined && slot.told === slot.offset) {
      // Behind progress that is not told yet, the error waits for the next poll.
      const read = found.error === undefined ? readError(slot, error) : failSlot(slot, error)
      if (read !== undefined) reads.push(read)
    }
    news ||= found.batches.length > 0 || error !== undefined || slot.offset < state.next
  })
  return news
}

/** Adds the progress that was made and not told. */
export function tellProgress(looked: readonly ReadySlot[], reads: SlotRead[]): void {
  for (const { slot, state } of looked) {
    if (slot.failed || slot.told === slot.offset) continue
    slot.told = slot.offset
    reads.push({ slot: slot.position.slot, batches: [], nextOffset: slot.offset, head: state.next })
  }
}

/** What a turn may still do. */
interface Turn {
  bytes: number
  examined: number
  selected: number
  /** Of patterns. */
  work: number
  first: boolean
}

interface Examination {
  readonly run: BatchRun
  readonly buffers: readonly ArrayBuffer[]
  readonly selection: Selection | undefined
  readonly turn: Turn
  /** Index of the first of the buffers in the answer's list. */
  readonly offset: number
}

/** A batch of which something was selected. */
interface Selected {
  readonly batch: ReadBatch
  readonly body: BatchBody
  /** Absent: all. */
  readonly picked: Uint32Array | undefined
}

interface Found {
  readonly batches: readonly ReadBatch[]
  readonly buffers: readonly ArrayBuffer[]
  readonly error: MillraceError | undefined
}

/** Runs the filter over the batches of a run, and moves the slot behind what was examined. */
function examine(slot: ReaderSlot, { run, buffers, selection, turn, offset }: Examination): Found {
  const selected: Selected[] = []
  let error: MillraceError | undefined
  let number = batchNumber(slot)
  for (const batch of run.batches) {
    const body = new BatchBody(buffers[batch.buffer - offset] as ArrayBuffer, batch.start, batch.bytes)
    const from = slot.offset > batch.base ? Number(slot.offset - batch.base) : 0
    let next = body.count
    if (selection === undefined) {
      selected.push({ batch, body, picked: undefined })
      turn.selected -= body.count - from
    } else {
      const to = Math.min(body.count, from + Math.max(1, turn.examined))
      selection.run(body, { from, to, most: turn.selected, work: turn.work })
      turn.work -= selection.work
      if (selection.count > 0)
        selected.push({ batch, body, picked: selection.count === body.count ? undefined : selection.picked() })
      turn.selected -= selection.count
      next = selection.next
      error = selection.error
    }
    turn.examined -= next - from
    if (next === body.count) number += 1n
    moveSlot(slot, { offset: batch.base + BigInt(next), number })
    if (error !== undefined) error = errorAt(error, { ...slot.position, offset: slot.offset })
    if (error !== undefined || next < body.count || isSpent(turn)) break
  }
  const complete = selected.length === run.batches.length && selected.every(({ picked }) => picked === undefined)
  if (complete) return { batches: run.batches, buffers, error }
  return { ...moved(selected, offset), error }
}

function isSpent({ selected, work }: Turn): boolean {
  return selected <= 0 || work <= 0
}

/** What was selected, in one buffer. */
function moved(selected: readonly Selected[], offset: number): Pick<Found, "batches" | "buffers"> {
  if (selected.length === 0) return { batches: [], buffers: [] }
  const sizes = selected.map(({ batch, body, picked }) =>
    picked === undefined ? batch.bytes : pickedBytes(body, picked),
  )
  const buffer = Buffer.allocUnsafeSlow(sizes.reduce((sum, bytes) => sum + bytes, 0))
  let start = 0
  const batches = selected.map(({ batch, body, picked }, i): ReadBatch => {
    const bytes = sizes[i] as number
    const target = buffer.subarray(start, start + bytes)
    const at = {
      buffer: offset,
      start: buffer.byteOffset + start,
      bytes,
      base: batch.base,
      timestampMicros: batch.timestampMicros,
    }
    start += bytes
    if (picked === undefined) {
      target.set(body.whole)
      return at
    }
    writePicked(body, picked, target)
    return { ...at, picked }
  })
  return { batches, buffers: [buffer.buffer as ArrayBuffer] }
}

/** Names hold no control characters. */
function topicKey({ stream, topic }: TopicName): string {
  return `${stream}\n${topic}`
}
