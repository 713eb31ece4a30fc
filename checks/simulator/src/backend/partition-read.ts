import {
  CorruptionError,
  HistoryChangedError,
  MillraceError,
  NotFoundError,
  OffsetOutOfRangeError,
  type PartitionRead,
  type ReadPosition,
} from "@millrace/contract"
import type { PartitionLog } from "./partition-log.ts"
import { SimEncodedBatch } from "./sim-encoded-batch.ts"
import type { SimTopic } from "./sim-topic.ts"

/** What one partition may add to an answer. */
export interface ReadRoom {
  /** A first batch above it comes alone. */
  readonly records: number
  readonly batches: number
}

/** One partition's part of a poll; `undefined` when there is nothing to tell. @param topic The topic as it is now, if it is there. */
export function readPartition(
  topic: SimTopic | undefined,
  position: ReadPosition,
  room: ReadRoom,
): PartitionRead | undefined {
  const { stream, topic: name, partition, lineage, claim } = position
  const place = { stream, topic: name, partition }
  const log = topic?.log(partition)
  if (topic === undefined || log === undefined) {
    return { ...place, error: new NotFoundError(`partition ${partition} of topic "${name}" is not there`) }
  }
  const error = failureOf(topic, log, position)
  if (error !== undefined) return { ...place, error }
  const head = log.records.length
  const from = Number(position.offset)
  if (from >= head) return undefined
  const { batches, next } = collect(log, from, room)
  if (batches.length === 0 && next === from) return undefined
  const read = { ...place, batches, nextOffset: BigInt(next), head: BigInt(head), lineage }
  return claim === undefined ? read : { ...read, claim }
}

function failureOf(topic: SimTopic, log: PartitionLog, position: ReadPosition): MillraceError | undefined {
  const { lineage } = topic.description
  if (lineage !== position.lineage) return new HistoryChangedError(`topic "${position.topic}" has another history`)
  const { offset } = position
  if (offset < log.first || offset > log.records.length) {
    return new OffsetOutOfRangeError(`offset ${offset} is not within ${log.first} and ${log.records.length}`)
  }
  if (log.sickness === "not-leader") return new MillraceError("not-leader", "the partition has no leader")
  if (log.sickness === undefined || offset >= log.records.length) return undefined
  const { stream, topic: name, partition } = position
  const context = { stream, topic: name, partition, offset, nextOffset: offset + 1n }
  return new CorruptionError(`record ${offset} is damaged`, { context })
}

function collect(
  log: PartitionLog,
  from: number,
  room: ReadRoom,
): { readonly batches: readonly SimEncodedBatch[]; readonly next: number } {
  const batches: SimEncodedBatch[] = []
  let records = 0
  let next = from
  for (const { base, records: content } of log.batchesFrom(from)) {
    const visible: number[] = []
    for (let index = 0; index < content.length; index++) if (!log.hidden.has(base + index)) visible.push(index)
    const isWanted = visible.length > 0 && base + (visible.at(-1) as number) >= from
    if (isWanted && batches.length > 0 && (batches.length >= room.batches || records + visible.length > room.records)) {
      return { batches, next }
    }
    if (isWanted) batches.push(new SimEncodedBatch(base, content, visible))
    records += visible.length
    next = base + content.length
  }
  return { batches, next }
}
