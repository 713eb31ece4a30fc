/** Where anchors stand, and what partitions hold. */
import {
  type Anchor,
  type ErrorWire,
  errorToWire,
  type Position,
  type TopicPartition,
  type Watermarks,
} from "@millrace/contract"
import { noPartition } from "./append.ts"
import type { Access, ReadCommand, TopicRow } from "./command.ts"
import { firstBatchWhere, type PartitionState, readBatchRow, readPartition } from "./partition-state.ts"
import { storageError } from "./storage-error.ts"

/** One answer of several: a failure leaves its neighbours alone. */
export type Outcome<T> = { readonly value: T } | { readonly error: ErrorWire }

/** One answer a query, in order. A time behind all records answers the end. */
export const locate: ReadCommand<readonly (TopicPartition & { readonly at: Anchor })[], Outcome<Position>[]> = {
  mode: "read",
  name: "log.locate",
  run: (access, queries) =>
    queries.map((query) =>
      outcome(() => {
        const { topic, state } = partition(access, query)
        const offset = offsetOf(access, state, query.at)
        return { ...place(query), offset, lineage: topic.lineage }
      }),
    ),
}

/** One answer a partition, in order. */
export const watermarks: ReadCommand<readonly TopicPartition[], Outcome<Watermarks>[]> = {
  mode: "read",
  name: "log.watermarks",
  run: (access, partitions) =>
    partitions.map((query) =>
      outcome(() => {
        const { topic, state } = partition(access, query)
        return { ...place(query), first: state.first, end: state.next, lineage: topic.lineage }
      }),
    ),
}

/** Where an anchor stands in a partition. A time behind all records is its end. */
export function offsetOf(access: Access, state: PartitionState, at: Anchor): bigint {
  switch (at.kind) {
    case "first":
      return state.first
    case "end":
      return state.next
    case "last":
      return state.next > state.first ? state.next - 1n : state.next
    default: {
      // Append times never go back within a partition, and the records of a batch share one.
      const number = firstBatchWhere(access, state, ({ time }) => time >= at.value)
      return number === state.nextBatch ? state.next : readBatchRow(access, state, number).base
    }
  }
}

function partition(
  access: Access,
  query: TopicPartition,
): { readonly topic: TopicRow; readonly state: PartitionState } {
  const topic = access.topic(query)
  const key = topic.partitionKeys[query.partition]
  if (key === undefined) throw noPartition(topic, query.partition)
  return { topic, state: readPartition(access, key) }
}

function place({ stream, topic, partition: number }: TopicPartition): TopicPartition {
  return { stream, topic, partition: number }
}

function outcome<T>(run: () => T): Outcome<T> {
  try {
    return { value: run() }
  } catch (error) {
    return { error: errorToWire(storageError(error, "reading the log")) }
  }
}
