import type { QueueToken } from "../backend/sim-queue.ts"

/** What is known of one message of one queue. */
export class QueueItem {
  readonly number: number
  /** Handlers that have succeeded, and programs that say that they are done with it. */
  handled = 0
  /** How often a program got it. */
  given = 0
  /** A program does not want it again, though it is not done. */
  isUnwanted = false
  /** Its dead letter was in the log when the core said that it is not to come again. */
  isBuried = false
  /** An acknowledgement was told to count; with `confirm` also for good. */
  isAcked = false
  isConfirmed = false
  /** It may come again, or come late, for a reason of the program's or the script's. */
  isExcused = false

  constructor(number: number) {
    this.number = number
  }
}

/** One delivery of a message, as the process that got it knows it. */
export interface HeardDelivery {
  readonly token: QueueToken
  readonly item: QueueItem
  /** When its wait began, or began anew, as far as its process can know. */
  sinceMs: number
  /** A program has got it. */
  isGiven: boolean
  /** A handler, or the program, is at work on it. */
  isInHand: boolean
  /** Its process has asked for an end of it: it is acked, given back or terminated. */
  isAsked: boolean
  /** The number of the crash that its acknowledgement counts until, unless that is confirmed. */
  countedBefore: number | undefined
  /** Its program has asked for its end itself. */
  wish: "ack" | "nak" | "terminate" | undefined
}

/** The messages of one queue. */
export class QueueLedger {
  readonly #items = new Map<number, QueueItem>()

  item(number: number): QueueItem {
    let item = this.#items.get(number)
    if (item === undefined) {
      item = new QueueItem(number)
      this.#items.set(number, item)
    }
    return item
  }

  get items(): readonly QueueItem[] {
    return [...this.#items.values()]
  }
}
