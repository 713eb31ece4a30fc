/** How much a lane may have asked for and not handed over yet: what came and waits here, and what may still come. Pure. */
import type { PullRequest } from "./reader-consumer.ts"

/** A lane asks for at least so many bytes at once, however many partitions share a reader's. */
const leastBytes = 16 * 1024

/** A lane asks for at least so many messages at once, if it may have them, whatever the size of those that came before. */
const leastRecords = 100

/** How much the last message counts in the mean size: one part of so many. */
const meanOf = 16

/** So many messages more than asked for are borne: a pull that was taken for ended may still deliver. */
const unaskedRecords = 1_000

export interface Share {
  readonly records: number
  readonly bytes: number
}

/** A lane's part of what `next` may answer. Bytes are shared; records are not, so that one busy partition among idle ones is not slowed. */
export function shareOf(limits: { readonly maxRecords: number; readonly maxBytes: number }, lanes: number): Share {
  return {
    records: Math.max(1, limits.maxRecords),
    bytes: Math.max(leastBytes, Math.floor(limits.maxBytes / Math.max(1, lanes))),
  }
}

/** The account of one lane. */
export class ReaderBudget {
  #share: Share = { records: 1, bytes: leastBytes }
  #largest = 1
  #waitingRecords = 0
  #waitingBytes = 0
  #askedRecords = 0
  #askedBytes = 0
  /** The size of a message, as of those that came lately; 0 before the first. */
  #meanBytes = 0
  /** Messages that came since a pull last ended for want of bytes. */
  #served = 0
  /** The next message does not fit into the bytes of any pull: it is asked for alone, without a limit. */
  #alone = false

  set share(share: Share) {
    this.#share = share
    this.#largest = Math.max(this.#largest, share.records)
  }

  /** Far more came than was ever asked for: whoever sends it does not keep to the protocol. */
  get excessive(): boolean {
    return this.#waitingRecords > 2 * this.#largest + unaskedRecords
  }

  /** Whether a message or a status is due from the server. */
  get asked(): boolean {
    return this.#askedRecords > 0
  }

  /** Nothing more may come before something is handed over. */
  get full(): boolean {
    return this.#askedRecords === 0 && this.request() === undefined
  }

  /**
   * What is to be pulled now, if it is time: when half of the share is used up, so that requests stay few and the server busy. No more
   * messages are asked for than the bytes will hold: those that a pull cannot deliver would keep the next one back until it has ended.
   */
  request(): PullRequest | undefined {
    const records = this.#share.records - this.#waitingRecords - this.#askedRecords
    if (this.#alone)
      return this.#waitingRecords + this.#askedRecords === 0 ? { messages: 1, bytes: undefined } : undefined
    const bytes = this.#share.bytes - this.#waitingBytes - this.#askedBytes
    if (records * 2 < this.#share.records || bytes * 2 < this.#share.bytes) return undefined
    const fitting = this.#meanBytes === 0 ? records : Math.max(leastRecords, Math.ceil(bytes / this.#meanBytes))
    return { messages: Math.min(records, fitting), bytes }
  }

  pulled({ messages, bytes }: PullRequest): void {
    this.#alone = false
    this.#askedRecords += messages
    this.#askedBytes += bytes ?? 0
  }

  /** A message came. What a pull leaves of its bytes when its messages are used up counts as used by them. */
  arrived(bytes: number): void {
    this.#waitingRecords++
    this.#waitingBytes += bytes
    this.#served++
    this.#meanBytes += this.#meanBytes === 0 ? bytes : (bytes - this.#meanBytes) / meanOf
    const used = Math.max(bytes, Math.ceil(this.#askedBytes / this.#askedRecords))
    if (--this.#askedRecords <= 0) this.#nothingAsked()
    else this.#askedBytes = Math.max(0, this.#askedBytes - used)
  }

  /** A pull ended with so much unserved; where the server does not say how much, nothing is open any more. */
  ended(messages: number | undefined, bytes: number | undefined): void {
    this.#askedRecords -= messages ?? this.#askedRecords
    this.#askedBytes = Math.max(0, this.#askedBytes - (bytes ?? 0))
    if (this.#askedRecords <= 0) this.#nothingAsked()
  }

  /** A pull ended because the next message is above what it had left of its bytes. */
  tooLarge(): void {
    this.#alone = this.#served === 0
    this.#served = 0
  }

  /** Whatever was asked for does not come. */
  lost(): void {
    this.#nothingAsked()
    this.#alone = false
  }

  /** Messages that waited here are gone: handed over, or dropped. */
  left(records: number, bytes: number): void {
    this.#waitingRecords -= records
    this.#waitingBytes -= bytes
  }

  #nothingAsked(): void {
    this.#askedRecords = 0
    this.#askedBytes = 0
  }
}
