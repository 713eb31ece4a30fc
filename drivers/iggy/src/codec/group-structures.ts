/** Consumer groups and offsets (iggy-wire.md: Offsets, Groups). */
import { type Codec, flag, join, list32, name, orNothing, struct, u32, u64 } from "../wire/codec.ts"
import { withItems } from "./catalog-structures.ts"
import { type ConsumerRef, consumerRef, type TopicRef, topicRef } from "./identifier.ts"

export interface Group {
  /** Counts from 0 in a topic and is not given out again. */
  readonly id: number
  readonly partitionsCount: number
  readonly membersCount: number
  readonly name: string
}

export interface GroupMember {
  /** A slot in the group: neither a client id nor stable. */
  readonly id: number
  /** One that is to be handed over still stands with its old owner. */
  readonly partitions: readonly number[]
}

export interface GroupDetails extends Group {
  readonly members: readonly GroupMember[]
}

export const group: Codec<Group> = struct<Group>({ id: u32, partitionsCount: u32, membersCount: u32, name })

const partitions = list32(u32, 4)

export const groupDetails: Codec<GroupDetails> = withItems<Group, GroupMember, "members">(
  group,
  struct<GroupMember>({ id: u32, partitions }),
  { key: "members", count: (value) => value.membersCount, leastBytes: 8 },
)

/** What the asking member is to poll. */
export interface Assignment {
  /** Grows with every change of members or partitions. */
  readonly generation: bigint
  readonly partitions: readonly number[]
}

/** `undefined`: not a member. */
export const assignment: Codec<Assignment | undefined> = orNothing(struct<Assignment>({ generation: u64, partitions }))

export interface CreateGroup extends TopicRef {
  readonly name: string
}

export const createGroup: Codec<CreateGroup> = join(topicRef, struct<{ readonly name: string }>({ name }))

export interface StoredOffset {
  readonly partition: number
  /** Of the newest message. */
  readonly currentOffset: bigint
  /** The last *handled* message's. */
  readonly storedOffset: bigint
}

/** `undefined`: nothing is stored, or the stream, topic or group is not there. */
export const storedOffset: Codec<StoredOffset | undefined> = orNothing(
  struct<StoredOffset>({ partition: u32, currentOffset: u64, storedOffset: u64 }),
)

export interface StoreOffset extends ConsumerRef {
  /** The last handled message's; at most the partition's current offset. */
  readonly offset: bigint
  /** Answer when a quorum has it, not just the leader. */
  readonly quorum: boolean
}

export const storeOffset: Codec<StoreOffset> = join(
  consumerRef,
  struct<{ readonly offset: bigint; readonly quorum: boolean }>({ offset: u64, quorum: flag }),
)

export interface DeleteOffset extends ConsumerRef {
  readonly quorum: boolean
}

export const deleteOffset: Codec<DeleteOffset> = join(
  consumerRef,
  struct<{ readonly quorum: boolean }>({ quorum: flag }),
)
