import type { SendResult } from "../producer/confirmation.ts"
import type { Destination } from "../producer/lane.ts"
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

  /** Accepts records in order. They may become several groups: when one of these fails, others may be accepted all the same. */
  async acceptAll(records: readonly SendableRecord[], to: Destination): Promise<SendResult> {
    if (records.length === 0) return accepted
    const { slots } = this.#context
    const enter = (lane: SpoolLane): Promise<SendResult>[] => {
      // Records of one group share its promise.
      const promises = new Set<Promise<SendResult>>()
      for (const record of records) promises.add(this.#enter(lane, record, { to }))
      return [...promises]
    }
    const lane = slots.ready(to.name)
    const promises =
      lane === undefined ? await slots.whenReady(to.name, (ready) => Promise.resolve(enter(ready))) : enter(lane)
    const outcomes = await Promise.allSettled(promises)
    const failure = outcomes.find((outcome) => outcome.status === "rejected")
    if (failure !== undefined) throw failure.reason
    return accepted
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
    if (!room.tryTake(bytes)) {
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
