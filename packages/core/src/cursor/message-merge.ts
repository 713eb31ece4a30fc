import { BatchMessage, type MessageSource } from "../record/message.ts"
import type { CursorResult } from "./cursor.ts"

/** The records of one partition that a poll has read, in offset order. */
export interface MergeRun {
  readonly partition: number
  readonly pieces: { readonly source: MessageSource; readonly from: number; readonly to: number }[]
  /** Behind everything that was read. */
  readonly next: bigint
  /** What stands in the way behind the records. */
  readonly failure: RunFailure | undefined
}

/** Bytes that cannot be read. */
export interface RunFailure {
  readonly error: Extract<CursorResult<unknown>, { kind: "error" }>["error"]
  readonly offset: bigint
  /** Where reading goes on behind them. */
  readonly next: bigint
}

/** Where one run stands. */
class Head {
  readonly run: MergeRun
  piece = 0
  index: number
  timestampMicros = 0n
  /** Whether what stands in its way was given out, or nothing does. */
  clear: boolean

  constructor(run: MergeRun) {
    this.run = run
    this.index = run.pieces[0]?.from ?? 0
    this.clear = run.failure === undefined
  }

  /** The offset behind what was given out. */
  get behind(): bigint {
    const { pieces, next, failure } = this.run
    const piece = pieces[this.piece]
    if (piece === undefined) return this.clear ? (failure?.next ?? next) : next
    const { batch } = piece.source
    if (this.index > piece.from) return batch.offset(this.index - 1) + 1n
    const before = pieces[this.piece - 1]
    return before === undefined ? batch.offset(this.index) : before.source.batch.offset(before.to - 1) + 1n
  }
}

/**
 * Gives the records of several partitions in the order of (log time, partition, offset), with a binary heap of the partitions' next
 * records. Within a partition the order is always that of the offsets, whatever the times say. What cannot be read of a partition comes
 * behind its last record.
 */
export class MessageMerge {
  readonly #heads: readonly Head[]
  readonly #heap: Head[] = []
  /** Partitions whose records are given out, and what stands behind them is not. */
  readonly #failed: Head[] = []
  /** A single partition has its order from its offsets: times are not looked at. */
  readonly #timed: boolean

  constructor(runs: readonly MergeRun[]) {
    this.#heads = runs.map((run) => new Head(run))
    this.#timed = runs.filter(({ pieces }) => pieces.length > 0).length > 1
    for (const head of this.#heads) {
      if (!this.#settle(head)) continue
      this.#heap.push(head)
      this.#up(this.#heap.length - 1)
    }
  }

  /** Whether nothing is left, neither records nor failures. */
  get empty(): boolean {
    return this.#heap.length === 0 && this.#failed.length === 0
  }

  /** The next record; `undefined` when there is none, or a failure comes before it. */
  next(): BatchMessage | undefined {
    const head = this.#heap[0]
    if (head === undefined || this.#failed.length > 0) return undefined
    const { source } = head.run.pieces[head.piece] as MergeRun["pieces"][number]
    const message = new BatchMessage(source, head.index)
    head.index++
    if (!this.#settle(head)) {
      const last = this.#heap.pop() as Head
      if (this.#heap.length === 0) return message
      this.#heap[0] = last
    }
    if (this.#heap.length > 1) this.#down()
    return message
  }

  /** The next failure, when its turn has come. */
  failure(): (RunFailure & { readonly partition: number }) | undefined {
    const head = this.#failed.shift()
    if (head === undefined) return undefined
    head.clear = true
    return { ...(head.run.failure as RunFailure), partition: head.run.partition }
  }

  /** The offset behind what was given out of each partition. */
  *offsets(): Iterable<readonly [partition: number, offset: bigint]> {
    for (const head of this.#heads) yield [head.run.partition, head.behind]
  }

  #up(from: number): void {
    for (let child = from; child > 0; ) {
      const parent = (child - 1) >> 1
      if (!this.#swapIfAfter(parent, child)) return
      child = parent
    }
  }

  #down(): void {
    for (let parent = 0; ; ) {
      const left = 2 * parent + 1
      const right = left + 1
      if (left >= this.#heap.length) return
      const child = right < this.#heap.length && this.#isAfter(left, right) ? right : left
      if (!this.#swapIfAfter(parent, child)) return
      parent = child
    }
  }

  #swapIfAfter(parent: number, child: number): boolean {
    if (!this.#isAfter(parent, child)) return false
    const kept = this.#heap[parent] as Head
    this.#heap[parent] = this.#heap[child] as Head
    this.#heap[child] = kept
    return true
  }

  #isAfter(one: number, other: number): boolean {
    const a = this.#heap[one] as Head
    const b = this.#heap[other] as Head
    if (a.timestampMicros !== b.timestampMicros) return a.timestampMicros > b.timestampMicros
    return a.run.partition > b.run.partition
  }

  /** Moves a head to a record that exists; false when its run is over. */
  #settle(head: Head): boolean {
    for (;;) {
      const piece = head.run.pieces[head.piece]
      if (piece === undefined) {
        if (!head.clear) this.#failed.push(head)
        return false
      }
      if (head.index < piece.to) {
        if (this.#timed) head.timestampMicros = piece.source.batch.timestampMicros(head.index)
        return true
      }
      head.piece++
      head.index = head.run.pieces[head.piece]?.from ?? 0
    }
  }
}
