import type { Entry, SenderBatch } from "./sender-entry.ts"

/** The numbers that a removed batch leaves unused, and the batches behind it that have to be numbered anew. */
export class SequenceGap<B extends SenderBatch> {
  isOpen = false
  /** The removed batch may be stored, so nothing behind it can be told from it under the same epoch. */
  uncertain = false
  /** Where the numbers of those behind begin again, when the epoch stays. */
  sequence = 0
  readonly behind: Entry<B>[] = []

  open(entry: Entry<B>): void {
    if (!this.isOpen) this.sequence = entry.sequence
    this.isOpen = true
    if (entry.unknown) this.uncertain = true
  }

  keep(entry: Entry<B>): void {
    if (this.isOpen) this.behind.push(entry)
  }
}
