/** A feed of messages in memory, with partitions that can be held, paused, drained and lost, and what was told of each message. */
import { type Headers, MillraceError, NotAssignedError } from "@millrace/contract"
import { FakeBatch, type FakeRecord } from "../consumer/fake-log.test-support.ts"
import { HandledRanges } from "../partition/handled-ranges.ts"
import { BatchMessage } from "../record/message.ts"
import type { FeedLane, FeedUser, MessageFeed } from "./message-feed.ts"

const utf8 = new TextEncoder()

/** A partition, with what is left of it to take. */
export class FakeLane implements FeedLane {
  readonly partition: { readonly stream: string; readonly topic: string; readonly partition: number }
  readonly lineage = "a"
  live = true
  draining = false
  paused = false
  held = false
  /** Messages, or an error in the place of one. */
  left: (BatchMessage | MillraceError)[] = []
  /** The error of a batch that was shown: nothing behind it comes before it is skipped. */
  damage: MillraceError | undefined
  /** The end of what was put. */
  end = 0n
  readonly handled: HandledRanges = new HandledRanges()
  /** Offsets that were told to be handled, in order. */
  readonly told: bigint[] = []

  constructor(partition: number) {
    this.partition = { stream: "s", topic: "t", partition }
  }

  put(record: FakeRecord): BatchMessage {
    const batch = new FakeBatch(this.end, [record])
    const message = new BatchMessage(
      { batch, ...this.partition, lineage: "a", claim: undefined, end: this.end + 1n },
      0,
    )
    this.left.push(message)
    this.end++
    return message
  }
}

/** What a test puts into a feed. */
export interface FakeMessage {
  readonly key?: string
  readonly text?: string
  readonly headers?: Headers
}

export class FakeFeed implements MessageFeed {
  readonly lanes: FakeLane[]
  lane: FakeLane | undefined
  failed: BatchMessage | undefined
  ended = false
  released = false
  skipped: FeedLane[] = []
  /** Thrown by the next `take`: the error of no partition. */
  failure: unknown
  user: FeedUser | undefined
  taken = 0
  #turn = 0

  constructor(partitions = 1) {
    this.lanes = Array.from({ length: partitions }, (_, partition) => new FakeLane(partition))
  }

  put(partition: number, ...messages: readonly FakeMessage[]): void {
    for (const { key, text = "", headers } of messages) {
      this.lanes[partition]?.put({
        payload: utf8.encode(text),
        ...(key === undefined ? { key: null } : { key: utf8.encode(key) }),
        ...(headers === undefined ? {} : { headers }),
      })
    }
    this.user?.ready()
  }

  take(): BatchMessage | undefined {
    this.failed = undefined
    if (this.failure !== undefined) {
      const failure = this.failure
      this.failure = undefined
      this.lane = undefined
      throw failure
    }
    if (this.ended || this.released) return undefined
    for (let step = 0; step < this.lanes.length; step++) {
      const lane = this.lanes[(this.#turn + step) % this.lanes.length] as FakeLane
      if (lane.held || lane.paused || lane.draining || !lane.live || lane.left.length === 0) continue
      if (lane.damage !== undefined) continue
      this.#turn = (this.#turn + step + 1) % this.lanes.length
      this.lane = lane
      const next = lane.left.shift() as BatchMessage | MillraceError
      if (!(next instanceof MillraceError)) {
        this.taken++
        return next
      }
      this.failed = next.context.message as BatchMessage | undefined
      if (this.failed === undefined) lane.damage = next
      throw next
    }
    return undefined
  }

  hold(lane: FeedLane): void {
    ;(lane as FakeLane).held = true
  }

  free(lane: FeedLane): void {
    ;(lane as FakeLane).held = false
  }

  handled(lane: FeedLane, offset: bigint): void {
    const fake = lane as FakeLane
    if (!fake.live) return
    fake.told.push(offset)
    fake.handled.add(offset, offset + 1n)
  }

  async skip(lane: FeedLane): Promise<void> {
    const fake = lane as FakeLane
    this.skipped.push(lane)
    await this.whileSkipping(fake)
    if (!fake.live || fake.draining) throw new NotAssignedError("the partition went")
    if (fake.damage === undefined) fake.left.shift()
    fake.damage = undefined
    this.user?.ready()
  }

  /** What a skip waits for. */
  whileSkipping: (lane: FakeLane) => Promise<void> = async () => {}

  /** The reader of a partition has met its damaged batch again. */
  meetAgain(partition: number): void {
    const lane = this.lanes[partition] as FakeLane
    if (lane.damage === undefined) return
    lane.left.unshift(lane.damage)
    lane.damage = undefined
    this.user?.ready()
  }

  release(): void {
    this.released = true
  }

  resume(partition: number): void {
    const lane = this.lanes[partition] as FakeLane
    lane.paused = false
    this.user?.ready()
  }

  lose(partition: number): FakeLane {
    const lane = this.lanes[partition] as FakeLane
    lane.live = false
    this.user?.dropped(lane)
    const fresh = new FakeLane(partition)
    this.lanes[partition] = fresh
    return fresh
  }
}
