import { ClosedError, DecodeError } from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import { callersContext, HandlerScope } from "../handler/handler-context.ts"
import { isThenable } from "../handler/observed.ts"
import { AckCount, type MessageHandling } from "./message-handling.ts"
import type { QueueHandler } from "./queue-consumer.ts"
import type { QueueIntake } from "./queue-intake.ts"
import type { QueuedMessage } from "./queue-message.ts"
import type { QueueTaker } from "./queue-taker.ts"

/** What a batch needs of its consumer. */
export interface BatchHost {
  readonly consumer: object
  readonly clock: Clock
  readonly taker: QueueTaker
  readonly intake: QueueIntake
  readonly handling: MessageHandling
  readonly batchTimeoutMs: number
  /** Under `all`: how long handled messages may go without an ack, in ms. */
  readonly ackEveryMs: number
  /** Batches that have messages. */
  readonly underWay: Set<BatchUnderWay>
}

/** A call that has messages. */
export interface BatchUnderWay {
  /** Nobody waits for its handler any more: it leaves no timer. */
  abandon(): void
}

type Results = PromiseSettledResult<unknown>[]

/** `processBatch`. @throws what comes before a first message; everything else is in the answer */
export async function handleBatch(
  host: BatchHost,
  batch: { readonly size: number; readonly handler: QueueHandler<unknown> },
): Promise<Results> {
  const results: Results = []
  let first: QueuedMessage | undefined
  try {
    first = await host.taker.next(undefined, batch.size)
  } catch (error) {
    // What does not decrypt has failed like one whose handler has.
    if (!(error instanceof DecodeError)) throw error
    results.push({ status: "rejected", reason: error })
  }
  if (first === undefined) return results
  const call = new BatchCall(host, batch, results)
  host.handling.begin()
  host.underWay.add(call)
  try {
    return await call.from(first)
  } finally {
    host.underWay.delete(call)
    host.handling.end()
  }
}

/** One call, behind its first message. */
class BatchCall implements BatchUnderWay {
  readonly #host: BatchHost
  readonly #size: number
  readonly #handler: QueueHandler<unknown>
  readonly #results: Results
  readonly #acks = new AckCount()
  /** Under `all`: those that were handled, of each partition, and not acknowledged, in the order of the log. */
  readonly #good = new Map<number, QueuedMessage[]>()
  readonly #ordered: boolean
  /** For more messages, behind the first that is to be handled. */
  #deadlineMs: number | undefined
  #ackedMs: number
  /** Acknowledges what is handled while a handler takes long. */
  #ackTimer: Timer | undefined
  #stopped = false
  #abandoned = false
  /** The message that is not handled yet, or was not. */
  #inHand: QueuedMessage | undefined

  constructor(
    host: BatchHost,
    batch: { readonly size: number; readonly handler: QueueHandler<unknown> },
    results: Results,
  ) {
    this.#host = host
    this.#size = batch.size
    this.#handler = batch.handler
    this.#results = results
    this.#ordered = host.handling.parts.ackPolicy === "all"
    this.#ackedMs = host.clock.monotonicMs()
  }

  abandon(): void {
    this.#abandoned = true
    this.#ackTimer?.cancel()
    this.#ackTimer = undefined
  }

  async from(first: QueuedMessage): Promise<Results> {
    const { handling } = this.#host
    const failed = await this.#handleAll(first)
    this.#acknowledgeGood()
    if (failed !== undefined) await handling.dealWith(failed.message, failed.thrown)
    const error = await this.#acks.answered()
    if (error !== undefined) this.#results.push({ status: "rejected", reason: error })
    return this.#results
  }

