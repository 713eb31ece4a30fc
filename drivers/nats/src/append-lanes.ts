import { type AppendResult, ClosedError, InvalidError, type MillraceError, NotFoundError } from "@millrace/contract"
import { AppendLane, type LaneRoute } from "./append-lane.ts"
import type { Connection } from "./connection.ts"
import { IngestAnswers } from "./ingest-answers.ts"
import type { PartitionTarget } from "./partition-target.ts"
import type { NatsSealedBatch } from "./sealed-batch.ts"
import { described, partitionSubject, type TopicLayouts } from "./topic-layout.ts"

/** Lanes that are kept although nothing is under way in them: more are dropped, the oldest first. */
const mostIdle = 1_000

/** The lanes of all partitions that a session writes to. */
export class AppendLanes {
  readonly #connection: Connection
  readonly #layouts: TopicLayouts
  readonly #answers: IngestAnswers
  readonly #lanes = new Map<string, Promise<AppendLane> | AppendLane>()
  readonly #stopListening: () => void
  #closed = false

  constructor(connection: Connection, layouts: TopicLayouts) {
    this.#connection = connection
    this.#layouts = layouts
    this.#answers = new IngestAnswers(connection)
    this.#stopListening = connection.listen({
      lost: (error) => this.#each((lane) => lane.lost(error)),
      denied: (subject, error) => this.#each((lane) => lane.denied(subject, error)),
      closed: () => this.close(),
    })
  }

  /** @throws ClosedError, NotFoundError, InvalidError for a stream that has no subject of its own; see `AppendLane` */
  append(batch: NatsSealedBatch, confirm: "offsets" | "stored"): Promise<AppendResult> {
    const key = keyOf(batch.target)
    const lane = this.#lanes.get(key) ?? this.#open(key, batch.target)
    return lane instanceof AppendLane
      ? lane.append(batch, confirm)
      : lane.then((opened) => opened.append(batch, confirm))
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#stopListening()
    this.#each((lane) => lane.close(new ClosedError("the session is closed")))
    this.#lanes.clear()
  }

  #open(key: string, target: PartitionTarget): AppendLane | Promise<AppendLane> {
    const { subject } = target
    if (subject !== undefined) {
      const features = { atomic: this.#connection.isAtLeast(2, 12), ingest: this.#connection.isAtLeast(2, 14) }
      return this.#keep(key, target, { subject, ...features })
    }
    const opening = this.#routeOf(target).then((route) => this.#keep(key, target, route))
    this.#lanes.set(key, opening)
    // The next append asks again.
    opening.catch(() => this.#lanes.delete(key))
    return opening
  }

  #keep(key: string, target: PartitionTarget, route: LaneRoute): AppendLane {
    if (this.#closed) throw new ClosedError("the session is closed")
    const lane = new AppendLane({
      connection: this.#connection,
      layouts: this.#layouts,
      answers: this.#answers,
      target,
      route,
      idle: () => this.#trim(),
    })
    this.#lanes.set(key, lane)
    return lane
  }

  /** Of a stream that Millrace did not make. */
  async #routeOf(target: PartitionTarget): Promise<LaneRoute> {
    const { stream, topic, partition, lineage } = target
    const context = { stream, topic, partition }
    const layout = await this.#layouts.find(target)
    if (layout.lineage !== lineage) {
      throw new NotFoundError(`topic ${described(target)} was recreated: the batch was made for the one before`, {
        context,
      })
    }
    const subject = partitionSubject(layout, partition)
    if (subject === undefined) {
      const subjects = layout.config.subjects?.join(", ") || "none"
      throw new InvalidError(
        `topic ${described(target)} cannot be published to: its JetStream stream must listen to one subject without a wildcard, and it listens to ${subjects}`,
        { context },
      )
    }
    return { subject, atomic: layout.config.allow_atomic === true, ingest: layout.config.allow_batched === true }
  }

  #each(act: (lane: AppendLane) => void): void {
    for (const lane of this.#lanes.values()) {
      if (lane instanceof AppendLane) act(lane)
    }
  }

  #trim(): void {
    if (this.#lanes.size <= mostIdle) return
    for (const [key, lane] of this.#lanes) {
      if (this.#lanes.size <= mostIdle) return
      if (!(lane instanceof AppendLane) || lane.busy) continue
      this.#lanes.delete(key)
      lane.close(dropped)
    }
  }
}

const dropped: MillraceError = new ClosedError("the lane was dropped while nothing was under way in it")

function keyOf({ stream, topic, partition, lineage }: PartitionTarget): string {
  return `${stream}\n${topic}\n${partition}\n${lineage}`
}
