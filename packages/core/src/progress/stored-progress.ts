import {
  type Claim,
  HistoryChangedError,
  InvalidError,
  MillraceError,
  NotAssignedError,
  type OffsetOwner,
  type Position,
  type Session,
  type TopicPartition,
  type Watermarks,
} from "@millrace/contract"
import { topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"
import type { Lag, StoredOffset } from "../consumer/consumer.ts"
import type { Lane } from "../partition/lane.ts"
import type { Checkpoint } from "../record/checkpoint.ts"

const largestOffset = (1n << 63n) - 2n

/** Progress as the backend holds it: read for callers, and written for partitions that are not being read. */
export class StoredProgress {
  readonly #session: Session
  readonly #what: string
  readonly #owner: OffsetOwner | undefined
  readonly #fixed: TopicPartition | undefined

  constructor(
    session: Session,
    identity: {
      readonly what: string
      readonly owner: OffsetOwner | undefined
      readonly partition: TopicPartition | undefined
    },
  ) {
    this.#session = session
    this.#what = identity.what
    this.#owner = identity.owner
    this.#fixed = identity.partition
  }

  /** @throws InvalidError unless it can be the offset of a record. */
  checkOffset(offset: unknown): bigint {
    if (typeof offset === "bigint" && offset >= 0n && offset <= largestOffset) return offset
    throw new InvalidError(
      `${this.#what}: an offset must be a bigint from 0n to ${largestOffset}n, not ${shown(offset)}`,
    )
  }

  async stored(place: TopicPartition): Promise<StoredOffset | undefined> {
    const [loaded, marks] = await Promise.all([this.#load([place]), this.#session.log.watermarks([place])])
    const position = valueOf(loaded[0])
    const { end } = valueOf(marks[0] as Watermarks | MillraceError)
    return position === undefined || position.offset === 0n
      ? undefined
      : { stored: position.offset - 1n, current: end - 1n }
  }

  /** @param reading How far a partition was handed out, for what is not stored. */
  async lag(places: readonly TopicPartition[], reading: (place: TopicPartition) => bigint | undefined): Promise<Lag[]> {
    if (places.length === 0) return []
    const [loaded, marks] = await Promise.all([this.#load(places), this.#session.log.watermarks(places)])
    return places.map((place, index) => {
      const position = valueOf(loaded[index])
      const { first, end } = valueOf(marks[index] as Watermarks | MillraceError)
      const next = position?.offset ?? reading(place)
      const from = next === undefined || next < first ? first : next
      return {
        stream: place.stream,
        topic: place.topic,
        partition: place.partition,
        storedOffset: position === undefined || position.offset === 0n ? undefined : position.offset - 1n,
        end,
        lag: end > from ? end - from : 0n,
      }
    })
  }

  /** Stores `next` for the present history of a partition that is not being read. */
  async storeNext(place: TopicPartition, next: bigint, claim: Claim | undefined): Promise<void> {
    const [marks] = await this.#session.log.watermarks([place])
    const { lineage } = valueOf(marks as Watermarks | MillraceError)
    await this.#store({ ...place, offset: next, lineage }, claim)
  }

  async forget(place: TopicPartition): Promise<void> {
    const [error] = await this.#session.offsets.delete(this.#owner as OffsetOwner, [place])
    if (error !== undefined) throw error
  }

  /** Stores a checkpoint of a partition that is not being read, or not yet; never back. */
  async storeUnread(checkpoint: Checkpoint, lane: Lane | undefined): Promise<void> {
    const { stream, topic, partition, offset, lineage } = checkpoint
    this.checkPlace(checkpoint, lane)
    const position = valueOf((await this.#load([{ stream, topic, partition }]))[0])
    if (position !== undefined && position.lineage === lineage && position.offset > offset) return
    await this.#store({ stream, topic, partition, offset: offset + 1n, lineage }, lane?.claim)
  }

  /**
   * Refuses a checkpoint that is not of this consumer.
   * @param lane The partition as it is read here, or about to be.
   * @throws InvalidError for one of another topic or partition, or that a member of a group has read; NotAssignedError for one of a
   *   partition that this member has not, or has again under another claim
   */
  checkPlace(checkpoint: Checkpoint, lane: Lane | undefined): void {
    const { stream, topic, partition, offset } = checkpoint
    const fixed = this.#fixed
    if (fixed === undefined) {
      if (lane === undefined) throw this.notAssigned(checkpoint, offset)
    } else if (stream !== fixed.stream || topic !== fixed.topic || partition !== fixed.partition) {
      throw new InvalidError(
        `${this.#what} reads partition ${fixed.partition}; a message of partition ${partition} of topic "${topicText(checkpoint)}" cannot be committed with it`,
      )
    }
    if (lane?.claim !== checkpoint.claim) throw this.wrongClaim(checkpoint)
  }

  /** Why a checkpoint that was read under another claim than the present one is refused. */
  wrongClaim(checkpoint: Checkpoint): MillraceError {
    if (this.#fixed === undefined) return this.notAssigned(checkpoint, checkpoint.offset)
    return new InvalidError(
      `${this.#what}: the message at offset ${checkpoint.offset} of partition ${checkpoint.partition} was read by a member of a group, and can be committed only there`,
    )
  }

  notAssigned(place: TopicPartition, offset: bigint | undefined, cause?: unknown): NotAssignedError {
    const { stream, topic, partition } = place
    return new NotAssignedError(
      `${this.#what}: partition ${partition} of topic "${topicText(place)}" is not assigned to this member any more; nothing was stored`,
      { context: { stream, topic, partition, ...(offset === undefined ? {} : { offset }) }, cause },
    )
  }

  historyChanged(place: TopicPartition, offset: bigint | undefined, cause?: unknown): HistoryChangedError {
    const { stream, topic, partition } = place
    return new HistoryChangedError(
      `${this.#what}: topic "${topicText(place)}" was purged or recreated since ${offset === undefined ? "its messages were" : `offset ${offset} was`} read; nothing was stored`,
      { context: { stream, topic, partition, ...(offset === undefined ? {} : { offset }) }, cause },
    )
  }

  async #store(position: Position, claim: Claim | undefined): Promise<void> {
    const entry = claim === undefined ? position : { ...position, claim }
    const [error] = await this.#session.offsets.store(this.#owner as OffsetOwner, [entry])
    if (error !== undefined) throw error
  }

  async #load(places: readonly TopicPartition[]): Promise<(Position | undefined | MillraceError)[]> {
    return this.#owner === undefined ? [] : this.#session.offsets.load(this.#owner, places)
  }
}

function valueOf<V>(outcome: V | MillraceError): V {
  if (outcome instanceof MillraceError) throw outcome
  return outcome as V
}
