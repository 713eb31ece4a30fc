import { BatchMessage, type MessageSource } from "../record/message.ts"

/** The records of one partition that a poll has read, in offset order. */
export interface MergeRun {
  readonly partition: number
  readonly pieces: { readonly source: MessageSource; readonly from: number; readonly to: number }[]
}

/** Where one run stands. */
interface Head {
  readonly run: MergeRun
  piece: number
  index: number
  timestampMicros: bigint
}

/**
 * Gives the records of several partitions in the order of (log time, partition, offset), with a binary heap of the partitions' next
 * records. Within a partition the order is always that of the offsets, whatever the times say.
 */
export class MessageMerge {
  readonly #heap: Head[] = []

  constructor(runs: readonly MergeRun[]) {
    for (const run of runs) {
      const head = { run, piece: 0, index: run.pieces[0]?.from ?? 0, timestampMicros: 0n }
      if (!settle(head)) continue
      this.#heap.push(head)
      this.#up(this.#heap.length - 1)
    }
  }

  next(): BatchMessage | undefined {
    const head = this.#heap[0]
    if (head === undefined) return undefined
    const { source } = head.run.pieces[head.piece] as MergeRun["pieces"][number]
    const message = new BatchMessage(source, head.index)
    head.index++
    if (!settle(head)) {
      const last = this.#heap.pop() as Head
      if (this.#heap.length === 0) return message
      this.#heap[0] = last
    }
    this.#down()
    return message
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
}

/** Moves a head to a record that exists; false when its run is over. */
function settle(head: Head): boolean {
  for (;;) {
    const piece = head.run.pieces[head.piece]
    if (piece === undefined) return false
    if (head.index < piece.to) {
      head.timestampMicros = piece.source.batch.timestampMicros(head.index)
      return true
    }
    head.piece++
    head.index = head.run.pieces[head.piece]?.from ?? 0
  }
}
