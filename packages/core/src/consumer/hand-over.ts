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
import { MillraceError } from "@millrace/contract"
import type { Lane, Slice } from "../partition/lane.ts"
import { LaneQueue } from "../partition/lane-queue.ts"
import type { Acknowledgement } from "../progress/commit-policy.ts"
import { BatchMessage, type MessageSource } from "../record/message.ts"
import { MessageBatch } from "../record/message-batch.ts"
import { Callers, takenError, type Waiter } from "./callers.ts"
import type { HandOverHost } from "./hand-over-host.ts"
import { type Handled, handledByLeaving, InHand } from "./in-hand.ts"

export class HandOver {
  readonly #host: HandOverHost
  readonly #pageLength: number
  readonly #counts: Acknowledgement["counts"]
  // The window. `#index` is the next record of it; closed when it has reached `#end`.
  #source: MessageSource | undefined
  #index = 0
  #end = 0
  #slice: Slice | undefined
  #lane: Lane | undefined
  readonly #queue = new LaneQueue()
  readonly #callers = new Callers()
  readonly #inHand: InHand
  #turns = 0
  #pageLeft: number
  #abandoned = false
  /** Told that there may be something to take; while it is set nobody else may take. */
  #feed: (() => void) | undefined
  #feedWaits = false

  constructor(host: HandOverHost, pageLength: number, { counts, letsGo }: Acknowledgement) {
    this.#host = host
    this.#pageLength = pageLength
    this.#counts = counts
    this.#inHand = new InHand((lane, count) => host.handled(lane, count), { letsGo })
    this.#pageLeft = pageLength
  }

  // ---- taking ---------------------------------------------------------------------------------------------

