/**
 * Hands messages to the caller one by one, or in batches: a fair merge of the partitions, in pages of `batchLength`, that keeps track
 * of what was handed out and what of it is handled.
 *
 * The hot path is a window: a run of records of one batch, of which `take` takes one after the other. Everything else (the next
 * partition, the next page, waiting callers, failures) happens between two windows.
 *
 * What counts as handled is the policy's (`Acknowledgement.counts`): what was handed out before the caller asked for more, what was
 * handed out at all, or only what `handledOne` and `handledThrough` say. While a feed is open it is always the last.
 */
import { DecodeError, MillraceError } from "@millrace/contract"
import type { Lane, Slice } from "../partition/lane.ts"
import { LaneQueue } from "../partition/lane-queue.ts"
import type { Acknowledgement } from "../progress/commit-policy.ts"
import type { BatchMessage, MessageSource } from "../record/message.ts"
import { MessageBatch } from "../record/message-batch.ts"
import { messageOf } from "../typed/decoded-message.ts"
import { takenError } from "./callers.ts"
import { HandOverBook } from "./hand-over-book.ts"
import type { HandOverHost } from "./hand-over-host.ts"
import { type Handled, handledByLeaving } from "./in-hand.ts"

export class HandOver extends HandOverBook {
  readonly #pageLength: number
  readonly #counts: Acknowledgement["counts"]
  // The window. `#index` is the next record of it; closed when it has reached `#end`.
  #source: MessageSource | undefined
  #index = 0
  #end = 0
  #slice: Slice | undefined
  #lane: Lane | undefined
  readonly #queue = new LaneQueue()
  #turns = 0
  #pageLeft: number
  #abandoned = false

  constructor(host: HandOverHost, pageLength: number, { counts, letsGo }: Acknowledgement) {
    super(host, { letsGo })
    this.#pageLength = pageLength
    this.#counts = counts
    this.#pageLeft = pageLength
  }

  // ---- taking ---------------------------------------------------------------------------------------------

