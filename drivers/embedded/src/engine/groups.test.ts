import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { kindOf, orders, returns, storeWithGroup } from "./group-fixture.test-support.ts"

describe("groups in the catalog", () => {
  it("are made once, described and deleted", () => {
    const fixture = storeWithGroup(2)
    assert.equal(
      kindOf(() => fixture.call("groups.create", { group: "workers", topic: orders })),
      "already-exists",
    )
    assert.equal(
      kindOf(() => fixture.call("groups.create", { group: "workers", topic: returns })),
      "not-found",
    )
    assert.deepEqual(fixture.described(), {})
    fixture.call("groups.delete", { group: "workers", topic: orders })
    assert.equal(
      kindOf(() => fixture.described()),
      "not-found",
    )
    assert.equal(
      kindOf(() => fixture.call("groups.delete", { group: "workers", topic: orders })),
      "not-found",
    )
  })

  it("cannot be joined when they or a topic do not exist", () => {
    const fixture = storeWithGroup(2)
    assert.equal(
      kindOf(() => fixture.join("a", { group: "nobody" })),
      "not-found",
    )
    assert.equal(
      kindOf(() => fixture.join("a", { topics: [orders, returns] })),
      "not-found",
    )
    assert.equal(fixture.rows("group_member"), 0)
  })

  it("take their members' claims with them", () => {
    const fixture = storeWithGroup(2)
    const { member } = fixture.join("a")
    fixture.call("groups.delete", { group: "workers", topic: orders })
    assert.equal(fixture.view(member), undefined)
    assert.equal(
      kindOf(() => fixture.join("a", { returning: [1] })),
      "not-found",
    )
    for (const table of ["group_member", "group_subscription", "group_claim", "consumer_group"]) {
      assert.equal(fixture.rows(table), 0, table)
    }
  })

  it("of one name on other topics are balanced anew over what is left", () => {
    const fixture = storeWithGroup(2)
    fixture.makeTopic(returns, 2)
    fixture.call("groups.create", { group: "workers", topic: returns })
    const both = fixture.join("both", { topics: [orders, returns] })
    const one = fixture.join("one")
    fixture.drain(both.member)
    assert.deepEqual(fixture.partitions(one.member), [0, 1])
    fixture.call("groups.delete", { group: "workers", topic: returns })
    fixture.drain(one.member)
    assert.deepEqual([fixture.claims(both.member).length, fixture.claims(one.member).length], [1, 1])
  })

  it("of one name on other topics stay untouched", () => {
    const fixture = storeWithGroup(2)
    fixture.makeTopic(returns, 2)
    fixture.call("groups.create", { group: "workers", topic: returns })
    const both = fixture.join("both", { topics: [orders, returns] })
    fixture.call("groups.delete", { group: "workers", topic: returns })
    assert.deepEqual(
      fixture.view(both.member)?.claims.map(({ topic, partition }) => `${topic}/${partition}`),
      ["orders/0", "orders/1"],
    )
  })
})
