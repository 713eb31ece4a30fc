import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { groupChecks } from "./group-check.ts"
import { GroupFixture, orders } from "./group-fixture.test-support.ts"

/** A store in the middle of a hand-over, with the catalog's tables as far as the checks look at them. */
function busyStore(): GroupFixture {
  const fixture = new GroupFixture()
  fixture.makeTopic(orders, 4)
  fixture.call("groups.create", { group: "workers", topic: orders })
  fixture.join("a")
  fixture.join("b")
  const entries = [{ ...orders, partition: 3, offset: 7n, lineage: "1.0" }]
  fixture.call("offsets.store", { owner: { kind: "consumer", name: "reader" }, entries })
  fixture.execute(`
    CREATE TABLE topic (id INTEGER PRIMARY KEY);
    CREATE TABLE topic_partition (topic INTEGER, partition INTEGER);
    INSERT INTO topic VALUES (1);
    INSERT INTO topic_partition VALUES (1, 0), (1, 1), (1, 2), (1, 3);
  `)
  return fixture
}

function problems(fixture: GroupFixture): string[] {
  return groupChecks.flatMap(({ sql, problem }) => fixture.query(sql).map(problem))
}

const damages: readonly (readonly [what: string, sql: string, problem: RegExp])[] = [
  ["an offset of no topic", "UPDATE stored_offset SET topic = 9", /offsets of consumer reader .* not exist \(9\)/],
  ["an offset of no partition", "UPDATE stored_offset SET partition = 4", /offset 7 .* partition 4 .* out of range/],
  ["an offset below 0", "UPDATE stored_offset SET next = -1", /offset -1 .* out of range/],
  ["a group of no topic", "UPDATE consumer_group SET topic = 9", /group workers .* not exist \(9\)/],
  ["a subscription of nobody", "DELETE FROM group_member WHERE id = 2", /member 2 subscribes/],
  [
    "a member without a subscription",
    "DELETE FROM group_subscription WHERE member = 2",
    /member b \(2\) subscribes to nothing/,
  ],
  [
    "a claim of nobody",
    "UPDATE group_claim SET member = 9 WHERE partition = 0",
    /claim \d+ on partition 0 .* nobody's/,
  ],
  ["a claim for no heir", "UPDATE group_claim SET heir = 9 WHERE heir IS NOT NULL", /nobody's/],
  [
    "a claim on no partition",
    "UPDATE group_claim SET partition = 9 WHERE partition = 0",
    /partition 9, which group 1 has not/,
  ],
  ["a claim twice", "UPDATE group_claim SET claim = 3", /claim 3 was given 4 times/],
  [
    "a counter that was set back",
    "UPDATE group_claim_counter SET next = 2",
    /counter of claims is 2, though \d+ is in use/,
  ],
]

describe("the offline check of groups and offsets", () => {
  it("finds nothing wrong with a store in use", () => {
    assert.deepEqual(problems(busyStore()), [])
  })

  for (const [what, sql, problem] of damages) {
    it(`finds ${what}`, () => {
      const fixture = busyStore()
      fixture.execute(sql)
      assert.match(problems(fixture).join("\n"), problem)
    })
  }
})
