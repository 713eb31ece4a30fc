import type { Lane } from "../partition/lane.ts"
import { Callers, type Waiter } from "./callers.ts"
import type { HandOverHost } from "./hand-over-host.ts"
import { InHand } from "./in-hand.ts"

/** What a hand-over keeps account of: who waits, what is handed out and not handled, and whether a feed has the messages. */
export abstract class HandOverBook {
  protected readonly host: HandOverHost
  protected readonly callers: Callers = new Callers()
  protected readonly hands: InHand
  /** Told that there may be something to take; while it is set nobody else may take. */
  protected feed: (() => void) | undefined = undefined
  protected feedWaits = false

  protected constructor(host: HandOverHost, { letsGo }: { readonly letsGo: boolean }) {
    this.host = host
    this.hands = new InHand((lane, count) => host.handled(lane, count), { letsGo })
  }

  /** Writes back how far messages were handed out. */
  abstract settle(): void

  /** Queues a caller for whom there was nothing. The answer takes it out again, and is false when it was served. */
  wait(waiter: Waiter): () => boolean {
    const leave = this.callers.wait(waiter)
    this.host.waited()
    return leave
  }

  /** Whether somebody would take a message now. */
  get waiting(): boolean {
    return this.callers.waiting || this.feedWaits
  }

  /** Whether something was handed out since the caller last asked, as of the last `settle`. */
  get inHand(): boolean {
    return this.hands.unasked
  }

  /** Whether a feed is open. */
  get feeding(): boolean {
    return this.feed !== undefined
  }

  /** Serves waiting callers, in order, as far as it goes. To be called whenever something has changed. */
  serve(): void {
    if (this.feedWaits) this.feed?.()
    this.callers.serve()
  }

  /** Everything of the partition before `next` is handled. */
  handledThrough(lane: Lane, next: bigint): void {
    this.hands.through(lane, next)
  }

  /** One message of the partition is handled. */
  handledOne(lane: Lane, offset: bigint): void {
    this.hands.one(lane, offset)
  }

  /** Settles once nothing of the partition is handed out and unhandled; where only commits count, once the caller asks for more. */
  whenClear(lane: Lane): Promise<void> {
    this.settle()
    return this.hands.whenClear(lane)
  }

  /** The next caller gets this failure. */
  fail(error: unknown): void {
    this.callers.fail(error)
    this.settle()
    this.serve()
  }

  /** Every caller gets this failure from now on. */
  failForGood(error: unknown): void {
    this.callers.failForGood(error)
    this.settle()
    this.serve()
  }

  /** Whether a failure waits for a caller. */
  get failing(): boolean {
    return this.callers.failing
  }

  /** Whether the consumer was shut down. */
  get ended(): boolean {
    return this.callers.ended
  }
}
