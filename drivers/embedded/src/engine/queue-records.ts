/** The records of a run of offsets, for a pull: their batches, as far as the taker has not got them, and how many fit. */
import type { MillraceError } from "@millrace/contract"
import { BatchBody } from "../batch/batch-body.ts"
import { batchRowId, firstBatchWhere, type PartitionState, readBatchRow } from "./partition-state.ts"
import { type ReadBatch, readRun } from "./read-batches.ts"
import type { Transaction } from "./transaction.ts"

/** Batches whose measures an engine remembers, for takers that have got their bytes. */
const mostMeasured = 32

/** Room for what an encoded batch has beside what a pull counts, so that a run of small batches is read together. */
const overheadBytes = 64

/** One batch of a pull's answer: its bytes, or that the taker has it. */
export type PulledBatch = {
  /** A number of this batch alone, for ever. */
  readonly row: bigint
} & (ReadBatch | { readonly buffer?: undefined })

/** What a pull may still take. */
export interface PullBudget {
  messages: number
  bytes: number
  /** Whether the next message may exceed the bytes: the first one of a pull. */
  first: boolean
}

/** Which offsets are wanted, from the first on. */
export interface Wanted {
  readonly from: bigint
  /** The end of the run. */
  readonly to: bigint
  /** Whether an offset is wanted; absent: all are. */
  readonly wants?: (offset: bigint) => boolean
  /** Where the engine believes the first one to be. */
  readonly near?: bigint | undefined
}

/** What was found. */
export interface Run {
  readonly batches: PulledBatch[]
  /** Behind the last offset that was looked at. */
  readonly until: bigint
  /** How many offsets of it were wanted. */
  readonly taken: number
  /** The batch that holds the last offset. */
  readonly batch: bigint
}

/** A batch by the ends of its records. */
interface Measured {
  readonly base: bigint
  readonly ends: Uint32Array
}

interface Found {
  readonly pulled: PulledBatch
  readonly measured: Measured
}

/** The records of all queues of one engine. */
export class QueueRecords {
  readonly #measured = new Map<bigint, Measured>()

  /**
   * Reads as far as the budget goes, which it uses up. What cannot be read ends the run.
   * @param have Batches that the taker has.
   * @throws CorruptionError when nothing can be read
   */
  read(
    transaction: Transaction,
    state: PartitionState,
    what: { readonly wanted: Wanted; readonly budget: PullBudget; readonly have: ReadonlySet<bigint> },
  ): Run {
    const { wanted, budget, have } = what
    const batches: PulledBatch[] = []
    let number = locateBatch(transaction, state, wanted)
    let until = wanted.from
    let taken = 0
    let batch = number
    let full = false
    while (!full && until < wanted.to && hasRoom(budget)) {
      const next = this.#next(transaction, state, { number, from: until, to: wanted.to, budget, have })
      if ("error" in next) {
        if (taken === 0) throw next.error
        break
      }
      for (const found of next.found) {
        const used = take(found.measured, { from: until, wanted, budget })
        if (used.taken > 0) batches.push(found.pulled)
        taken += used.taken
        if (used.until > until) batch = number
        until = used.until
        full = until < found.measured.base + BigInt(found.measured.ends.length)
        if (full) this.#remember(found.pulled.row, found.measured)
        if (full || until >= wanted.to) break
        number += 1n
      }
    }
    return { batches, until, taken, batch }
  }

  #next(
    transaction: Transaction,
    state: PartitionState,
    at: {
      readonly number: bigint
      readonly from: bigint
      readonly to: bigint
      readonly budget: PullBudget
      readonly have: ReadonlySet<bigint>
    },
  ): { readonly found: readonly Found[] } | { readonly error: MillraceError } {
    const { number, from, to, budget, have } = at
    const row = batchRowId(state.key, number)
    const known = have.has(row) ? this.#measured.get(row) : undefined
    if (known !== undefined) return { found: [{ pulled: { row }, measured: known }] }
    const records = Math.min(budget.messages, Number(to - from))
    const bytes = Math.max(budget.bytes, 1) + overheadBytes * records
    const run = readRun(transaction, state, {
      number,
      offset: from,
      budget: { bytes, records, pollBytes: bytes, first: true },
    })
    if (run.batches.length === 0 && run.error !== undefined) return { error: run.error }
    const found = run.batches.map((read, i): Found => {
      const body = new BatchBody(transaction.transfer[read.buffer] as ArrayBuffer, read.start, read.bytes)
      return {
        pulled: { ...read, row: row + BigInt(i) },
        measured: { base: read.base, ends: body.recordEnds() },
      }
    })
    return { found }
  }

  #remember(row: bigint, measured: Measured): void {
    this.#measured.delete(row)
    this.#measured.set(row, measured)
    if (this.#measured.size <= mostMeasured) return
    const [oldest] = this.#measured.keys()
    this.#measured.delete(oldest as bigint)
  }
}

/** Takes wanted offsets of one batch while the budget lasts. */
function take(
  { base, ends }: Measured,
  { from, wanted, budget }: { readonly from: bigint; readonly wanted: Wanted; readonly budget: PullBudget },
): { readonly until: bigint; readonly taken: number } {
  const { wants, to } = wanted
  const start = Number(from - base)
  const end = Math.min(ends.length, Number(to - base))
  let taken = 0
  let place = start
  for (; place < end; place++) {
    if (wants !== undefined && !wants(base + BigInt(place))) continue
    // Of what is stored of a record, one byte is the log's own at least.
    const bytes = (ends[place] as number) - (place === 0 ? 0 : (ends[place - 1] as number)) - 1
    if (budget.messages <= 0 || (bytes > budget.bytes && !budget.first)) break
    budget.messages -= 1
    budget.bytes -= bytes
    budget.first = false
    taken += 1
  }
  return { until: base + BigInt(place), taken }
}

function hasRoom({ messages, bytes, first }: PullBudget): boolean {
  return messages > 0 && (bytes > 0 || first)
}

/** The batch that holds the first wanted offset, which is there. */
function locateBatch(transaction: Transaction, state: PartitionState, { from, near }: Wanted): bigint {
  if (near !== undefined && near >= state.firstBatch && near < state.nextBatch) {
    for (const number of [near, near + 1n]) {
      if (number === state.nextBatch) break
      const { base, count } = readBatchRow(transaction, state, number)
      if (base <= from && from < base + count) return number
    }
  }
  return firstBatchWhere(transaction, state, ({ base, count }) => base + count > from)
}
