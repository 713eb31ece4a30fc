/**
 * Keys of the bucket. Every name is one token in the escaped form of `escapeName`, so that different names never give one key:
 *
 *     offset.<consumer or group>.<owner>.<stream>.<topic>.<lineage>.<partition>
 *     group.<group>
 *     beat.<group>.<number of the member>
 *
 * The lineage is part of an offset's key: an offset of an old history can neither be taken for one of the new nor overwrite it.
 */
import type { OffsetOwner, Position, TopicName } from "@millrace/contract"
import { escapeName } from "./names.ts"

/** Where an offset is kept. */
export function offsetKey(
  { kind, name }: OffsetOwner,
  { stream, topic, lineage, partition }: Omit<Position, "offset">,
): string {
  return `offset.${kind}.${token(name)}.${token(stream)}.${token(topic)}.${token(lineage)}.${partition}`
}

/** The keys of all offsets of a topic; with an owner of that one's only. */
export function topicOffsets({ stream, topic }: TopicName, owner?: OffsetOwner): string {
  const whose = owner === undefined ? "*.*" : `${owner.kind}.${token(owner.name)}`
  return `offset.${whose}.${token(stream)}.${token(topic)}.>`
}

/** Where the record of a group is kept. */
export function groupKey(group: string): string {
  return `group.${token(group)}`
}

/** Where the heartbeats of one member are kept, or with `*` those of all. */
export function beatKey(group: string, member: number | "*"): string {
  return `beat.${token(group)}.${member}`
}

/** The subject on which members say that the record of their group changed. It is not kept. */
export function stirSubject(group: string): string {
  return `millrace-groups.${token(group)}`
}

/** One token; `_`, which no escaped name is, for the empty name. */
function token(name: string): string {
  return name === "" ? "_" : escapeName(name)
}
