import type { TopicPartition } from "@millrace/contract"

/** How one program sees one partition: what it has to get next, and what of it is not handled. */
export class LaneView {
  readonly place: TopicPartition
  /** Told to be assigned, and neither revoked nor lost since; always for a named consumer. */
  isOwned: boolean
  /** Given after the first assignment: `startAt` says nothing about it. */
  isGainedLater = false
  /** Told to be about to go: nothing more of it may be handed out. */
  isLeaving = false
  /** Since when, on the monotonic clock in ms. */
  leavingSinceMs: number = Number.NaN
  isPaused = false
  /** It goes because a message was in hand for too long: nobody waits for that one. */
  isCutOff = false
  /** What the program itself has stored of it. */
  storedNext = 0
  /** Its last store was refused for good. */
  isStoreBroken = false
  /** The program has moved its position or its progress by its own call: what its next start and stores are is not to be foreseen. */
  isWilful = false
  /** The next record to come: the first that is there at or behind it. Absent before the first message after a start. */
  expected: number | undefined
  /** The claim that the last message was read under. */
  claim: unknown
  /** The history of the last message. */
  lineage: string | undefined
  /** Behind the last record that a poll has answered. */
  readTo = 0
  /** Where the position was said to have jumped. */
  jumps: { readonly from: number; readonly to: number }[] = []
  /** Handed out and not handled, in this order. */
  open: number[] = []
  /** Behind the last record before which the program has handled all that it got. */
  handledNext = 0
  /** The same without the holes at its end, which a reader may not have come upon yet. */
  handledBehind = 0
  /** Something of it was handled. */
  hasHandled = false
  #handled = new Set<number>()

  constructor({ stream, topic, partition }: TopicPartition, isOwned: boolean) {
    this.place = { stream, topic, partition }
    this.isOwned = isOwned
  }

  /** A record was handed out. */
  took(offset: number): void {
    if (this.expected === undefined) {
      this.handledNext = offset
      this.handledBehind = offset
    }
    this.expected = Math.max(this.expected ?? 0, offset + 1)
    this.open.push(offset)
  }

  /** One record is handled. @param hidden Offsets that nobody needs to handle. */
  handled(offset: number, hidden: ReadonlySet<number>): void {
    const index = this.open.indexOf(offset)
    if (index >= 0) this.open.splice(index, 1)
    this.#handled.add(offset)
    this.hasHandled = true
    for (;;) {
      const next = this.handledNext
      const jump = this.jumps.find(({ from, to }) => from === next && to > next)
      if (this.#handled.delete(next)) {
        this.handledNext++
        this.handledBehind = this.handledNext
      } else if (jump !== undefined) this.handledNext = jump.to
      else if (hidden.has(next)) this.handledNext++
      else return
    }
  }

  /** Reading begins anew: what was in hand counts no more. @param expected Absent: it is not to be foreseen. */
  restart(expected: number | undefined): void {
    this.expected = expected
    this.handledNext = expected ?? 0
    this.handledBehind = this.handledNext
    this.readTo = Math.min(this.readTo, this.handledNext)
    this.open = []
    this.#handled = new Set()
  }
}
