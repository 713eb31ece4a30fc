import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { kindOf, orders, returns, storeWithGroup } from "./group-fixture.test-support.ts"
import type { ViewAnswer } from "./group-view.ts"

describe("the members of a group", () => {
  it("share the partitions: a newcomer gets the free ones at once, the moving ones when they are released", () => {
    const fixture = storeWithGroup(4)
    const a = fixture.join("a")
    assert.deepEqual(fixture.partitions(a.member), [0, 1, 2, 3])
    const kept = fixture.claims(a.member)
    const b = fixture.join("b")
    assert.deepEqual(fixture.partitions(a.member), [0, 1, -2, -3])
    assert.deepEqual(fixture.partitions(b.member), [])
    fixture.drain(a.member)
    assert.deepEqual(fixture.partitions(a.member), [0, 1])
    assert.deepEqual(fixture.partitions(b.member), [2, 3])
    assert.deepEqual(fixture.claims(a.member), kept.slice(0, 2), "what stays keeps its claim")
    assert.deepEqual(fixture.described(), { a: [0, 1], b: [2, 3] })
  })

  it("make the generation grow, and only when something changes", () => {
    const fixture = storeWithGroup(4)
    const seen = [fixture.describe().generation]
    const a = fixture.join("a")
    seen.push(fixture.describe().generation)
    const b = fixture.join("b")
    seen.push(fixture.describe().generation)
    fixture.drain(a.member)
    seen.push(fixture.describe().generation)
    fixture.call("groups.beat", { member: a.member })
    fixture.call("groups.observe", { member: b.member })
    assert.equal(fixture.describe().generation, seen.at(-1))
    fixture.call("groups.leave", { member: b.member })
    seen.push(fixture.describe().generation)
    assert.deepEqual(
      seen,
      [...new Set(seen)].sort((x, y) => x - y),
    )
  })

  it("wake the others only when something changes", () => {
    const fixture = storeWithGroup(2)
    const a = fixture.join("a")
    const version = a.view.version
    fixture.changes.length = 0
    fixture.call("groups.beat", { member: a.member })
    assert.deepEqual(fixture.changes, [])
    assert.equal(fixture.call("groups.watch", { member: a.member, version, maxWaitMs: 1 }), undefined)
    fixture.join("b")
    assert.deepEqual(fixture.changes, ["groups"])
    assert.equal(fixture.call("groups.watch", { member: a.member, version, maxWaitMs: 1 }), true)
  })

  it("free their partitions when they leave", () => {
    const fixture = storeWithGroup(3)
    const a = fixture.join("a")
    const b = fixture.join("b")
    fixture.drain(a.member)
    fixture.call("groups.leave", { member: a.member })
    assert.deepEqual(fixture.partitions(b.member), [0, 1, 2])
    assert.equal(fixture.view(a.member), undefined)
    fixture.call("groups.leave", { member: a.member })
    fixture.call("groups.leave", { member: b.member })
    assert.equal(fixture.rows("group_claim"), 0)
  })

  it("are removed at another's heartbeat when their process is gone", () => {
    const fixture = storeWithGroup(2)
    const a = fixture.join("a")
    fixture.processes.runAs(2)
    const b = fixture.join("b")
    fixture.drain(a.member)
    fixture.processes.end(1)
    assert.deepEqual(fixture.described(), { b: [1] }, "who is gone is not described")
    const view = fixture.call<ViewAnswer>("groups.beat", { member: b.member })
    assert.deepEqual(
      view?.claims.map(({ partition }) => partition),
      [0, 1],
    )
    assert.equal(fixture.view(a.member), undefined)
  })

  it("are removed when a new one joins and their process is gone, so that it need not wait", () => {
    const fixture = storeWithGroup(2)
    fixture.join("a")
    fixture.processes.end(1)
    fixture.processes.runAs(2)
    assert.deepEqual(
      fixture.join("b").view.claims.map(({ partition }) => partition),
      [0, 1],
    )
  })

  it("elsewhere are not judged by their process", () => {
    const fixture = storeWithGroup(2)
    fixture.processes.runAs(7, "elsewhere")
    const a = fixture.join("a")
    fixture.processes.end(7)
    fixture.processes.runAs(2)
    const b = fixture.join("b")
    fixture.call("groups.beat", { member: b.member })
    assert.notEqual(fixture.view(a.member), undefined)
  })

  it("are expelled only when they have not stirred since they were seen", () => {
    const fixture = storeWithGroup(2)
    const a = fixture.join("a")
    const b = fixture.join("b")
    const [peer] = fixture.view(b.member)?.peers ?? []
    assert.equal(peer?.member, a.member)
    fixture.call("groups.beat", { member: a.member })
    const seen = { member: a.member, beats: peer?.beats as number }
    fixture.call("groups.expel", { member: b.member, silent: [seen], overdue: [] })
    assert.notEqual(fixture.view(a.member), undefined)
    fixture.call("groups.expel", { member: b.member, silent: [{ ...seen, beats: seen.beats + 1 }], overdue: [] })
    assert.equal(fixture.view(a.member), undefined)
    assert.deepEqual(fixture.partitions(b.member), [0, 1])
    assert.equal(
      fixture.call("groups.beat", { member: a.member }),
      undefined,
      "who was expelled learns it at its heartbeat",
    )
  })

  it("lose a revoked partition that they do not release in time, and nothing else", () => {
    const fixture = storeWithGroup(2)
    const a = fixture.join("a", { rebalanceTimeoutMs: 500 })
    const b = fixture.join("b")
    const revoking = fixture.view(b.member)?.revoking ?? []
    assert.deepEqual(
      revoking.map(({ timeoutMs }) => timeoutMs),
      [500],
    )
    const overdue = revoking.map(({ claim }) => claim)
    fixture.call("groups.expel", { member: b.member, silent: [], overdue })
    assert.deepEqual(fixture.partitions(a.member), [0])
    assert.deepEqual(fixture.partitions(b.member), [1])
    assert.notDeepEqual(fixture.claims(b.member), overdue, "the claim is a new one")
    fixture.call("groups.release", { member: a.member, claims: overdue })
    assert.deepEqual(fixture.partitions(b.member), [1], "a late release changes nothing")
  })

  it("keep what was wanted back when its heir is gone", () => {
    const fixture = storeWithGroup(2)
    const a = fixture.join("a")
    const b = fixture.join("b")
    const before = fixture.claims(a.member)
    fixture.call("groups.leave", { member: b.member })
    assert.deepEqual(fixture.partitions(a.member), [0, 1])
    assert.deepEqual(fixture.claims(a.member), before)
  })

  it("cannot release what is another's", () => {
    const fixture = storeWithGroup(2)
    const a = fixture.join("a")
    const b = fixture.join("b")
    fixture.drain(a.member)
    const claims = fixture.claims(a.member)
    fixture.call("groups.release", { member: b.member, claims })
    assert.deepEqual(fixture.claims(a.member), claims)
  })

  it("keep a partition that is no longer wanted back, though its time is over for one who looked before", () => {
    const fixture = storeWithGroup(3)
    const a = fixture.join("a")
    const b = fixture.join("b")
    const c = fixture.join("c")
    const overdue = (fixture.view(b.member)?.revoking ?? []).map(({ claim }) => claim)
    assert.equal(overdue.length, 2)
    fixture.call("groups.leave", { member: c.member })
    assert.deepEqual(fixture.partitions(a.member), [0, 1, -2])
    const kept = fixture.claims(a.member, { revoking: false })
    fixture.call("groups.expel", { member: b.member, silent: [], overdue })
    assert.deepEqual(fixture.claims(a.member), kept)
    assert.deepEqual(fixture.partitions(b.member), [2])
  })

  it("pass everything on at once when both the owner and the heir of a partition are gone", () => {
    const fixture = storeWithGroup(2)
    fixture.makeTopic(returns, 2)
    fixture.call("groups.create", { group: "workers", topic: returns })
    const heir = fixture.join("heir", { topics: [orders, returns] })
    const owner = fixture.join("owner")
    fixture.drain(heir.member)
    assert.deepEqual(fixture.partitions(owner.member), [0, 1])
    fixture.deleteTopic(returns)
    assert.deepEqual(fixture.partitions(owner.member), [0, -1], "balanced over what is left")
    fixture.processes.end(1)
    fixture.processes.runAs(2)
    assert.deepEqual(
      fixture.join("third").view.claims.map(({ partition }) => partition),
      [0, 1],
    )
  })

  it("get the partitions that are added", () => {
    const fixture = storeWithGroup(1)
    const a = fixture.join("a")
    const b = fixture.join("b")
    fixture.addPartitions(orders, 3)
    fixture.call("groups.beat", { member: b.member })
    assert.deepEqual([fixture.partitions(a.member)?.length, fixture.partitions(b.member)?.length], [2, 2])
  })

  it("lose a deleted topic's claims, and find the topic again when it is made anew", () => {
    const fixture = storeWithGroup(2)
    const a = fixture.join("a")
    const old = fixture.claims(a.member)
    fixture.deleteTopic(orders)
    assert.deepEqual(fixture.call<ViewAnswer>("groups.beat", { member: a.member })?.claims, [])
    fixture.makeTopic(orders, 2)
    const view = fixture.call<ViewAnswer>("groups.beat", { member: a.member })
    assert.deepEqual(
      view?.claims.map(({ partition }) => partition),
      [0, 1],
    )
    assert.equal(
      view?.claims.some(({ claim }) => old.includes(claim)),
      false,
    )
    assert.deepEqual(fixture.described(), { a: [0, 1] })
  })

  it("of two topics are balanced over both, and read only what they subscribe to", () => {
    const fixture = storeWithGroup(1)
    fixture.makeTopic(returns, 1)
    fixture.call("groups.create", { group: "workers", topic: returns })
    const a = fixture.join("a", { topics: [orders, returns] })
    const b = fixture.join("b", { topics: [orders, returns] })
    fixture.drain(a.member)
    assert.deepEqual([fixture.claims(a.member).length, fixture.claims(b.member).length], [1, 1])
    const c = fixture.join("c", { topics: [orders] })
    assert.deepEqual(fixture.view(c.member)?.claims, [])
  })
})

