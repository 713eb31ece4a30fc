import { type MillraceError, TimeoutError } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import type { LogConsumer } from "../consumer/log-consumer.ts"
import type { Handler } from "../handler/handler-context.ts"
import { placeText } from "../handler/handler-failure.ts"
import type { FeedLane, FeedUser, MessageFeed } from "../handler/message-feed.ts"
import { poisonOf } from "../handler/poison.ts"
import type { Lane } from "../partition/lane.ts"
import { Wakeup } from "../partition/wakeup.ts"
import { millraceError } from "../producer/sender.ts"
import type { BatchMessage } from "../record/message.ts"
import { TypedDecodeError } from "../typed/typed-decode-error.ts"
import { BatchAborts } from "./batch-aborts.ts"
import type { BatchSettler, SettleFailure } from "./batch-settler.ts"
import { type HandlingHost, MessageHandling } from "./message-handling.ts"
import { ProcessBatch } from "./process-batch.ts"
import type { ProcessSettings } from "./process-options.ts"
import type { OutputEncoder } from "./process-output.ts"
import type { ProcessorCounts } from "./processor.ts"
import { buryUnread, type UnreadBatch } from "./unread-batch.ts"

/** What a loop stands on. */
export interface LoopParts {
  readonly client: ClientContext
  readonly consumer: LogConsumer
  readonly settler: BatchSettler
  readonly outputs: OutputEncoder
  readonly handler: Handler
  readonly counts: ProcessorCounts
  /** A batch was not stored, and its messages come again. */
  readonly aborted: (error: MillraceError, messages: number) => void
}

/** Looking at the clock for every message would cost as much as the message. */
const messagesPerLook = 64

/**
 * Hands messages to a handler one after the other, gathers what they make, and stores a batch of that in one transaction while the next is
 * being gathered: at most one is on its way. What is aborted takes what was gathered behind it along; everything that is not stored is read
 * again, from the first such message of each partition.
 */
export class ProcessLoop implements FeedUser, HandlingHost {
  readonly #settings: ProcessSettings
  readonly #parts: LoopParts
  readonly #handling: MessageHandling
  readonly #aborts: BatchAborts
  readonly #wakeup = new Wakeup()
  readonly #over = Promise.withResolvers<void>()
  #feed: MessageFeed
  #batch = new ProcessBatch()
  /** On its way. */
  #settling: ProcessBatch | undefined
  #failed: SettleFailure | undefined
  #unread: UnreadBatch | undefined
  /** Partitions that are to be handed over once nothing of them is on its way. */
  readonly #drains = new Map<Lane, () => void>()
  #mustCut = false
  /** The batch has waited for long enough, and is to go as soon as the one before has. */
  #isOverdue = false
  #looks = 0
  #stopping = false
  /** Its time is over: what still comes counts for nothing. */
  #isGivenUp = false
  #isLeaving = false
  #failure: { readonly error: unknown } | undefined

  constructor(settings: ProcessSettings, parts: LoopParts) {
    this.#settings = settings
    this.#parts = parts
    this.#handling = new MessageHandling(settings, parts, this)
    this.#aborts = new BatchAborts(parts.client.random)
    this.#feed = parts.consumer.feed(this)
  }

