import assert from "node:assert/strict"
import { describe, test } from "node:test"
import fc from "fast-check"
import { MemberClaims, type NumberedSeat, type Seat } from "./member-claims.ts"

const rebalanceTimeoutMs = 1000

function seat(partition: number, topicId = "id-1"): Seat {
  return { stream: "s", topic: "t", partition, topicId }
}

function partitions(seats: readonly { readonly partition: number }[]): number[] {
  return seats.map(({ partition }) => partition).toSorted((one, other) => one - other)
}

describe("the claims of a member", () => {
  test("what is wanted is offered once, and told once", () => {
    const claims = new MemberClaims(rebalanceTimeoutMs)
    claims.aim([seat(0), seat(1)], 0)
    assert.ok(claims.pending)
    assert.deepEqual(partitions(claims.take(0).assigned), [0, 1])
    claims.aim([seat(0), seat(1)], 1)
    assert.equal(claims.pending, false)
  })

  test("a partition that is wanted back stays good until its release, and is not owned behind it", () => {
    const claims = new MemberClaims(rebalanceTimeoutMs)
    claims.aim([seat(0), seat(1)], 0)
    const [kept, moving] = claims.take(0).assigned as [NumberedSeat, NumberedSeat]
    claims.aim([seat(0)], 100)
    const change = claims.take(400)
    assert.deepEqual(partitions(change.revoked), [1])
    assert.equal(change.deadlineMs, 700, "what is left of the rebalance timeout")
    assert.ok(claims.isGood(moving.claim) && claims.leaving)
    assert.deepEqual(partitions(claims.owned()), [0, 1])
    claims.release([moving.claim])
    assert.ok(!claims.isGood(moving.claim) && !claims.leaving && claims.isGood(kept.claim))
    assert.deepEqual(partitions(claims.owned()), [0])
    assert.deepEqual(claims.releasing(), [moving.claim])
    claims.acknowledge([moving.claim])
    assert.deepEqual(claims.releasing(), [])
  })

  test("a partition of a recreated topic is offered when the old one is gone", () => {
    const claims = new MemberClaims(rebalanceTimeoutMs)
    claims.aim([seat(0, "old")], 0)
    const [old] = claims.take(0).assigned as [NumberedSeat]
    claims.aim([seat(0, "new")], 1)
    const change = claims.take(1)
    assert.deepEqual([change.assigned.length, change.revoked[0]?.topicId], [0, "old"])
    claims.release([old.claim])
    assert.equal(claims.pending, false, "the coordinator has not heard of the release")
    claims.acknowledge([old.claim])
    assert.equal(claims.take(2).assigned[0]?.topicId, "new")
  })

  test("what is lost at once is told, and its next assignment in a change of its own", () => {
    const claims = new MemberClaims(rebalanceTimeoutMs)
    claims.aim([seat(0)], 0)
    claims.take(0)
    claims.forfeit()
    claims.aim([seat(0)], 1)
    const lost = claims.take(1)
    assert.deepEqual([lost.lost.length, lost.assigned.length], [1, 0])
    const again = claims.take(1)
    assert.deepEqual([again.lost.length, again.assigned.length], [0, 1])
  })

  test("a revocation that is taken back before anybody heard leaves the claim as it is", () => {
    const claims = new MemberClaims(rebalanceTimeoutMs)
    claims.aim([seat(0)], 0)
    const [own] = claims.take(0).assigned as [NumberedSeat]
    claims.aim([], 1)
    claims.aim([seat(0)], 2)
    assert.equal(claims.pending, false)
    assert.ok(claims.isGood(own.claim))
  })

  test("who does not hand over in time loses", () => {
    const claims = new MemberClaims(rebalanceTimeoutMs)
    claims.aim([seat(0)], 0)
    const [own] = claims.take(0).assigned as [NumberedSeat]
    claims.aim([], 50)
    claims.take(60)
    assert.equal(claims.expiresMs, 1050)
    assert.equal(claims.expire(1049), false)
    assert.equal(claims.expire(1050), true)
    assert.equal(claims.isGood(own.claim), false)
    assert.deepEqual(partitions(claims.take(1050).lost), [0])
    assert.equal(claims.expiresMs, Number.POSITIVE_INFINITY)
  })

  test("whatever happens, the owner hears of each partition in turn: assigned, then revoked or lost, then assigned again", () => {
    const step = fc.oneof(
      fc.record({ do: fc.constant("aim" as const), target: fc.subarray([0, 1, 2, 3]), id: fc.constantFrom("a", "b") }),
      fc.record({ do: fc.constant("aimAtOnce" as const), target: fc.subarray([0, 1, 2, 3]) }),
      fc.record({ do: fc.constantFrom("take", "release", "acknowledge", "forfeit", "expire") }),
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const claims = new MemberClaims(rebalanceTimeoutMs)
        const held = new Map<number, number>()
        const asked = new Set<number>()
        const seen = new Set<number>()
        let nowMs = 0
        for (const one of steps) {
          nowMs += 100
          if (one.do === "aim")
            claims.aim(
              one.target.map((partition) => seat(partition, one.id)),
              nowMs,
            )
          else if (one.do === "aimAtOnce")
            claims.aimAtOnce(
              one.target.map((partition) => seat(partition)),
              nowMs,
            )
          else if (one.do === "forfeit") claims.forfeit()
          else if (one.do === "expire") claims.expire(nowMs)
          else if (one.do === "acknowledge") claims.acknowledge(claims.releasing())
          else if (one.do === "release") {
            claims.release([...asked])
            for (const claim of asked) {
              assert.ok(!claims.isGood(claim), "a claim that was released is void")
              for (const [partition, own] of held) if (own === claim) held.delete(partition)
            }
            asked.clear()
          } else {
            const { assigned, revoked, lost, deadlineMs } = claims.take(nowMs)
            assert.ok(deadlineMs >= 0 && deadlineMs <= rebalanceTimeoutMs)
            for (const { partition, claim } of lost) {
              assert.equal(held.get(partition), claim, "lost without having been assigned")
              held.delete(partition)
              asked.delete(claim)
            }
            for (const { partition, claim } of revoked) {
              assert.equal(held.get(partition), claim, "revoked without having been assigned")
              asked.add(claim)
            }
            for (const { partition, claim } of assigned) {
              assert.ok(!held.has(partition), "assigned twice")
              assert.ok(!seen.has(claim), "a number was given out twice")
              seen.add(claim)
              held.set(partition, claim)
            }
          }
        }
      }),
      { numRuns: 500 },
    )
  })
})
