/** Which partitions a member will lose when another one joins. Pure. */
import type { GroupDetails } from "./codec/group-structures.ts"

/**
 * The server's own reckoning for a join, made before it: in the order of their slots, members above their fair share give up the last
 * partitions of their lists. A wrong guess costs an interruption, or a partition that moves without being drained.
 * @param own What the asking member holds; it is recognised by that.
 */
export function partitionsToYield(group: GroupDetails, own: readonly number[]): number[] {
  const members = group.members.toSorted((one, other) => one.id - other.id)
  const heads = members.length + 1
  const fair = Math.floor(group.partitionsCount / heads)
  let remainder = group.partitionsCount % heads
  for (const { partitions } of members) {
    const most = remainder > 0 ? fair + 1 : fair
    if (partitions.length > fair) remainder = Math.max(0, remainder - 1)
    if (!partitions.some((partition) => own.includes(partition))) continue
    return partitions.length > most ? partitions.slice(most).filter((partition) => own.includes(partition)) : []
  }
  return []
}
