/** What a broker's answer to a fetch means for the partitions that were asked for. */
import { errorCode } from "../errors.ts"
import type { FetchResponsePartitionData } from "../protocol/messages.generated.ts"
import type { FlightOutcome } from "./lane.ts"
import { sift } from "./sift.ts"
import type { Slot } from "./slot.ts"
import { asMillraceError } from "./slot-lookup.ts"

/** One partition's part of an answer. */
export interface AnswerPart {
  readonly slot: Slot
  readonly data: FetchResponsePartitionData
}

/** The parts of an answer with their slots. In a session a broker leaves out what has no news. */
export function partsOf({ flight, response, byId }: FlightOutcome & { readonly error?: undefined }): AnswerPart[] {
  if (response.errorCode !== errorCode.none) return []
  const places = new Map<string, Slot>()
  for (const slot of flight.order.slots) places.set(placeKey(slot, byId), slot)
  const parts: AnswerPart[] = []
  for (const topic of response.responses) {
    for (const data of topic.partitions) {
      const slot = places.get(`${byId ? topic.topicId : topic.topic}/${data.partitionIndex}`)
      if (slot !== undefined) parts.push({ slot, data })
    }
  }
  return parts
}

/**
 * Takes over what a partition's part brings, unless another request brought it already or the slot went on.
 * @param asked.from The offset that was asked for.
 * @returns The broker's error code; 0 when there is nothing to do about it
 */
export function absorb(
  slot: Slot,
  data: FetchResponsePartitionData,
  { from, committed }: { readonly from: bigint; readonly committed: boolean },
): number {
  if (slot.phase !== "fetching" || from !== slot.fetchFrom) return errorCode.none
  if (data.errorCode !== errorCode.none) return data.errorCode
  slot.failures = 0
  slot.missing = 0
  slot.head = committed && data.lastStableOffset >= 0n ? data.lastStableOffset : data.highWatermark
  if (data.records === null || data.records.length === 0) return errorCode.none
  const { batches, next, error } = sift(data.records, {
    place: slot.position,
    from,
    ...(committed ? { aborted: data.abortedTransactions ?? [] } : {}),
  })
  for (const item of batches) slot.push(item)
  slot.fetchFrom = next
  if (error !== undefined) slot.fail(asMillraceError(error))
  return errorCode.none
}

function placeKey(slot: Slot, byId: boolean): string {
  return `${byId ? slot.position.lineage : slot.kafkaName}/${slot.position.partition}`
}