  /** @returns the one that failed, which is the last item already */
  async #handleAll(first: QueuedMessage): Promise<{ message: QueuedMessage; thrown: unknown } | undefined> {
    const { handling, intake, clock, consumer } = this.#host
    const stop = (): void => {
      this.#stopped = true
    }
    const place = { scope: new HandlerScope(callersContext()), owner: { consumer, stop, shutdownCalled: stop } }
    let startedMs = clock.monotonicMs()
    for (let message: QueuedMessage | undefined = first; message !== undefined; ) {
      if (!handling.isKnown(message)) {
        this.#inHand = message
        this.#deadlineMs ??= clock.monotonicMs() + this.#host.batchTimeoutMs
        try {
          const result = handling.call(message, this.#handler as never, place)
          const value = isThenable(result) ? await result : result
          this.#results.push({ status: "fulfilled", value })
        } catch (thrown) {
          this.#results.push({ status: "rejected", reason: thrown })
          return { message, thrown }
        }
        const nowMs = clock.monotonicMs()
        intake.prefetch.handled(1, nowMs - startedMs)
        startedMs = nowMs
        this.#inHand = undefined
        this.#handled(message, nowMs)
      }
      if (this.#results.length >= this.#size || this.#stopped) return undefined
      message = this.#takeNow()
      if (message === undefined && !this.#ended) {
        message = await this.#wait()
        startedMs = clock.monotonicMs()
      }
    }
    return undefined
  }

  #handled(message: QueuedMessage, nowMs: number): void {
    const { handling } = this.#host
    if (!this.#ordered) {
      this.#acks.expect()
      handling.succeeded(message, this.#acks)
      return
    }
    handling.mark(message)
    this.#keep(message)
    if (this.#abandoned) return
    // A batch may take longer than the wait of its first messages.
    if (nowMs - this.#ackedMs > this.#host.ackEveryMs) this.#acknowledgeGood()
    else this.#ackTimer ??= this.#host.clock.setTimer(this.#host.ackEveryMs, () => this.#acknowledgeGood())
  }

  #keep(message: QueuedMessage): void {
    const good = this.#good.get(message.partition)
    if (good === undefined) this.#good.set(message.partition, [message])
    else if ((good.at(-1) as QueuedMessage).offset < message.offset) good.push(message)
    else
      good.splice(
        good.findIndex(({ offset }) => offset > message.offset),
        0,
        message,
      )
  }

  /** One ack for each partition. What stands behind a message that is not handled goes back; the window has it when it comes again. */
  #acknowledgeGood(): void {
    const { clock, handling, intake } = this.#host
    this.#ackedMs = clock.monotonicMs()
    this.#ackTimer?.cancel()
    this.#ackTimer = undefined
    for (const [partition, good] of this.#good) {
      const unsettled = good.filter(({ verdict }) => verdict === undefined)
      const open = this.#inHand?.partition === partition ? this.#inHand.offset : undefined
      const waiting = intake.lowestOffset(partition)
      const end = open === undefined || (waiting !== undefined && waiting < open) ? waiting : open
      const covers = ({ offset }: QueuedMessage): boolean => end !== undefined && end < offset
      const last = unsettled.findLast((message) => !covers(message))
      for (const message of unsettled) if (covers(message)) intake.defer(message)
      if (last === undefined) continue
      this.#acks.expect()
      handling.acknowledge(last, this.#acks)
    }
    this.#good.clear()
  }

  get #ended(): boolean {
    return this.#results.at(-1)?.status === "rejected"
  }

  /** A failure that comes instead of a message ends the batch. */
  #takeNow(): QueuedMessage | undefined {
    try {
      return this.#host.taker.take()
    } catch (error) {
      this.#endWith(error)
      return undefined
    }
  }

  async #wait(): Promise<QueuedMessage | undefined> {
    try {
      return await this.#host.taker.next(this.#deadlineMs, this.#size - this.#results.length)
    } catch (error) {
      this.#endWith(error)
      return undefined
    }
  }

  /** Behind a shutdown the batch is what it is. */
  #endWith(error: unknown): void {
    if (!(error instanceof ClosedError)) this.#results.push({ status: "rejected", reason: error })
  }
}