  /**
   * The next message, when one is there. The call says that everything handed out before is handled.
   * @throws What the consumer has to tell: a partition's error in its place, a failed store, the end of the membership.
   */
  take(): BatchMessage | undefined {
    if (this.feed !== undefined) throw takenError()
    if (this.#index < this.#end) {
      const message = this.#openNext()
      if (message === undefined) return this.#advance()
      if (this.#index === this.#end) this.#delivered()
      return message
    }
    return this.#ask() ? this.#advance() : undefined
  }

  /** The rest of what was read as one batch of a partition, at most a page; else as `take`. */
  takeBatch(): MessageBatch | undefined {
    if (this.feed !== undefined) throw takenError()
    return this.#ask() ? this.pullBatch() : undefined
  }

  /** What a waiting caller gets: a message, without asking anew. */
  pull(): BatchMessage | undefined {
    const message = this.#advance()
    if (message !== undefined) this.settle()
    return message
  }

  /** The same with a batch, which is a page of its own. */
  pullBatch(): MessageBatch | undefined {
    if (this.#pageLeft < this.#pageLength) this.#startPage()
    for (;;) {
      if (!this.#mayAdvance()) return undefined
      const lane = this.#nextLane()
      if (lane === undefined) return undefined
      this.#openWindow(lane, this.#pageLength)
      if (this.#passedDealtWith(lane)) continue
      const batch = this.#openedBatch(this.#source as MessageSource)
      if (batch !== undefined) return batch
    }
  }

  /** Another number whenever something was asked for, or handed out before the last `settle`. */
  get turns(): number {
    return this.#turns
  }

  // ---- a feed ---------------------------------------------------------------------------------------------

  /**
   * From now on only `takeForFeed` takes, and only what it says is handled counts.
   * @param ready Called when there may be something after `takeForFeed` had nothing, and at the end.
   * @returns the partitions of which something was handed out before and is not handled: they have to be read again from there
   * @throws InvalidError when somebody waits for a message, or another feed is open.
   */
  openFeed(ready: () => void): readonly Lane[] {
    if (this.feed !== undefined || this.callers.waiting) throw takenError()
    this.acknowledge()
    this.feed = ready
    return [...this.hands.lanes]
  }

  /** The next message of any partition that is not held, and its partition in `takenLane`. */
  takeForFeed(): BatchMessage | undefined {
    this.feedWaits = false
    this.undecrypted = undefined
    if (this.#index < this.#end) {
      this.takenLane = this.#lane
      const message = this.#openNext()
      if (message !== undefined) return message
    }
    this.settle()
    this.takenLane = undefined
    const message = this.#advance()
    if (message !== undefined || this.callers.ended) return message
    // Everything is handled, and nothing more is there: the page is over.
    if (this.#pageLeft < this.#pageLength && this.hands.lanes.length === 0) this.#startPage()
    this.feedWaits = true
    this.host.waited()
    return undefined
  }

  /** The partition of what `takeForFeed` answered, or failed with; absent when the failure is no partition's own. */
  takenLane: Lane | undefined
  /** The record that `takeForFeed` could not decrypt or decode. */
  undecrypted: BatchMessage | undefined

  /** Ends the feed. @returns the partitions with messages that it took and did not handle: they have to be read again from there. */
  closeFeed(): readonly Lane[] {
    this.settle()
    this.hands.asked()
    this.feed = undefined
    this.feedWaits = false
    this.takenLane = undefined
    this.undecrypted = undefined
    return [...this.hands.lanes]
  }

  /** What is handed out of the partition and not handled counts no more: its progress stays where it is handled without a gap. */
  forgetOpen(lane: Lane): void {
    this.settle()
    lane.handedNext = lane.ranges.prefix
    this.hands.forget(lane)
  }

  /** No message of the partition is taken until `free`: because it is paused, or its last one is still being handled. */
  hold(lane: Lane): void {
    if (lane === this.#lane) this.settle()
    this.#queue.remove(lane)
  }

  // ---- what is handled ------------------------------------------------------------------------------------

  /** Everything that was handed out is handled, where asking counts: the caller asks for more. */
  acknowledge(): void {
    this.#turns++
    this.settle()
    this.#abandoned = false
    this.#acknowledge()
  }

  /** Progress behind everything of the partition that was read becomes `next`. */
  extend(lane: Lane, next: bigint): void {
    this.settle()
    if (!lane.extend(next)) this.hands.passed(lane, next)
  }

  // ---- what happens to partitions and callers -------------------------------------------------------------

  /** The partition has something to hand out. */
  offer(lane: Lane): void {
    if (lane !== this.#lane) this.#queue.offer(lane)
  }

  /** Throws away what was read of a partition and not handed out. With `open` also what is not handled yet. */
  drop(lane: Lane, { open }: { readonly open: boolean }): void {
    this.settle()
    for (const slice of lane.clear()) this.host.finished(slice)
    this.#queue.remove(lane)
    if (!open) return
    this.hands.forget(lane)
  }

  /** The loop that read was left early: whether its last message was handled is not known, so that it is not until the next read. */
  abandon(): void {
    this.settle()
    this.#abandoned = true
  }

  /** Nothing is handed out any more. @param last Whether the last message counts as handled, unless its loop was left early. */
  end({ last }: { readonly last: boolean }): void {
    this.settle()
    if (last && !this.#abandoned && this.feed === undefined) this.#acknowledge()
    this.callers.ended = true
    this.serve()
    this.feed?.()
  }

  /** Writes the window back to its partition: its last message is open, those before are handled where asking counts. */
  override settle(): void {
    this.#close(this.feed === undefined ? handledByLeaving(this.#counts) : "nothing")
  }

  // ---- inside ---------------------------------------------------------------------------------------------

  /** What every call of a caller begins with. @returns whether it may be served now: those who wait come first */
  #ask(): boolean {
    this.acknowledge()
    if (this.#queue.empty) this.#startPage()
    return !this.callers.waiting
  }

  /** Ends the window. @param handled What of it is handled by that: everything, everything but the last message, nothing. */
  #close(handled: Handled): void {
    const lane = this.#lane
    const slice = this.#slice
    if (lane === undefined || slice === undefined) return
    const index = this.#index
    this.#reset()
    if (index === slice.index) {
      // Its first message is being decoded.
      this.offer(lane)
      return
    }
    this.#pageLeft -= index - slice.index
    this.#turns++
    this.hands.took(slice, index, handled)
    if (index === slice.count) {
      lane.shift()
      this.host.finished(slice)
    }
    this.offer(lane)
  }

  #reset(): void {
    this.#lane = undefined
    this.#slice = undefined
    this.#source = undefined
    this.#end = 0
    this.#index = 0
  }

  #acknowledge(): void {
    if (this.feed !== undefined) return
    if (this.#counts === "asking") this.hands.all()
    this.hands.asked()
  }

  #startPage(): void {
    this.#pageLeft = this.#pageLength
    this.host.pollStarted(this.hands.lanes)
  }

  /** Goes past records that nobody gets, as many as the host lets go at once. */
  #advance(): BatchMessage | undefined {
    for (;;) {
      if (!this.#mayAdvance()) return undefined
      const lane = this.#nextLane()
      if (lane === undefined) return undefined
      this.#openWindow(lane, this.host.window)
      if (this.#passedDealtWith(lane)) continue
      const message = this.#openNext()
      if (message === undefined) continue
      if (this.#index === this.#end) this.#delivered()
      return message
    }
  }

  /** The window's last message was handed out. Where that counts the policy hears of it now: nobody may ask again for long. */
  #delivered(): void {
    if (this.#counts === "delivery") this.settle()
  }

  #mayAdvance(): boolean {
    this.callers.assertNone()
    if (this.callers.ended) return false
    if (this.#pageLeft <= 0) this.#startPage()
    return !this.host.held
  }

  /** The next partition with a message. @throws the error of one, in its place */
  #nextLane(): Lane | undefined {
    for (let lane = this.#queue.take(); lane !== undefined; lane = this.#queue.take()) {
      if (lane.slice !== undefined) {
        if (this.host.prepared(lane, lane.slice)) return lane
        continue
      }
      const error = lane.error
      if (error === undefined) continue
      lane.error = undefined
      lane.told = error
      this.takenLane = lane
      this.host.errorTaken(lane, error)
      throw error
    }
    return undefined
  }

  #openWindow(lane: Lane, length: number): void {
    const slice = lane.slice as Slice
    this.#lane = lane
    this.takenLane = lane
    this.#slice = slice
    this.#source = slice.source
    this.#index = slice.index
    this.#end = Math.min(slice.count, slice.index + Math.min(this.#pageLeft, length))
  }

  /**
   * The window's next message, decrypted and decoded; `undefined` when nobody gets it. A codec may call back in: it is handed out only
   * after that, and not at all where the consumer has been ended or moved by it.
   * @throws why it cannot be read, where that is for the caller to know
   */
  #openNext(): BatchMessage | undefined {
    const slice = this.#slice
    const index = this.#index
    const message = messageOf(this.#source as MessageSource, index)
    try {
      message.open()
    } catch (error) {
      if (this.#slice !== slice || this.#index !== index) return undefined
      this.#index = index + 1
      if (this.#dealtWith(message, error)) return undefined
      if (this.feed !== undefined) this.undecrypted = message
      this.#unreadable(error)
      throw error
    }
    if (this.#slice !== slice || this.#index !== index) return undefined
    this.#index = index + 1
    return message
  }

  /** The window as a batch. What cannot be decrypted or decoded comes in its place: the batch ends before it. Else as `#openNext`. */
  #openedBatch(source: MessageSource): MessageBatch | undefined {
    const slice = this.#slice
    const from = this.#index
    let batch: MessageBatch
    try {
      batch = new MessageBatch(source, from, this.#end)
    } catch (error) {
      if (this.#slice !== slice) return undefined
      this.#index = from + 1
      if (this.#dealtWith(messageOf(source, from), error)) return undefined
      this.#unreadable(error)
      throw error
    }
    if (this.#slice !== slice) return undefined
    this.#index = from + batch.count
    this.#close(this.#counts === "delivery" ? "everything" : "nothing")
    return batch
  }

  /** Whether the window's last record is one that nobody gets, since it cannot be decrypted or decoded and the consumer deals with it. */
  #dealtWith(message: BatchMessage, error: unknown): boolean {
    const lane = this.#lane
    if (lane === undefined || !(error instanceof DecodeError)) return false
    const fate = this.host.fateOf(lane, message, error)
    if (fate === "told") return false
    if (fate === "later") {
      this.#index--
      this.#closeBefore()
      this.host.deal(lane, message, error)
      this.#queue.remove(lane)
      return true
    }
    this.#passOver(lane, message, error)
    return true
  }

  /** Whether the window begins with a record about which everything was done: it is passed over, and nobody decodes it again. */
  #passedDealtWith(lane: Lane): boolean {
    const { dealtWith } = lane
    const source = this.#source as MessageSource
    if (dealtWith === undefined || source.batch.offset(this.#index) !== dealtWith) return false
    lane.dealtWith = undefined
    this.#passOver(lane, messageOf(source, this.#index++), undefined)
    return true
  }

  /** The window's last record counts as handled, and nobody gets it. @param error Absent when it was dealt with before. */
  #passOver(lane: Lane, message: BatchMessage, error: DecodeError | undefined): void {
    this.#close(this.feed === undefined ? handledByLeaving(this.#counts) : "nothing")
    this.handledOne(lane, message.position.offset)
    // Whoever gets the next message has nothing of this one in hands.
    if (this.feed === undefined) this.hands.asked()
    this.host.passedOver(lane, message, error)
  }

  /** Ends the window before a record that has to wait. What was handed out of it is handled, where asking counts: this is an ask. */
  #closeBefore(): void {
    const slice = this.#slice as Slice
    if (this.#index > slice.index) this.#close(this.feed === undefined ? handledByLeaving(this.#counts) : "nothing")
    else this.#reset()
    this.#acknowledge()
  }

  /**
   * The window's last record was handed out as an error, because it cannot be decrypted or decoded. Like a message it is not handled before more is
   * asked for, and unlike one it is not handled by its delivery or a shutdown either: nobody has seen it.
   */
  #unreadable(error: unknown): void {
    if (this.#lane !== undefined && error instanceof MillraceError) this.#lane.told = error
    this.#close(this.feed !== undefined || this.#counts === "marks" ? "nothing" : "butLast")
    this.#abandoned = true
  }
}