  /**
   * The next message, when one is there. The call says that everything handed out before is handled.
   * @throws What the consumer has to tell: a partition's error in its place, a failed store, the end of the membership.
   */
  take(): BatchMessage | undefined {
    if (this.#feed !== undefined) throw takenError()
    const index = this.#index
    if (index < this.#end) {
      this.#index = index + 1
      const message = this.#opened(new BatchMessage(this.#source as MessageSource, index))
      if (index + 1 === this.#end) this.#delivered()
      return message
    }
    return this.#ask() ? this.#advance() : undefined
  }

  /** The rest of what was read as one batch of a partition, at most a page; else as `take`. */
  takeBatch(): MessageBatch | undefined {
    if (this.#feed !== undefined) throw takenError()
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
    if (!this.#mayAdvance()) return undefined
    const lane = this.#nextLane()
    if (lane === undefined) return undefined
    this.#openWindow(lane, this.#pageLength)
    const from = this.#index
    try {
      const batch = new MessageBatch(this.#source as MessageSource, from, this.#end)
      // What cannot be decrypted comes in its place: the batch ends before it.
      this.#index = from + batch.count
      this.#close(this.#counts === "delivery" ? "everything" : "nothing")
      return batch
    } catch (error) {
      this.#index = from + 1
      this.#unreadable(error)
      throw error
    }
  }

  /** Queues a caller for whom there was nothing. The answer takes it out again, and is false when it was served. */
  wait(waiter: Waiter): () => boolean {
    const leave = this.#callers.wait(waiter)
    this.#host.waited()
    return leave
  }

  /** Whether somebody would take a message now. */
  get waiting(): boolean {
    return this.#callers.waiting || this.#feedWaits
  }

  /** Another number whenever something was asked for, or handed out before the last `settle`. */
  get turns(): number {
    return this.#turns
  }

  /** Whether something was handed out since the caller last asked, as of the last `settle`. */
  get inHand(): boolean {
    return this.#inHand.unasked
  }

  /** Whether a feed is open. */
  get feeding(): boolean {
    return this.#feed !== undefined
  }

  /** Serves waiting callers, in order, as far as it goes. To be called whenever something has changed. */
  serve(): void {
    if (this.#feedWaits) this.#feed?.()
    this.#callers.serve()
  }

  // ---- a feed ---------------------------------------------------------------------------------------------

  /**
   * From now on only `takeForFeed` takes, and only what it says is handled counts.
   * @param ready Called when there may be something after `takeForFeed` had nothing, and at the end.
   * @returns the partitions of which something was handed out before and is not handled: they have to be read again from there
   * @throws InvalidError when somebody waits for a message, or another feed is open.
   */
  openFeed(ready: () => void): readonly Lane[] {
    if (this.#feed !== undefined || this.#callers.waiting) throw takenError()
    this.acknowledge()
    this.#feed = ready
    return [...this.#inHand.lanes]
  }

  /** The next message of any partition that is not held, and its partition in `takenLane`. */
  takeForFeed(): BatchMessage | undefined {
    this.#feedWaits = false
    this.undecrypted = undefined
    const index = this.#index
    if (index < this.#end) {
      this.#index = index + 1
      this.takenLane = this.#lane
      return this.#opened(new BatchMessage(this.#source as MessageSource, index))
    }
    this.settle()
    this.takenLane = undefined
    const message = this.#advance()
    if (message !== undefined || this.#callers.ended) return message
    // Everything is handled, and nothing more is there: the page is over.
    if (this.#pageLeft < this.#pageLength && this.#inHand.lanes.length === 0) this.#startPage()
    this.#feedWaits = true
    this.#host.waited()
    return undefined
  }

  /** The partition of what `takeForFeed` answered, or failed with; absent when the failure is no partition's own. */
  takenLane: Lane | undefined
  /** The record that `takeForFeed` could not decrypt, as it is stored. */
  undecrypted: BatchMessage | undefined

  /** Ends the feed. @returns the partitions with messages that it took and did not handle: they have to be read again from there. */
  closeFeed(): readonly Lane[] {
    this.settle()
    this.#inHand.asked()
    this.#feed = undefined
    this.#feedWaits = false
    this.takenLane = undefined
    this.undecrypted = undefined
    return [...this.#inHand.lanes]
  }

  /** What is handed out of the partition and not handled counts no more: its progress stays where it is handled without a gap. */
  forgetOpen(lane: Lane): void {
    this.settle()
    lane.handedNext = lane.ranges.prefix
    this.#inHand.forget(lane)
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

  /** Everything of the partition before `next` is handled. */
  handledThrough(lane: Lane, next: bigint): void {
    this.#inHand.through(lane, next)
  }

  /** One message of the partition is handled. */
  handledOne(lane: Lane, offset: bigint): void {
    this.#inHand.one(lane, offset)
  }

  /** Progress behind everything of the partition that was read becomes `next`. */
  extend(lane: Lane, next: bigint): void {
    this.settle()
    if (!lane.extend(next)) this.#inHand.passed(lane, next)
  }

  /** Settles once nothing of the partition is handed out and unhandled; where only commits count, once the caller asks for more. */
  whenClear(lane: Lane): Promise<void> {
    this.settle()
    return this.#inHand.whenClear(lane)
  }

  // ---- what happens to partitions and callers -------------------------------------------------------------

  /** The partition has something to hand out. */
  offer(lane: Lane): void {
    if (lane !== this.#lane) this.#queue.offer(lane)
  }

  /** Throws away what was read of a partition and not handed out. With `open` also what is not handled yet. */
  drop(lane: Lane, { open }: { readonly open: boolean }): void {
    this.settle()
    for (const slice of lane.clear()) this.#host.finished(slice)
    this.#queue.remove(lane)
    if (!open) return
    this.#inHand.forget(lane)
  }

  /** The next caller gets this failure. */
  fail(error: unknown): void {
    this.#callers.fail(error)
    this.settle()
    this.serve()
  }

  /** Every caller gets this failure from now on. */
  failForGood(error: unknown): void {
    this.#callers.failForGood(error)
    this.settle()
    this.serve()
  }

  /** Whether a failure waits for a caller. */
  get failing(): boolean {
    return this.#callers.failing
  }

  /** Whether the consumer was shut down. */
  get ended(): boolean {
    return this.#callers.ended
  }

  /** The loop that read was left early: whether its last message was handled is not known, so that it is not until the next read. */
  abandon(): void {
    this.settle()
    this.#abandoned = true
  }

  /** Nothing is handed out any more. @param last Whether the last message counts as handled, unless its loop was left early. */
  end({ last }: { readonly last: boolean }): void {
    this.settle()
    if (last && !this.#abandoned && this.#feed === undefined) this.#acknowledge()
    this.#callers.ended = true
    this.serve()
    this.#feed?.()
  }

  /** Writes the window back to its partition: its last message is open, those before are handled where asking counts. */
  settle(): void {
    this.#close(this.#feed === undefined ? handledByLeaving(this.#counts) : "nothing")
  }

  // ---- inside ---------------------------------------------------------------------------------------------

  /** What every call of a caller begins with. @returns whether it may be served now: those who wait come first */
  #ask(): boolean {
    this.acknowledge()
    if (this.#queue.empty) this.#startPage()
    return !this.#callers.waiting
  }

  /** Ends the window. @param handled What of it is handled by that: everything, everything but the last message, nothing. */
  #close(handled: Handled): void {
    const lane = this.#lane
    const slice = this.#slice
    if (lane === undefined || slice === undefined) return
    const index = this.#index
    this.#lane = undefined
    this.#slice = undefined
    this.#source = undefined
    this.#end = 0
    this.#index = 0
    this.#pageLeft -= index - slice.index
    this.#turns++
    this.#inHand.took(slice, index, handled)
    if (index === slice.count) {
      lane.shift()
      this.#host.finished(slice)
    }
    this.offer(lane)
  }

  #acknowledge(): void {
    if (this.#feed !== undefined) return
    if (this.#counts === "asking") this.#inHand.all()
    this.#inHand.asked()
  }

  #startPage(): void {
    this.#pageLeft = this.#pageLength
    this.#host.pollStarted(this.#inHand.lanes)
  }

  #advance(): BatchMessage | undefined {
    if (!this.#mayAdvance()) return undefined
    const lane = this.#nextLane()
    if (lane === undefined) return undefined
    this.#openWindow(lane, this.#host.window)
    const message = this.#opened(new BatchMessage(this.#source as MessageSource, this.#index++))
    if (this.#index === this.#end) this.#delivered()
    return message
  }

  /** The window's last message was handed out. Where that counts the policy hears of it now: nobody may ask again for long. */
  #delivered(): void {
    if (this.#counts === "delivery") this.settle()
  }

  #mayAdvance(): boolean {
    this.#callers.assertNone()
    if (this.#callers.ended) return false
    if (this.#pageLeft <= 0) this.#startPage()
    return !this.#host.held
  }

  /** The next partition with a message. @throws the error of one, in its place */
  #nextLane(): Lane | undefined {
    for (let lane = this.#queue.take(); lane !== undefined; lane = this.#queue.take()) {
      if (lane.slice !== undefined) return lane
      const error = lane.error
      if (error === undefined) continue
      lane.error = undefined
      lane.told = error
      this.takenLane = lane
      this.#host.errorTaken(lane, error)
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

  #opened(message: BatchMessage): BatchMessage {
    try {
      return message.open()
    } catch (error) {
      if (this.#feed !== undefined) this.undecrypted = message
      this.#unreadable(error)
      throw error
    }
  }

  /**
   * The window's last record was handed out as an error, because it cannot be decrypted. Like a message it is not handled before more is
   * asked for, and unlike one it is not handled by its delivery or a shutdown either: nobody has seen it.
   */
  #unreadable(error: unknown): void {
    if (this.#lane !== undefined && error instanceof MillraceError) this.#lane.told = error
    this.#close(this.#feed !== undefined || this.#counts === "marks" ? "nothing" : "butLast")
    this.#abandoned = true
  }
}
