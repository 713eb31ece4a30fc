import assert from "node:assert/strict"
import { test } from "node:test"
import type { GroupDetails } from "./codec/group-structures.ts"
import { partitionsToYield } from "./member-yield.ts"

function group(...members: number[][]): GroupDetails {
  const partitionsCount = members.flat().length
  return {
    id: 0,
    name: "g",
    partitionsCount,
    membersCount: members.length,
    members: members.map((partitions, id) => ({ id, partitions })),
  }
}

// The examples of iggy-wire.md: Groups, and what a running server did.
test("a member above its fair share gives up the last partitions of its list", () => {
  assert.deepEqual(partitionsToYield(group([0, 1, 2]), [0, 1, 2]), [2])
  assert.deepEqual(partitionsToYield(group([0, 1, 2, 3]), [0, 1, 2, 3]), [2, 3])
  assert.deepEqual(partitionsToYield(group([0]), [0]), [])
})

test("the remainder stays with the first members", () => {
  const three = group([0, 1, 2, 3, 4, 5, 6, 7], [15, 14, 13, 12, 11, 10, 9, 8])
  assert.deepEqual(partitionsToYield(three, [0, 1, 2, 3, 4, 5, 6, 7]), [6, 7])
  assert.deepEqual(partitionsToYield(three, [15, 14, 13, 12, 11, 10, 9, 8]), [10, 9, 8])
})

test("whoever holds nothing gives nothing up", () => {
  assert.deepEqual(partitionsToYield(group([0, 1], []), []), [])
})
