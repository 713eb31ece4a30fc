/** Runs a filter over the records of a batch. */
import { DecodeError, errorFromWire, errorToWire, MillraceError } from "../error.ts"
import type { TopicPartition } from "../position.ts"
import type { FilterProgram } from "./program.ts"
import type { RecordSource } from "./record-view.ts"

/** Which records of a batch to examine, and how many to select at most. */
export interface SelectionRange {
  readonly from: number
  /** Behind the last. */
  readonly to: number
  readonly most: number
  /** After so much work of patterns (`patternWork`) the rest is left for later. Default: no bound. */
  readonly work?: number
}

/** What a filter selects of batches, one after the other; the fields speak of the last. */
export class Selection {
  readonly #program: FilterProgram
  #picked: Uint32Array = new Uint32Array(64)
  /** How many records were selected. */
  count = 0
  /** The first record that was not examined, or that the filter stops before. */
  next = 0
  /** What patterns cost. */
  work = 0
  /** Why it stopped there: as the filter says, or since the batch is damaged. */
  error: MillraceError | undefined

  constructor(program: FilterProgram) {
    this.#program = program
  }

  /** The indexes of the selected records, ascending; a copy. */
  picked(): Uint32Array {
    return this.#picked.slice(0, this.count)
  }

  /** The index of the n-th selected record. */
  at(n: number): number {
    return this.#picked[n] as number
  }

  /** @throws what is thrown that is no `MillraceError` */
  run(source: RecordSource, { from, to, most, work = Number.POSITIVE_INFINITY }: SelectionRange): void {
    const program = this.#program
    const workBefore = program.patternWork
    this.count = 0
    this.work = 0
    this.error = undefined
    let index = from
    try {
      for (; index < to && this.count < most && this.work < work; index++) {
        const judgement = program.judge(source, index)
        this.work = program.patternWork - workBefore
        if (judgement === "selected") this.#pick(index)
        else if (judgement === "stopped") {
          this.error = stopError(program, source, index)
          break
        }
      }
    } catch (error) {
      if (!(error instanceof MillraceError)) throw error
      this.error = error
    }
    this.next = index
    program.rest()
  }

  #pick(index: number): void {
    if (this.count === this.#picked.length) {
      const longer = new Uint32Array(this.#picked.length * 2)
      longer.set(this.#picked)
      this.#picked = longer
    }
    this.#picked[this.count] = index
    this.count++
  }
}

/**
 * The error of a selection with the place where it stopped: a DecodeError whose `context` has `offset`, and `fault` as the reason, where it
 * was the filter that stopped.
 */
export function errorAt(
  error: MillraceError,
  { stream, topic, partition, offset }: TopicPartition & { readonly offset: bigint },
): MillraceError {
  const context = { ...error.context, stream, topic, partition, offset }
  const wire = errorToWire(error)
  if (!(error instanceof DecodeError) || error.context.fault === undefined) return errorFromWire({ ...wire, context })
  const name = stream === "" ? topic : `${stream}/${topic}`
  const message = `the filter stops before offset ${offset} of partition ${partition} of topic ${name}: ${error.message} (a filter with fault "pass" or "drop" goes on)`
  return errorFromWire({ ...wire, message, context })
}

function stopError(program: FilterProgram, source: RecordSource, index: number): DecodeError {
  const { reason, detail } = program.verdictAt(source, index)
  return new DecodeError(detail ?? "the record does not decode", { context: { fault: reason } })
}
