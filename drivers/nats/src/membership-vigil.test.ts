import assert from "node:assert/strict"
import { describe, it } from "node:test"
import type { GroupView } from "./groups-view.ts"
import { MembershipVigil } from "./membership-vigil.ts"

const view = (members: readonly number[], passing: readonly number[] = []): GroupView => ({
  group: "g",
  claims: [],
  peers: members.map((member) => ({ member, sessionTimeoutMs: 1000 })),
  passing: passing.map((number) => ({ number, timeoutMs: 500 })),
})

/** Looks often enough, and at gaps of 400 at most. */
function watching(members: readonly number[], passing: readonly number[] = []): MembershipVigil {
  const vigil = new MembershipVigil({ longestGapMs: 400, doubtMs: 400, graceMs: 200 })
  vigil.see(view(members, passing), 0)
  return vigil
}

describe("the watch over a group", () => {
  it("condemns a member whose heartbeat stood still for its session time-out, and not before", () => {
    const vigil = watching([7])
    vigil.hear({ member: 7, beat: 4 })
    for (const nowMs of [300, 600, 900, 999]) {
      vigil.pass(nowMs)
      assert.deepEqual(vigil.verdict().silent, [])
    }
    vigil.pass(1000)
    assert.deepEqual(vigil.verdict().silent, [{ member: 7, beat: 4 }])
  })

  it("begins anew with each new heartbeat, and not with one that is known", () => {
    const vigil = watching([7])
    vigil.hear({ member: 7, beat: 4 })
    for (const nowMs of [300, 600, 900]) vigil.pass(nowMs)
    vigil.hear({ member: 7, beat: 5 })
    for (const nowMs of [1200, 1500, 1800]) vigil.pass(nowMs)
    assert.deepEqual(vigil.verdict().silent, [])
    vigil.hear({ member: 7, beat: 5 })
    vigil.pass(1900)
    assert.deepEqual(vigil.verdict().silent, [{ member: 7, beat: 5 }])
  })

  it("condemns nobody whose heartbeat it does not know, and wants to look it up", () => {
    const vigil = watching([7, 8])
    assert.deepEqual(vigil.doubtful(), [7, 8])
    vigil.hear({ member: 7, beat: -1 })
    for (const nowMs of [400, 800, 1200]) vigil.pass(nowMs)
    assert.deepEqual(vigil.doubtful(), [7, 8])
    assert.deepEqual(vigil.verdict().silent, [{ member: 7, beat: -1 }])
  })

  it("does not count the time in which it did not look, nor that in which it could not hear", () => {
    const stopped = watching([7])
    stopped.hear({ member: 7, beat: 1 })
    stopped.pass(60_000)
    assert.deepEqual(stopped.verdict().silent, [])
    const deaf = watching([7])
    deaf.hear({ member: 7, beat: 1 })
    for (const nowMs of [300, 600, 900]) deaf.pass(nowMs)
    deaf.deafened(1200)
    deaf.pass(1500)
    assert.deepEqual(deaf.verdict().silent, [])
  })

  it("condemns a claim that was not handed over within its owner's time and a grace", () => {
    const vigil = watching([7], [3])
    vigil.pass(400)
    vigil.pass(699)
    assert.deepEqual(vigil.verdict().overdue, [])
    assert.equal(vigil.dueMs(), 700)
    vigil.pass(700)
    assert.deepEqual(vigil.verdict().overdue, [3])
    vigil.see(view([7]), 700)
    assert.deepEqual(vigil.verdict().overdue, [])
  })
})
