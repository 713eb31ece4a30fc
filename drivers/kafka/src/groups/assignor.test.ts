import assert from "node:assert/strict"
import { describe, test } from "node:test"
import fc from "fast-check"
import type { Assignment, AssignorMember, TopicPart } from "./assignor.ts"
import { cooperativeStickyAssignor } from "./cooperative-sticky-assignor.ts"
import { rangeAssignor } from "./range-assignor.ts"

function member(memberId: string, topics: readonly string[], more: Partial<AssignorMember> = {}): AssignorMember {
  return { memberId, instanceId: undefined, topics, owned: [], generation: -1, ...more }
}

function parts(topic: string, ...partitions: number[]): TopicPart[] {
  return partitions.map((partition) => ({ topic, partition }))
}

function text(assignment: Assignment): Record<string, string> {
  return Object.fromEntries(
    [...assignment].map(([memberId, list]) => [
      memberId,
      list
        .map(({ topic, partition }) => `${topic}${partition}`)
        .toSorted()
        .join(" "),
    ]),
  )
}

describe("the range assignor", () => {
  // The example of Kafka's own documentation of RangeAssignor.
  test("cuts each topic into runs, the first ones longer", () => {
    const members = [member("C1", ["t", "u"]), member("C0", ["t", "u"])]
    const counts = new Map([
      ["t", 3],
      ["u", 3],
    ])
    assert.deepEqual(text(rangeAssignor.assign(members, counts)), { C0: "t0 t1 u0 u1", C1: "t2 u2" })
  })

  test("serves members with a stable name first, by it", () => {
    const members = [
      member("a", ["t"]),
      member("z", ["t"], { instanceId: "1" }),
      member("y", ["t"], { instanceId: "2" }),
    ]
    assert.deepEqual(text(rangeAssignor.assign(members, new Map([["t", 4]]))), { z: "t0 t1", y: "t2", a: "t3" })
  })

  test("gives nobody a topic that he did not ask for, or that is not there", () => {
    const members = [member("a", ["t", "missing"]), member("b", ["u"])]
    assert.deepEqual(
      text(
        rangeAssignor.assign(
          members,
          new Map([
            ["t", 1],
            ["u", 1],
          ]),
        ),
      ),
      { a: "t0", b: "u0" },
    )
  })
})

describe("the cooperative sticky assignor", () => {
  const counts = new Map([["t", 4]])

  test("a new member gets what nobody has; what is to move is given to nobody in this round", () => {
    const first = member("a", ["t"], { owned: parts("t", 0, 1, 2, 3), generation: 1 })
    const round = cooperativeStickyAssignor.assign([first, member("b", ["t"])], counts)
    const kept = round.get("a") as readonly TopicPart[]
    assert.equal(kept.length, 2)
    assert.deepEqual(round.get("b"), [])
    const next = cooperativeStickyAssignor.assign(
      [{ ...first, owned: kept, generation: 2 }, member("b", ["t"])],
      counts,
    )
    assert.deepEqual(text(new Map([["a", next.get("a") as TopicPart[]]])), text(new Map([["a", kept]])))
    assert.equal(next.get("b")?.length, 2)
  })

  test("of two that say to have a partition, the one of the newer generation has it; of the same, neither", () => {
    const [old, fresh] = [
      { owned: parts("t", 0), generation: 1 },
      { owned: parts("t", 0), generation: 2 },
    ]
    const one = cooperativeStickyAssignor.assign(
      [member("a", ["t"], old), member("b", ["t"], fresh)],
      new Map([["t", 1]]),
    )
    // The older still says so: it is to hear that it has lost it before the newer goes on.
    assert.deepEqual(text(one), { a: "", b: "" })
    const both = cooperativeStickyAssignor.assign(
      [member("a", ["t"], old), member("b", ["t"], old)],
      new Map([["t", 1]]),
    )
    assert.deepEqual(text(both), { a: "", b: "" })
  })

  const groups = fc.record({
    counts: fc.dictionary(fc.constantFrom("t", "u", "v"), fc.integer({ min: 0, max: 12 }), { minKeys: 1 }),
    subscriptions: fc.array(fc.subarray(["t", "u", "v"], { minLength: 1 }), { minLength: 1, maxLength: 6 }),
  })

  test("from any start, rounds end: every partition with one who reads it, as even as it can be, and then nothing moves any more", () => {
    fc.assert(
      fc.property(groups, fc.array(fc.nat(5), { maxLength: 36 }), ({ counts: list, subscriptions }, owners) => {
        const counts = new Map(Object.entries(list))
        const all = [...counts].flatMap(([topic, count]) => parts(topic, ...Array(count).keys()))
        let members = subscriptions.map((topics, nth) =>
          member(`m${nth}`, topics, { owned: all.filter((_, index) => owners[index] === nth), generation: 1 }),
        )
        let before = ""
        for (let round = 2; ; round++) {
          assert.ok(round < 6, "it does not come to rest")
          const given = cooperativeStickyAssignor.assign(members, counts)
          const seen = new Set<string>()
          for (const { memberId, topics } of members) {
            for (const { topic, partition } of given.get(memberId) ?? []) {
              assert.ok(topics.includes(topic), "a topic that the member does not read")
              assert.ok(!seen.has(`${topic}${partition}`), "given twice")
              const claimant = members.find(
                (one) =>
                  one.memberId !== memberId &&
                  one.owned.some((part) => part.topic === topic && part.partition === partition),
              )
              assert.equal(claimant, undefined, "given while another still has it")
              seen.add(`${topic}${partition}`)
            }
          }
          members = members.map((one) => ({ ...one, owned: given.get(one.memberId) ?? [], generation: round }))
          const now = JSON.stringify(text(given))
          if (now === before) break
          before = now
        }
        for (const part of all) {
          const readers = members.filter(({ topics }) => topics.includes(part.topic))
          const owner = readers.find(({ owned }) =>
            owned.some((own) => own.topic === part.topic && own.partition === part.partition),
          )
          assert.equal(owner === undefined, readers.length === 0, "a partition that somebody reads has no owner")
          if (owner === undefined) continue
          const least = Math.min(...readers.map(({ owned }) => owned.length))
          assert.ok(owner.owned.length - least <= 1, "moving this one would be more even")
        }
      }),
      { numRuns: 300 },
    )
  })
})
