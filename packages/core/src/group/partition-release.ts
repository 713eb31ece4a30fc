/**
 * Gives partitions back to the group, so that the next member starts behind all that is stored: nothing more of them is handed out, the
 * program is told while it can still store what it keeps of them, what is in hands gets its time, the handled prefix is stored, and only
 * then the claims are released.
 */
import type { Claim, TopicPartition } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { ConsumerListeners } from "../consumer/consumer-events.ts"
import { type Lane, laneKey } from "../partition/lane.ts"

/** The consumer as far as a hand-over goes. */
export interface Releasing {
  lane(partition: TopicPartition): Lane | undefined
  /** Nothing more of these partitions is handed out or read; their commits are still good. */
  stopHandingOut(lanes: readonly Lane[]): void
  /** Settles once nothing of the partition is handed out and unhandled. */
  whenClear(lane: Lane): Promise<void>
  /** Stores the handled prefix; settles when that is done, or the partition was dropped. */
  storeHandled(lane: Lane): Promise<void>
  /** The partitions are not ours any more: what is in hands of them is never handled, and commits are refused. */
  drop(lanes: readonly Lane[]): void
  readonly listeners: ConsumerListeners
}

export interface ReleaseTimes {
  /** How long what is in hands may take, in ms. 0: it is cut off as soon as the program was told. */
  readonly patienceMs: number
  /** After so long everything is given back, whatever is not done, in ms. */
  readonly limitMs: number
}

/**
 * Settles when nothing of these partitions is ours any more. Never rejects.
 * @param options.hurried Settles when what is in hands gets no more time.
 * @param options.stopped Settles when the consumer ends: then nothing is waited for any more.
 * @returns the claims to release: without those that were lost on the way
 */
export async function giveUp(
  consumer: Releasing,
  claims: readonly Claim[],
  options: {
    readonly clock: Clock
    readonly times: ReleaseTimes
    readonly hurried: Promise<void>
    readonly stopped: Promise<void>
  },
): Promise<Claim[]> {
  const { clock, times, hurried, stopped } = options
  const lanes = claims.map((claim) => consumer.lane(claim)).filter((lane) => lane !== undefined)
  consumer.stopHandingOut(lanes)
  const limit = new Delay(clock, times.limitMs)
  const patience = new Delay(clock, Math.min(times.patienceMs, times.limitMs))
  const over = Promise.race([limit.over, stopped])
  const cutOff = Promise.race([patience.over, hurried, over])
  try {
    const told = consumer.listeners.tellAndWait("revoking", {
      partitions: claims.map(placeOf),
      deadlineMs: times.limitMs,
    })
    const clear = lanes.map((lane) => Promise.race([consumer.whenClear(lane), cutOff]))
    await Promise.all([Promise.race([told, over]), ...clear])
    const live = lanes.filter((lane) => lane.live)
    await Promise.race([Promise.all(live.map((lane) => consumer.storeHandled(lane))), over])
  } finally {
    limit.cancel()
    patience.cancel()
  }
  const gone = new Set(lanes.filter((lane) => !lane.live).map(({ key }) => key))
  consumer.drop(lanes.filter((lane) => lane.live))
  return claims.filter((claim) => !gone.has(laneKey(claim)))
}

/** The bare partition, without what else an object carries. */
export function placeOf({ stream, topic, partition }: TopicPartition): TopicPartition {
  return { stream, topic, partition }
}

/** A span of time that can be waited for, and called off. */
class Delay {
  readonly over: Promise<void>
  readonly #timer: { cancel(): void } | undefined

  constructor(clock: Clock, ms: number) {
    if (ms <= 0) {
      this.over = Promise.resolve()
      return
    }
    const { promise, resolve } = Promise.withResolvers<void>()
    this.over = promise
    this.#timer = clock.setTimer(ms, resolve)
  }

  cancel(): void {
    this.#timer?.cancel()
  }
}
