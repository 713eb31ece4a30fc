import { MillraceError } from "@millrace/contract"
import type { SendResult } from "../producer/confirmation.ts"
import type { Destination } from "../producer/lane.ts"
import { PublishFailedError } from "../producer/publish-failed.ts"
import { toOutgoing } from "../producer/send-call.ts"
import type { StatisticsCounter } from "../producer/statistics.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"
import { bufferBytesOf, keyBytesOf, payloadBytesOf } from "../record/record-size.ts"
import type { AcceptedGroup } from "./acceptance.ts"
import type { SpoolLane } from "./lane.ts"
import type { LaneSlots } from "./lane-slots.ts"
import { SpoolDelivery } from "./spool-delivery.ts"
import type { SpoolRoom } from "./spool-room.ts"

const accepted: SendResult = { confirmations: [] }

/** What an intake works with. */
export interface SpoolIntakeContext {
  readonly room: SpoolRoom
  readonly slots: LaneSlots
  readonly statistics: StatisticsCounter
  /** Whether so many bytes may go beyond what there is room for. */
  readonly mayExceed: (bytes: number) => boolean
}

/** Records of a batch that are accepted, or not, together. */
interface Part {
  readonly records: SendableRecord[]
  readonly group: AcceptedGroup
}

interface Entering {
  readonly to: Destination
  /** Told of the group before it can be on its way. */
  readonly joined?: (group: AcceptedGroup) => void
}

/**
 * The way of a send into the spool: its lane, room, a place in the open group. All of it at once where nothing has to be waited for; else
 * in the order of the calls.
 */
export class SpoolIntake {
  readonly #context: SpoolIntakeContext

  constructor(context: SpoolIntakeContext) {
    this.#context = context
  }

  /** Settles when the record is synced. @throws BufferFullError, TimeoutError, RecordTooLargeError, DiskFullError, StorageError … */
  accept(record: SendableRecord, to: Destination): Promise<SendResult> {
    const { slots } = this.#context
    const lane = slots.ready(to.name)
    if (lane !== undefined) return this.#enter(lane, record, { to })
    return slots.whenReady(to.name, (ready) => this.#enter(ready, record, { to }))
  }

  /**
   * Accepts records in order. Room is taken for all of them together; but they may become several groups, of which the disk may take some.
   * @throws as `accept` does, and then none was accepted; PublishFailedError with those that were not, when others were
   */
  async acceptAll(records: readonly SendableRecord[], to: Destination): Promise<SendResult> {
    if (records.length === 0) return accepted
    const { slots } = this.#context
    const enter = (lane: SpoolLane): Promise<Part[]> => this.#enterAll(lane, records, to)
    const lane = slots.ready(to.name)
    const parts = await (lane === undefined ? slots.whenReady(to.name, enter) : enter(lane))
    const refused: SendableRecord[] = []
    let failure: unknown
    const outcomes = await Promise.allSettled(parts.map(({ group }) => group.promise))
    for (const [i, outcome] of outcomes.entries()) {
      if (outcome.status === "fulfilled") continue
      failure ??= outcome.reason
      refused.push(...(parts[i] as Part).records)
    }
    if (failure === undefined) return accepted
    if (refused.length === records.length || !(failure instanceof MillraceError)) throw failure
    const { stream, topic } = to.name
    const note = ` (the other ${records.length - refused.length} records of the batch are in the spool)`
    throw new PublishFailedError({
      stream,
      topic,
      committed: [],
      unconfirmed: refused.map(toOutgoing),
      cause: failure,
      note,
    })
  }

  /** Accepts one record, of whose delivery somebody may want to hear; its `accepted` settles when it is synced. */
  deliver(record: SendableRecord, to: Destination): SpoolDelivery {
    const { slots } = this.#context
    const size = { keyBytes: keyBytesOf(record, to.route), payloadBytes: payloadBytesOf(record) }
    const delivery = new SpoolDelivery(to.name, size)
    const enter = async (lane: SpoolLane): Promise<void> => {
      const joined = (group: AcceptedGroup): void => {
        group.listeners.push({ index: group.count - 1, told: (offset) => lane.listen(offset, delivery) })
      }
      await this.#enter(lane, record, { to, joined })
    }
    const lane = slots.ready(to.name)
    delivery.accepted = lane === undefined ? slots.whenReady(to.name, enter) : enter(lane)
    return delivery
  }

  /** Takes room and puts the record into the open group. */
  #enter(lane: SpoolLane, record: SendableRecord, { to, joined }: Entering): Promise<SendResult> {
    const { room } = this.#context
    const bytes = bufferBytesOf(record)
    if (!this.#tryTake(bytes)) {
      let group: AcceptedGroup
      const enter = (): void => {
        group = this.#put(lane, record, { to, bytes })
        joined?.(group)
      }
      return room.take(bytes, enter).then(() => group.promise)
    }
    try {
      const group = this.#put(lane, record, { to, bytes })
      joined?.(group)
      return group.promise
    } catch (error) {
      room.giveBack(bytes)
      return Promise.reject(error)
    }
  }

  /** Takes room for all of them together, and puts them into groups. */
  #enterAll(lane: SpoolLane, records: readonly SendableRecord[], to: Destination): Promise<Part[]> {
    let bytes = 0
    for (const record of records) bytes += bufferBytesOf(record)
    if (this.#tryTake(bytes)) {
      try {
        return Promise.resolve(this.#putAll(lane, records, to))
      } catch (error) {
        this.#context.room.giveBack(bytes)
        return Promise.reject(error)
      }
    }
    let parts: Part[] = []
    const enter = (): void => {
      parts = this.#putAll(lane, records, to)
    }
    return this.#context.room.take(bytes, enter).then(() => parts)
  }

  /** @throws what has closed the lane, and then none was taken */
  #putAll(lane: SpoolLane, records: readonly SendableRecord[], to: Destination): Part[] {
    const parts: Part[] = []
    for (const record of records) {
      const group = this.#put(lane, record, { to, bytes: bufferBytesOf(record) })
      const last = parts.at(-1)
      if (last?.group === group) last.records.push(record)
      else parts.push({ group, records: [record] })
    }
    return parts
  }

  /** Takes room at once, or not at all. */
  #tryTake(bytes: number): boolean {
    const { room, mayExceed } = this.#context
    if (room.tryTake(bytes)) return true
    if (!mayExceed(bytes)) return false
    room.exceed(bytes)
    return true
  }

  #put(
    lane: SpoolLane,
    record: SendableRecord,
    how: { readonly to: Destination; readonly bytes: number },
  ): AcceptedGroup {
    const group = lane.acceptance.add(record, how.to.route, how.bytes)
    this.#context.statistics.submitted(1, payloadBytesOf(record), group.startedMs)
    return group
  }
}