describe("a member with a stable id", () => {
  it("takes the place of its former self: the same partitions, under new claims, without waiting", () => {
    const fixture = storeWithGroup(4)
    const a = fixture.join("a")
    const b = fixture.join("b")
    fixture.drain(a.member)
    const old = fixture.claims(a.member)
    fixture.processes.runAs(2)
    const again = fixture.join("a")
    assert.deepEqual(
      again.view.claims.map(({ partition }) => partition),
      [0, 1],
    )
    assert.equal(
      again.view.claims.some(({ claim }) => old.includes(claim)),
      false,
    )
    assert.equal(fixture.view(a.member), undefined, "the former self is out")
    assert.deepEqual(fixture.partitions(b.member), [2, 3], "nobody else is touched")
  })

  it("inherits what its former self was to get, and does not get what was promised to others", () => {
    const fixture = storeWithGroup(2)
    const a = fixture.join("a")
    fixture.join("b")
    const b = fixture.join("b")
    fixture.drain(a.member)
    assert.deepEqual(fixture.partitions(b.member), [1])
    const c = storeWithGroup(2)
    const owner = c.join("a")
    const heir = c.join("b")
    const owner2 = c.join("a")
    assert.deepEqual(c.partitions(owner.member), undefined)
    assert.deepEqual(c.partitions(owner2.member), [0])
    assert.deepEqual(c.partitions(heir.member), [1])
  })

  it("that was replaced cannot come back", () => {
    const fixture = storeWithGroup(2)
    fixture.join("a")
    fixture.join("a")
    assert.equal(
      kindOf(() => fixture.join("a", { returning: [1] })),
      "fenced",
    )
  })

  it("that was only taken for dead comes back", () => {
    const fixture = storeWithGroup(2)
    const a = fixture.join("a")
    const b = fixture.join("b")
    fixture.call("groups.expel", { member: b.member, silent: [{ member: a.member, beats: 0 }], overdue: [] })
    const again = fixture.join("a", { returning: [1] })
    fixture.drain(b.member)
    assert.deepEqual(fixture.partitions(again.member)?.length, 1)
  })

  it("comes back to a topic that was made anew meanwhile, with the group made anew too", () => {
    const fixture = storeWithGroup(2)
    fixture.join("a")
    fixture.deleteTopic(orders)
    fixture.makeTopic(orders, 2)
    const b = fixture.join("b", { returning: [1] })
    assert.deepEqual(fixture.partitions(b.member), [0, 1])
  })

  it("is another member on another topic", () => {
    const fixture = storeWithGroup(2)
    fixture.makeTopic(returns, 2)
    fixture.call("groups.create", { group: "workers", topic: returns })
    const a = fixture.join("a")
    const elsewhere = fixture.join("a", { topics: [returns] })
    assert.deepEqual(fixture.partitions(a.member), [0, 1])
    assert.deepEqual(fixture.partitions(elsewhere.member), [0, 1])
  })
})
