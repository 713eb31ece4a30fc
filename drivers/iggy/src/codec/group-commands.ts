/** Commands on consumer groups and stored offsets (iggy-wire.md: Offsets, Groups). */

import { listToEnd, nothing, orNothing } from "../wire/codec.ts"
import { nonReplicated } from "../wire/operation.ts"
import type { Command } from "./command.ts"
import {
  type Assignment,
  assignment,
  type CreateGroup,
  createGroup as createGroupRequest,
  type DeleteOffset,
  deleteOffset as deleteOffsetRequest,
  type Group,
  type GroupDetails,
  group,
  groupDetails,
  type StoredOffset,
  type StoreOffset,
  storedOffset,
  storeOffset as storeOffsetRequest,
} from "./group-structures.ts"
import { type ConsumerRef, consumerRef, type GroupRef, groupRef, type TopicRef, topicRef } from "./identifier.ts"
import { placeOf } from "./message-structures.ts"

/** Without a partition: of partition 0. */
export const getConsumerOffset: Command<ConsumerRef, StoredOffset | undefined> = {
  name: "get_consumer_offset",
  code: 120,
  operation: nonReplicated,
  request: consumerRef,
  reply: storedOffset,
}
export const storeConsumerOffset: Command<StoreOffset, undefined> = {
  name: "store_consumer_offset",
  code: 121,
  operation: 161,
  request: storeOffsetRequest,
  reply: nothing,
  place: placeOf,
}
export const deleteConsumerOffset: Command<DeleteOffset, undefined> = {
  name: "delete_consumer_offset",
  code: 122,
  operation: 162,
  request: deleteOffsetRequest,
  reply: nothing,
  place: placeOf,
}
/** `undefined`: the group does not exist. */
export const getConsumerGroup: Command<GroupRef, GroupDetails | undefined> = {
  name: "get_consumer_group",
  code: 600,
  operation: nonReplicated,
  request: groupRef,
  reply: orNothing(groupDetails),
}
/** In no order. */
export const getConsumerGroups: Command<TopicRef, readonly Group[]> = {
  name: "get_consumer_groups",
  code: 601,
  operation: nonReplicated,
  request: topicRef,
  reply: listToEnd(group),
}
export const createConsumerGroup: Command<CreateGroup, Group> = {
  name: "create_consumer_group",
  code: 602,
  operation: 139,
  request: createGroupRequest,
  reply: group,
}
export const deleteConsumerGroup: Command<GroupRef, undefined> = {
  name: "delete_consumer_group",
  code: 603,
  operation: 140,
  request: groupRef,
  reply: nothing,
}
/** Joining again changes nothing. */
export const joinConsumerGroup: Command<GroupRef, undefined> = {
  name: "join_consumer_group",
  code: 604,
  operation: 148,
  request: groupRef,
  reply: nothing,
}
export const leaveConsumerGroup: Command<GroupRef, undefined> = {
  name: "leave_consumer_group",
  code: 605,
  operation: 149,
  request: groupRef,
  reply: nothing,
}
/** `undefined`: not a member. */
export const syncConsumerGroup: Command<GroupRef, Assignment | undefined> = {
  name: "sync_consumer_group",
  code: 606,
  operation: nonReplicated,
  request: groupRef,
  reply: assignment,
}
