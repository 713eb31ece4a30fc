/** Places in the log. */

/** A topic by name. `stream` is empty for the backend's own topic of exactly that name. */
export interface TopicName {
  readonly stream: string
  readonly topic: string
}

/** One partition of a topic. Partitions count from 0. */
export interface TopicPartition extends TopicName {
  readonly partition: number
}

/**
 * Which history of a topic an offset belongs to. Opaque: equal text, equal history. It changes when the topic is recreated, and when
 * it is purged on a backend where that restarts the offsets.
 */
export type Lineage = string

/** The next record to read: `offset` is the first that has not been seen. */
export interface Position extends TopicPartition {
  readonly offset: bigint
  readonly lineage: Lineage
}

/** Where a reader without a position begins. `last` is the newest record, `next` the end: the first record that is yet to come. */
export type Anchor =
  | { readonly kind: "first" | "last" | "end" }
  | { readonly kind: "timestampMicros"; readonly value: bigint }

/** What a partition holds: offsets `first` to `end` − 1, perhaps with holes. Empty when they are equal. */
export interface Watermarks extends TopicPartition {
  readonly first: bigint
  /** The offset that the next record gets. */
  readonly end: bigint
  readonly lineage: Lineage
}

/** The right to commit one partition for a group, given out by a membership. Opaque but for what it names. */
export interface Claim extends TopicPartition {
  /** The driver's fencing token. Nobody else looks into it. */
  readonly token: unknown
}
