import { ClosedError, NotAssignedError, type OffsetOwner, type Session, type TopicPartition } from "@millrace/contract"
import { topicText } from "../client/names.ts"
import type { Lane } from "./lane.ts"
import { skipTarget } from "./skip-target.ts"
import { checkStartAt, type StartAt } from "./start-at.ts"
import { findPlace, type StartPosition } from "./start-position.ts"

/** A place to read on at. Without a lineage it is of the history that is being read. */
export type Place = Pick<StartPosition, "offset"> & Partial<StartPosition>

interface MoverHost {
  closed(): boolean
  /** Reads on there; what was read ahead, and what is handed out and not handled, is void. */
  move(lane: Lane, place: Place): void
  /** Reads on at `next`; what lies before counts as read. */
  pass(lane: Lane, next: bigint): void
  /** The record counts as handled, though its error is all that anybody saw of it. */
  passed(lane: Lane, offset: bigint): void
  /** Nothing of the partition is handed out until `offered`. */
  withheld(lane: Lane): void
  offered(lane: Lane): void
  /** Callers may be served. */
  changed(): void
}

/** Told the place before reading moves there. What it fails with stops the move. */
type Before = (next: bigint) => Promise<void>

/** Moves a consumer within a partition (`consumer.seek`). */
export class LaneMover {
  readonly #session: Session
  readonly #owner: OffsetOwner | undefined
  readonly #host: MoverHost

  constructor(session: Session, owner: OffsetOwner | undefined, host: MoverHost) {
    this.#session = session
    this.#owner = owner
    this.#host = host
  }

  /**
   * Reads on elsewhere, or past what could not be read. Nothing is handed out while the place is looked up; a look-up that fails leaves
   * everything as it was. A later call for the same partition overrules an earlier one, which settles then.
   * @throws InvalidError for `skip` when the last thing handed out was no error of a record; NotAssignedError when the partition goes
   *   meanwhile; ClosedError; what the backend fails with
   */
  async seek(lane: Lane, to: StartAt | "skip", before?: Before): Promise<void> {
    if (to === "skip") return this.#skip(lane, before)
    const target = checkStartAt(`seek in ${placeText(lane.partition)}`, to, { name: "to" })
    const turn = this.#begin(lane)
    // A place that needs no looking up is one in the history that is being read.
    if (target.kind === "offset" && before === undefined) return this.#host.move(lane, { offset: target.value })
    lane.seeking = true
    this.#host.withheld(lane)
    try {
      const place =
        target.kind === "offset"
          ? { offset: target.value }
          : await findPlace(this.#session, lane.partition, { to: target, owner: this.#owner })
      if (this.#overruled(lane, turn)) return
      await before?.(place.offset)
      if (this.#overruled(lane, turn)) return
      this.#host.move(lane, place)
    } finally {
      if (lane.seeks === turn) {
        lane.seeking = false
        this.#host.offered(lane)
        this.#host.changed()
      }
    }
  }

  /** Reads on at an offset, at once: a look-up that is under way is overruled. Nothing happens where nothing is read any more. */
  moveTo(lane: Lane, offset: bigint): void {
    if (this.#host.closed() || !lane.live || lane.draining) return
    this.#begin(lane)
    this.#host.move(lane, { offset })
  }

  async #skip(lane: Lane, before: Before | undefined): Promise<void> {
    const target = skipTarget(lane)
    const turn = this.#begin(lane)
    const { next } = target
    await before?.(next)
    if (this.#overruled(lane, turn)) return
    lane.told = undefined
    if (target.kind === "position") this.#host.pass(lane, next)
    else this.#host.passed(lane, target.offset)
    if (target.kind === "next record") this.#host.move(lane, { offset: next })
    this.#host.changed()
  }

  #begin(lane: Lane): number {
    this.#refuseGone(lane)
    // Whoever was looking for a place before has been overruled, and does not let go of the partition any more.
    lane.seeks++
    if (lane.seeking) {
      lane.seeking = false
      this.#host.offered(lane)
    }
    return lane.seeks
  }

  /** Whether a later call has taken the place of this one. @throws when there is nothing to seek in any more */
  #overruled(lane: Lane, turn: number): boolean {
    this.#refuseGone(lane)
    return lane.seeks !== turn
  }

  #refuseGone(lane: Lane): void {
    const where = placeText(lane.partition)
    if (this.#host.closed()) throw new ClosedError(`the consumer was shut down before it moved in ${where}`)
    if (lane.live && !lane.draining) return
    throw new NotAssignedError(`${where} goes to another member: the consumer cannot move in it any more`, {
      context: { ...lane.partition },
    })
  }
}

function placeText(partition: TopicPartition): string {
  return `partition ${partition.partition} of topic "${topicText(partition)}"`
}
