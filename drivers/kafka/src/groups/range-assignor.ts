import { type Assignment, type Assignor, type AssignorMember, inOrder, type TopicPart } from "./assignor.ts"

/**
 * Each topic for itself: its partitions in order, cut into as many runs as it has members, the first ones one longer. Partition p of two
 * topics with the same members and counts goes to the same member.
 */
export const rangeAssignor: Assignor = { name: "range", eager: true, assign }

function assign(members: readonly AssignorMember[], counts: ReadonlyMap<string, number>): Assignment {
  const given = new Map<string, TopicPart[]>(members.map(({ memberId }) => [memberId, []]))
  for (const [topic, count] of counts) {
    const readers = inOrder(members.filter(({ topics }) => topics.includes(topic)))
    const share = Math.floor(count / readers.length)
    const longer = count % readers.length
    let next = 0
    for (const [nth, { memberId }] of readers.entries()) {
      const end = next + share + (nth < longer ? 1 : 0)
      for (; next < end; next++) given.get(memberId)?.push({ topic, partition: next })
    }
  }
  return given
}
