import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import type { GroupView } from "./engine/group-view.ts"
import { MembershipVigil } from "./membership-vigil.ts"

function view(peers: Record<number, number>, revoking: Record<number, number> = {}): GroupView {
  return {
    version: "",
    claims: [],
    topicIds: [],
    peers: Object.entries(peers).map(([member, beats]) => ({ member: Number(member), beats, sessionTimeoutMs: 1000 })),
    revoking: Object.entries(revoking).map(([claim, timeoutMs]) => ({ claim: Number(claim), timeoutMs })),
  }
}

function vigil(): MembershipVigil {
  return new MembershipVigil({ longestGapMs: 400, graceMs: 200 })
}

describe("the watch over a group", () => {
  it("condemns a member whose counter stood still for its session timeout, and not before", () => {
    const watch = vigil()
    for (const nowMs of [0, 300, 600, 900, 999]) assert.deepEqual(watch.look(view({ 7: 4 }), nowMs).silent, [])
    assert.deepEqual(watch.look(view({ 7: 4 }), 1000).silent, [{ member: 7, beats: 4 }])
  })

  it("starts anew with each heartbeat", () => {
    const watch = vigil()
    for (const nowMs of [0, 300, 600, 900]) watch.look(view({ 7: 4 }), nowMs)
    for (const nowMs of [1000, 1300, 1600, 1900]) assert.deepEqual(watch.look(view({ 7: 5 }), nowMs).silent, [])
    assert.deepEqual(watch.look(view({ 7: 5 }), 2000).silent.length, 1)
  })

  it("does not count the time in which it did not look itself", () => {
    const watch = vigil()
    watch.look(view({ 7: 4 }), 0)
    assert.deepEqual(watch.look(view({ 7: 4 }), 60_000).silent, [])
    assert.deepEqual(watch.look(view({ 7: 4 }), 60_300).silent, [])
    assert.deepEqual(watch.look(view({ 7: 4 }), 60_600).silent.length, 1)
  })

  it("grants a revoked partition its time and one heartbeat more", () => {
    const watch = vigil()
    for (const nowMs of [0, 400, 699]) assert.deepEqual(watch.look(view({}, { 3: 500 }), nowMs).overdue, [])
    assert.deepEqual(watch.look(view({}, { 3: 500 }), 700).overdue, [3])
  })

  it("says when the next one's time can be over", () => {
    const watch = vigil()
    assert.equal(watch.dueMs(), Number.POSITIVE_INFINITY)
    watch.look(view({ 7: 4 }, { 3: 500 }), 100)
    assert.equal(watch.dueMs(), 800)
    watch.look(view({ 7: 4 }), 400)
    assert.equal(watch.dueMs(), 1100)
  })

  it("never condemns one that beats in time, however irregular its own looks are", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 5000 }), { maxLength: 50 }), (gaps) => {
        const watch = vigil()
        let nowMs = 0
        for (const gapMs of gaps) {
          nowMs += gapMs
          const beats = Math.floor(nowMs / 999)
          assert.deepEqual(watch.look(view({ 7: beats }), nowMs).silent, [])
        }
      }),
    )
  })
})
