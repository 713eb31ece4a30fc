import type { FeedLane, FeedUser, MessageFeed } from "../handler/message-feed.ts"
import type { Lane } from "../partition/lane.ts"
import type { BatchMessage } from "../record/message.ts"
import type { HandOver } from "./hand-over.ts"

/** What the consumer does for a feed. */
interface FeedHost {
  /** What of these partitions is not handled comes again, from the first such message; of one that is handed over it counts no more. */
  rewind(lanes: readonly Lane[]): void
  skip(lane: Lane): Promise<void>
  /** Nobody has to be told any more. */
  released(): void
}

/**
 * A consumer's messages for somebody who says of each one when it is handled, in any order: the handler runner, the group reader. Progress
 * is the handled prefix of each partition. While a feed is open nobody else can take messages.
 */
export class HandlerFeed implements MessageFeed {
  readonly #handOver: HandOver
  readonly #host: FeedHost
  #open = true

  /** @throws InvalidError when another feed is open, or somebody waits for a message */
  constructor(handOver: HandOver, host: FeedHost, user: Pick<FeedUser, "ready">) {
    this.#handOver = handOver
    this.#host = host
    host.rewind(handOver.openFeed(() => user.ready()))
  }

  take(): BatchMessage | undefined {
    return this.#handOver.takeForFeed()
  }

  get lane(): Lane | undefined {
    return this.#handOver.takenLane
  }

  get failed(): BatchMessage | undefined {
    return this.#handOver.undecrypted
  }

  get ended(): boolean {
    return this.#handOver.ended
  }

  hold(lane: FeedLane): void {
    const held = lane as Lane
    held.held = true
    this.#handOver.hold(held)
  }

  free(lane: FeedLane): void {
    const held = lane as Lane
    if (!held.held) return
    held.held = false
    this.#handOver.offer(held)
  }

  handled(lane: FeedLane, offset: bigint): void {
    if (lane.live) this.#handOver.handledOne(lane as Lane, offset)
  }

  skip(lane: FeedLane): Promise<void> {
    return this.#host.skip(lane as Lane)
  }

  release(): void {
    if (!this.#open) return
    this.#open = false
    const open = this.#handOver.closeFeed()
    this.#host.released()
    if (!this.#handOver.ended) this.#host.rewind(open)
  }
}