  /** Settles when nothing runs any more. @throws what it ended with */
  async run(): Promise<void> {
    try {
      // A handler that does not return at the end is left to itself.
      await Promise.race([this.#loop(), this.#over.promise])
    } catch (error) {
      this.fail(error)
    } finally {
      for (const resolve of this.#drains.values()) resolve()
      this.#drains.clear()
      this.#over.resolve()
    }
    if (this.#failure !== undefined) throw this.#failure.error
  }

  /** Nothing more is begun; what was handled is stored. */
  stop(): void {
    this.#stopping = true
    this.#wakeup.wake()
  }

  /** The same, for a reason that the first to come tells. */
  fail(error: unknown): void {
    this.#failure ??= { error }
    this.stop()
  }

  // ---- for the handling of messages -----------------------------------------------------------------------

  get batch(): ProcessBatch {
    return this.#batch
  }

  get isStopping(): boolean {
    return this.#stopping
  }

  get isAborted(): boolean {
    return this.#failed !== undefined
  }

  overdue(): void {
    if (this.#failed !== undefined || this.#batch.isEmpty) return
    if (this.#settling === undefined) this.#settle()
    else this.#isOverdue = true
  }

  left(): void {
    this.#tellDrained()
  }

  hold(lane: Lane): void {
    this.#feed.hold(lane)
  }

  free(lane: Lane): void {
    this.#feed.free(lane)
  }

  shutdownCalled(): void {}

  // ---- told by the consumer -------------------------------------------------------------------------------

  ready(): void {
    this.#wakeup.wake()
  }

  dropped(feedLane: FeedLane): void {
    const lane = feedLane as Lane
    this.#batch.drop(lane)
    this.#handling.dropped(lane)
    if (this.#unread?.lane === lane) this.#unread = undefined
    this.#tellDrained()
    this.#wakeup.wake()
  }

  working(lane: FeedLane): boolean {
    return this.#isAtWork(lane as Lane)
  }

  draining(feedLane: FeedLane): Promise<void> | undefined {
    const lane = feedLane as Lane
    // Whoever reads it next gets the message again.
    this.#handling.draining(lane)
    if (this.#unread?.lane === lane) this.#unread = undefined
    if (!this.#isAtWork(lane)) return Promise.resolve()
    this.#mustCut = true
    // What was handled of it does not wait for a handler that is at work on something else.
    if (this.#handling.running !== undefined && this.#batch.has(lane)) this.overdue()
    this.#wakeup.wake()
    return new Promise((resolve) => this.#drains.set(lane, resolve))
  }

  /** Ends without the handler that runs, which waits for the end itself: its message is not done; what came before is stored. */
  async leave(): Promise<void> {
    this.stop()
    // By then it is known how far the handler that calls has come: whether it has answered already.
    await Promise.resolve()
    this.#handling.giveUp("it waits for the end of its own processor")
    this.#isLeaving = true
    this.overdue()
    this.#leaveWhenStored()
  }

  async ending(timeoutMs: number): Promise<void> {
    this.stop()
    const late = Promise.withResolvers<never>()
    const timer = this.#parts.client.clock.setTimer(timeoutMs, () => late.reject(this.#late(timeoutMs)))
    try {
      await Promise.race([this.#over.promise, late.promise])
    } catch (error) {
      this.fail(error)
      this.#handling.giveUp("the time that a running handler gets at the end is over")
      this.#parts.settler.giveUp(millraceError(error))
      this.#isGivenUp = true
      this.#over.resolve()
      throw error
    } finally {
      timer.cancel()
    }
  }

  // ---- the loop -------------------------------------------------------------------------------------------

  async #loop(): Promise<void> {
    for (;;) {
      await this.#gather()
      if (this.#isGivenUp) return
      if (this.#failed !== undefined) {
        await this.#startAgain(this.#failed)
        continue
      }
      if (this.#settling === undefined) {
        if (!this.#batch.isEmpty) {
          this.#settle()
          continue
        }
        if (this.#stopping) return
        if (this.#mustCut) {
          this.#mustCut = false
          // A handler that ran when its partition was to go may have failed, and left nothing.
          this.#tellDrained()
          continue
        }
        if (this.#unread !== undefined) {
          await this.#passUnread(this.#unread)
          continue
        }
      }
      // Who cannot take anything is not woken by what could be taken.
      await this.#sleep(this.#mayTake() ? this.#handling.dueMs : undefined)
    }
  }

  /** Until something changes, or the time has come. */
  async #sleep(untilMs: number | undefined): Promise<void> {
    const { clock } = this.#parts.client
    const leftMs = untilMs === undefined ? undefined : Math.max(0, untilMs - clock.monotonicMs())
    const timer = leftMs === undefined ? undefined : clock.setTimer(leftMs, () => this.#wakeup.wake())
    await this.#wakeup.sleep()
    timer?.cancel()
  }

  /** Handles messages until there are none, or the batch is to go. */
  async #gather(): Promise<void> {
    while (this.#mayTake()) {
      const retried = this.#handling.retry()
      if (retried !== undefined) {
        if (retried !== "done") await this.#slow(retried)
        continue
      }
      let message: BatchMessage | undefined
      try {
        message = this.#feed.take()
      } catch (error) {
        this.#takeFailed(error)
        continue
      }
      if (message === undefined) return
      // No promise for a handler that answers at once.
      const pending = this.#handling.take(message, this.#feed.lane as Lane)
      if (pending !== undefined) await this.#slow(pending)
    }
  }

  async #slow(pending: Promise<void>): Promise<void> {
    await pending
    this.#looks = messagesPerLook
  }

  #mayTake(): boolean {
    if (this.#stopping || this.#mustCut || this.#unread !== undefined || this.#failed !== undefined) return false
    const batch = this.#batch
    if (batch.isEmpty) return true
    const { batchLength, batchBytes, maxTransactionMs } = this.#settings
    if (batch.messages >= Math.min(batchLength, this.#aborts.mostMessages) || batch.bytes >= batchBytes) return false
    // While another one is on its way there is nothing to hurry for.
    if (this.#settling !== undefined || ++this.#looks < messagesPerLook) return true
    this.#looks = 0
    return this.#parts.client.clock.monotonicMs() - batch.startedMs < maxTransactionMs
  }

  // ---- what cannot be read --------------------------------------------------------------------------------

  #takeFailed(error: unknown): void {
    const { failed } = this.#feed
    const lane = this.#feed.lane as Lane | undefined
    const poison = lane === undefined ? undefined : poisonOf(error, lane)
    if (lane === undefined || poison === undefined) this.fail(error)
    else if (failed === undefined) this.#unread = { lane, error: poison }
    else {
      // A payload that decrypts and does not decode is as any handler would have seen it.
      const content = poison instanceof TypedDecodeError ? "message" : "stored"
      this.#handling.last(failed, lane, { attempts: 0, thrown: poison, error: poison, content })
    }
  }

  /** Everything before the batch that cannot be read is stored: now it is its turn. */
  async #passUnread(unread: UnreadBatch): Promise<void> {
    const { onFailure } = this.#settings
    const { lane, error } = unread
    const told = this.#handling.reported(error)
    this.#unread = undefined
    if (onFailure === "stop") this.fail(error)
    if (onFailure === "stop" || !told) return
    if (onFailure !== "skip") {
      this.#failed = await buryUnread(this.#parts, unread, this.#handling)
      if (this.#failed !== undefined) return
    } else this.#parts.counts.skipped++
    try {
      if (lane.live && !lane.draining) await this.#feed.skip(lane)
    } catch (failed) {
      if (lane.live && !lane.draining) this.fail(failed)
    }
  }

  // ---- batches --------------------------------------------------------------------------------------------

  /** Sends the batch on its way, and begins another one. */
  #settle(): void {
    const { consumer, settler } = this.#parts
    const batch = this.#batch
    this.#batch = new ProcessBatch()
    this.#isOverdue = false
    batch.offsets = consumer.transactHanded(batch.lanes, this.#handling.limitOf)
    this.#settling = batch
    void settler.settle(batch).then((failure) => this.#settled(batch, failure))
  }

  #settled(batch: ProcessBatch, failure: SettleFailure | undefined): void {
    const { counts, aborted } = this.#parts
    this.#settling = undefined
    if (failure === undefined) {
      this.#aborts.stored()
      counts.batches++
      counts.messages += batch.messages
      counts.outputs += batch.outputs.length
      counts.skipped += batch.skipped
      counts.deadLetters += batch.deadLetters
      if (this.#isOverdue) this.overdue()
    } else {
      this.#failed = this.#aborts.examined(failure, batch)
      counts.aborted++
      this.#handling.void("what came before it was not stored, and is read again")
      aborted(failure.error, batch.messages)
    }
    this.#tellDrained()
    this.#leaveWhenStored()
    this.#wakeup.wake()
  }

  #leaveWhenStored(): void {
    if (!this.#isLeaving || this.#settling !== undefined) return
    this.#isGivenUp = true
    this.#over.resolve()
  }

  /** Nothing of what was gathered counts: it is read again from the first message that is not stored. */
  async #startAgain({ error, mayPass, culprit }: SettleFailure): Promise<void> {
    this.#batch = new ProcessBatch()
    this.#isOverdue = false
    this.#unread = undefined
    this.#tellDrained()
    const { client, consumer } = this.#parts
    // A dead letter that cannot be stored is not the message's failure: there is nothing left to do with that.
    const message = culprit?.burial === undefined ? culprit?.message : undefined
    this.#handling.startAgain(message && culprit && { lane: culprit.lane, message, error })
    const waitMs = message === undefined ? this.#aborts.waitMs(mayPass) : 0
    if (waitMs === undefined) this.fail(error)
    else if (waitMs > 0) {
      const dueMs = client.clock.monotonicMs() + waitMs
      while (!this.#stopping && client.clock.monotonicMs() < dueMs) await this.#sleep(dueMs)
    }
    this.#failed = undefined
    if (!this.#stopping && !this.#feed.ended) {
      this.#feed.release()
      this.#feed = consumer.feed(this)
    }
    this.#tellDrained()
  }

  // ---- small parts ----------------------------------------------------------------------------------------

  #isAtWork(lane: Lane): boolean {
    return this.#batch.has(lane) || this.#settling?.has(lane) === true || this.#handling.running?.lane === lane
  }

  #tellDrained(): void {
    for (const [lane, resolve] of this.#drains) {
      if (this.#isAtWork(lane)) continue
      this.#drains.delete(lane)
      resolve()
    }
  }

  #late(timeoutMs: number): TimeoutError {
    const { running } = this.#handling
    const doing =
      running === undefined
        ? "a transaction had not ended"
        : `the handler was still at work on ${placeText({ ...running.lane.partition, offset: running.offset })}`
    const outcome = running === undefined ? "unknown" : "rejected"
    return new TimeoutError(`${this.#settings.what}: ${doing} ${timeoutMs} ms after its shutdown began`, { outcome })
  }
}
