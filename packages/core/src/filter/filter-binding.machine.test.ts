import assert from "node:assert/strict"
import { createHash } from "node:crypto"
import { describe, test } from "node:test"
import fc from "fast-check"
import { FilterBindingMachine, type FilterOutcome, mostRevisions, operationsKept } from "./filter-binding.machine.ts"
import type { FilterCommand } from "./filter-event.ts"

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex")

class Group {
  readonly machine = new FilterBindingMachine()
  #operations = 0

  do(command: FilterCommand, operation?: string): FilterOutcome {
    this.#operations++
    return this.machine.handle({
      operation: operation ?? `op ${this.#operations}`,
      command,
      atMicros: BigInt(this.#operations),
    })
  }

  get inForce(): string {
    const binding = this.machine.binding
    return binding === undefined ? "none" : `${binding.revision.revision} ${binding.revision.state}`
  }
}

const configure = (text: string): FilterCommand => ({ type: "configure", text })
const enable = (revision: number, enabled = true): FilterCommand => ({ type: "enable", revision, enabled })
const reasonOf = (outcome: FilterOutcome): string => (outcome.applied ? "applied" : outcome.reason)

describe("a group's filter", () => {
  test("a filter that is configured is its first revision, enabled and in force", () => {
    const group = new Group()
    const outcome = group.do(configure("A"))
    assert.equal(reasonOf(outcome), "applied")
    assert.deepEqual(group.machine.binding, {
      revision: { revision: 1, digest: sha256("A"), text: "A", state: "enabled", createdMicros: 1n },
      sinceMicros: 1n,
    })
    assert.equal(group.machine.newest, 1)
  })

  test("the same filter again keeps the binding, another one is a conflict that names both digests", () => {
    const group = new Group()
    group.do(configure("A"))
    assert.equal(reasonOf(group.do(configure("A"))), "applied")
    assert.equal(group.machine.binding?.sinceMicros, 1n)
    const refused = group.do(configure("B"))
    assert.ok(!refused.applied && refused.reason === "conflict")
    assert.match(refused.message, new RegExp(`${sha256("A")}.*${sha256("B")}`))
    assert.equal(group.machine.revisions.length, 1)
  })

  test("a revision is a draft that selects nothing until it is enabled; then it takes the place of the one in force", () => {
    const group = new Group()
    group.do(configure("A"))
    assert.equal(reasonOf(group.do({ type: "revise", expected: 1, text: "B" })), "applied")
    assert.equal(group.machine.revision(2)?.state, "draft")
    assert.equal(group.inForce, "1 enabled")
    group.do(enable(2))
    assert.equal(group.inForce, "2 enabled")
    assert.equal(group.machine.binding?.sinceMicros, 3n)
    group.do(enable(1))
    assert.equal(group.inForce, "1 enabled")
  })

  test("a revision that expects another newest one is refused", () => {
    const group = new Group()
    assert.equal(reasonOf(group.do({ type: "revise", expected: 1, text: "B" })), "conflict")
    assert.equal(reasonOf(group.do({ type: "revise", expected: 0, text: "B" })), "applied")
    assert.equal(reasonOf(group.do({ type: "revise", expected: 0, text: "C" })), "conflict")
    assert.equal(group.inForce, "none")
  })

  test("disabling the revision in force keeps it in force, disabled; another revision leaves it alone", () => {
    const group = new Group()
    group.do(configure("A"))
    group.do({ type: "revise", expected: 1, text: "B" })
    group.do(enable(2, false))
    assert.equal(group.inForce, "1 enabled")
    group.do(enable(1, false))
    assert.equal(group.inForce, "1 disabled")
    assert.equal(reasonOf(group.do(configure("A"))), "applied")
    assert.equal(group.inForce, "1 disabled")
    group.do(enable(1))
    assert.equal(group.inForce, "1 enabled")
  })

  test("released, the revisions stay and can be put in force again, but for drafts and disabled ones", () => {
    const group = new Group()
    group.do(configure("A"))
    group.do({ type: "revise", expected: 1, text: "B" })
    group.do({ type: "release" })
    assert.equal(group.inForce, "none")
    assert.equal(reasonOf(group.do({ type: "release" })), "not_found")
    assert.equal(reasonOf(group.do({ type: "bind", revision: 2 })), "revision_disabled")
    assert.equal(reasonOf(group.do({ type: "bind", revision: 3 })), "not_found")
    group.do(enable(2))
    assert.equal(group.inForce, "none", "enabling puts nothing in force where nothing is")
    assert.equal(reasonOf(group.do({ type: "bind", revision: 2 })), "applied")
    assert.equal(group.inForce, "2 enabled")
    assert.equal(reasonOf(group.do({ type: "bind", revision: 1 })), "conflict")
    group.do({ type: "release" })
    group.do(configure("A"))
    assert.equal(group.inForce, "1 enabled", "a known filter is not stored twice")
    group.do({ type: "release" })
    group.do(enable(1, false))
    assert.equal(reasonOf(group.do(configure("A"))), "revision_disabled")
  })

  test("deleted, everything is gone, and numbers are not given out again", () => {
    const group = new Group()
    assert.equal(reasonOf(group.do({ type: "delete" })), "not_found")
    group.do(configure("A"))
    assert.equal(reasonOf(group.do({ type: "delete" })), "applied")
    assert.equal(group.inForce, "none")
    assert.deepEqual(group.machine.revisions, [])
    assert.equal(reasonOf(group.do(enable(1))), "not_found")
    assert.equal(reasonOf(group.do({ type: "revise", expected: 0, text: "B" })), "conflict")
    group.do(configure("A"))
    assert.equal(group.inForce, "2 enabled")
  })

  test("an operation that was recorded is not carried out again, and answers what became of it then", () => {
    const group = new Group()
    const first = group.do(configure("A"), "mine")
    group.do({ type: "delete" })
    assert.equal(group.do(configure("A"), "mine"), first)
    assert.equal(group.inForce, "none")
    assert.equal(group.machine.differs("mine", configure("A")), false)
    assert.equal(group.machine.differs("mine", configure("B")), true)
    assert.equal(group.machine.differs("other", configure("B")), false)
    for (let i = 0; i < operationsKept; i++) group.do({ type: "release" })
    assert.equal(group.machine.outcome("mine"), undefined)
  })

  test("a group has so many revisions and no more", () => {
    const group = new Group()
    for (let i = 0; i < mostRevisions; i++) group.do({ type: "revise", expected: i, text: `${i}` })
    assert.equal(group.machine.revisions.length, mostRevisions)
    assert.equal(reasonOf(group.do({ type: "revise", expected: mostRevisions, text: "more" })), "capacity_exhausted")
    assert.equal(reasonOf(group.do(configure("more"))), "capacity_exhausted")
  })
})

// ---- whatever is asked ------------------------------------------------------------------------------------

const number = fc.integer({ min: 0, max: 5 })
const text = fc.constantFrom("A", "B", "C")
const command: fc.Arbitrary<FilterCommand> = fc.oneof(
  fc.record({ type: fc.constant("configure" as const), text }),
  fc.record({ type: fc.constant("bind" as const), revision: number }),
  fc.record({ type: fc.constant("revise" as const), expected: number, text }),
  fc.record({ type: fc.constant("enable" as const), revision: number, enabled: fc.boolean() }),
  fc.constant({ type: "release" as const }),
  fc.constant({ type: "delete" as const }),
)

test("whatever is asked: a judgement tells what will become of it, and nobody gets another filter unasked", () => {
  fc.assert(
    fc.property(fc.array(command, { maxLength: 40 }), (commands) => {
      const group = new Group()
      let largest = 0
      for (const each of commands) {
        const before = group.machine.binding
        const judged = group.machine.judge(each)
        const kept = [...group.machine.revisions]
        const outcome = group.do(each)
        const after = group.machine.binding
        assert.equal(outcome.applied, judged.outcome.applied)
        if (!judged.changes) {
          assert.deepEqual(outcome, judged.outcome)
          assert.deepEqual(after, before)
          assert.deepEqual(group.machine.revisions, kept)
        }
        if (!outcome.applied) assert.equal(judged.changes, false)
        if (before !== undefined && after?.revision.digest !== before.revision.digest) {
          assert.ok(["enable", "release", "delete"].includes(each.type), `${each.type} took a filter out of force`)
        }
        if (after !== undefined && before?.revision.revision !== after.revision.revision) {
          assert.equal(after.revision.state, "enabled")
        }
        assert.ok(group.machine.newest >= largest)
        largest = group.machine.newest
        const numbers = group.machine.revisions.map(({ revision }) => revision)
        assert.deepEqual(
          numbers,
          numbers.toSorted((a, b) => a - b),
        )
        assert.equal(new Set(numbers).size, numbers.length)
      }
    }),
  )
})
