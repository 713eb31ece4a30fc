import type { Lane } from "./lane.ts"

/** Partitions with something to hand out, the next one first: each takes its turn behind the others. */
export class LaneQueue {
  #lanes: Lane[] = []

  get empty(): boolean {
    return this.#lanes.length === 0
  }

  /** Queues the partition, unless it is there, has nothing, or nothing of it may be handed out. */
  offer(lane: Lane): void {
    if (lane.queued || !lane.live || lane.draining || lane.paused || lane.seeking || lane.held) return
    if (lane.suspended !== undefined) return
    if (lane.slice === undefined && lane.error === undefined) return
    lane.queued = true
    this.#lanes.push(lane)
  }

  take(): Lane | undefined {
    const lane = this.#lanes.shift()
    if (lane !== undefined) lane.queued = false
    return lane
  }

  remove(lane: Lane): void {
    if (lane.queued) this.#lanes.splice(this.#lanes.indexOf(lane), 1)
    lane.queued = false
  }
}
