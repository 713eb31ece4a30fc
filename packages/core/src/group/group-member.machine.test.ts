import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ClosedError, ConnectionError, FencedError, InvalidError, NotFoundError } from "@millrace/contract"
import fc from "fast-check"
import { GroupMemberMachine, type MemberCommand, type MemberEvent } from "./group-member.machine.ts"

const gone = new NotFoundError("the topic is gone")
const cut = new ConnectionError("no server", { outcome: "rejected" })
const fenced = new FencedError("another member has this name")

const typesOf = (commands: readonly MemberCommand[]): string[] => commands.map(({ type }) => type)

function machineIn(events: readonly MemberEvent[], onMissing: "fail" | "wait" = "fail"): GroupMemberMachine {
  const machine = new GroupMemberMachine({ onMissing })
  for (const event of events) machine.handle(event)
  return machine
}

describe("a member", () => {
  test("whose caller takes too long leaves, stays away, and joins again when the caller comes back", () => {
    const machine = machineIn([{ type: "joined" }])
    assert.deepEqual(typesOf(machine.handle({ type: "overdue" })), ["leave"])
    assert.deepEqual(typesOf(machine.handle({ type: "left" })), [])
    assert.equal(machine.phase, "away")
    assert.deepEqual(typesOf(machine.handle({ type: "wanted" })), ["join"])
    assert.deepEqual(typesOf(machine.handle({ type: "joined" })), ["follow"])
  })

  test("whose caller comes back while it leaves joins again at once", () => {
    const machine = machineIn([{ type: "joined" }, { type: "overdue" }, { type: "wanted" }])
    assert.deepEqual(typesOf(machine.handle({ type: "left" })), ["join"])
  })

  test("that was asked for before it was overdue does not count that as coming back", () => {
    const machine = machineIn([{ type: "joined" }, { type: "wanted" }, { type: "overdue" }])
    assert.deepEqual(typesOf(machine.handle({ type: "left" })), [])
  })

  test("that loses its connection for good rests and joins again", () => {
    const machine = machineIn([{ type: "joined" }])
    assert.deepEqual(typesOf(machine.handle({ type: "failed", error: cut })), ["drop", "rest"])
    assert.deepEqual(typesOf(machine.handle({ type: "rested" })), ["join"])
    assert.deepEqual(typesOf(machine.handle({ type: "failed", error: cut })), ["rest"])
  })

  test("whose topic is gone tells it once, and looks again when somebody asks", () => {
    const machine = machineIn([{ type: "joined" }])
    assert.deepEqual(typesOf(machine.handle({ type: "failed", error: gone })), ["drop", "tell", "rest"])
    assert.deepEqual(typesOf(machine.handle({ type: "rested" })), [])
    assert.deepEqual(typesOf(machine.handle({ type: "wanted" })), ["join"])
    assert.deepEqual(typesOf(machine.handle({ type: "failed", error: gone })), ["tell", "rest"])
    machine.handle({ type: "wanted" })
    assert.deepEqual(typesOf(machine.handle({ type: "rested" })), ["join"], "asked for while it rested")
  })

  test("whose topic is gone looks again by itself with onMissing wait", () => {
    const machine = machineIn([{ type: "joined" }], "wait")
    assert.deepEqual(typesOf(machine.handle({ type: "failed", error: gone })), ["drop", "rest"])
    assert.deepEqual(typesOf(machine.handle({ type: "rested" })), ["join"])
  })

  test("whose name another one took, or whose membership ends, is over", () => {
    const machine = machineIn([{ type: "joined" }])
    assert.deepEqual(machine.handle({ type: "failed", error: fenced }), [
      { type: "drop" },
      { type: "end", error: fenced },
    ])
    const ended = machineIn([{ type: "joined" }]).handle({ type: "ended" })
    assert.deepEqual(typesOf(ended), ["drop", "end"])
    assert.ok(ended[1]?.type === "end" && ended[1].error instanceof ClosedError)
  })
})

test("whatever happens, in any order: one join or departure at a time, and nothing after the end", () => {
  const events: fc.Arbitrary<MemberEvent> = fc.oneof(
    fc.constantFrom<MemberEvent>(
      { type: "ended" },
      { type: "overdue" },
      { type: "wanted" },
      { type: "rested" },
      { type: "joined" },
      { type: "left" },
    ),
    fc.constantFrom(gone, cut, fenced, new InvalidError("no")).map((error): MemberEvent => ({ type: "failed", error })),
  )
  fc.assert(
    fc.property(
      fc.array(events, { maxLength: 50 }),
      fc.constantFrom("fail" as const, "wait" as const),
      (list, onMissing) => {
        const machine = new GroupMemberMachine({ onMissing })
        let joining = true
        let leaving = false
        let over = false
        for (const event of list) {
          const { phase } = machine
          const commands = typesOf(machine.handle(event))
          if (over) assert.deepEqual(commands, [])
          if (event.type === "joined" || (event.type === "failed" && phase === "joining")) joining = false
          if (event.type === "left" && phase === "leaving") leaving = false
          for (const command of commands) {
            if (command === "join") {
              assert.ok(!joining && !leaving, "two at a time")
              joining = true
            }
            if (command === "leave") {
              assert.ok(!joining && !leaving)
              leaving = true
            }
            if (command === "end") over = true
          }
          assert.equal(machine.phase === "joining", joining && !over)
        }
      },
    ),
  )
})
