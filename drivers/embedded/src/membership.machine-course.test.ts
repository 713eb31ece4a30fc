import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { DiskFullError, StorageError } from "@millrace/contract"
import fc from "fast-check"
import type { GroupView } from "./engine/group-view.ts"
import { type MembershipCall, type MembershipCommand, MembershipMachine } from "./membership.machine.ts"

const options = { sessionTimeoutMs: 10_000, rebalanceTimeoutMs: 3000 }

function viewOf(claim: number): GroupView {
  const claims = [{ claim, stream: "s", topic: "t", partition: claim, revoking: false }]
  return { version: String(claim), claims, peers: [], revoking: [], topicIds: [5] }
}

describe("the machine of a member, driven at random", () => {
  it("under any course of events makes one call at a time, always has a next step, and settles every ticket once", () => {
    const answer = fc.constantFrom("view", "changed view", "gone", "passing failure", "failure for good")
    const step = fc.oneof(
      fc.record({ do: fc.constant("answer"), how: answer }),
      fc.record({ do: fc.constantFrom("due", "watched", "release", "leave", "take"), how: fc.constant("") }),
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const machine = new MembershipMachine(options)
        const open = new Set<number>()
        let nowMs = 0
        let under: MembershipCall | undefined
        let armed = false
        let watching = 0
        let ended = false
        let tickets = 0
        let claims = 0
        let held: number[] = []
        const carryOut = (commands: readonly MembershipCommand[]): void => {
          for (const command of commands) {
            if (command.type === "call") {
              assert.equal(under, undefined, "one call at a time")
              under = command.call
            } else if (command.type === "settle") {
              for (const ticket of command.tickets) assert.ok(open.delete(ticket), "a ticket is settled once")
            } else if (command.type === "end") {
              assert.equal(ended, false, "the end comes once")
              ended = true
            } else {
              assert.equal(ended, false, `${command.type} after the end`)
              if (command.type === "arm") armed = true
              if (command.type === "watch") assert.equal(++watching, 1, "one watch at a time")
            }
          }
          assert.ok(ended || under !== undefined || armed, "there is a next step")
        }
        const respond = (how: string): void => {
          const call = under
          if (call === undefined) return
          under = undefined
          const seen = viewOf(how === "changed view" ? ++claims : claims)
          if (how === "passing failure")
            carryOut(machine.handle({ type: "failed", nowMs, error: new DiskFullError("") }))
          else if (how === "failure for good") {
            carryOut(machine.handle({ type: "failed", nowMs, error: new StorageError("") }))
          } else if (call.name === "join")
            carryOut(machine.handle({ type: "joined", nowMs, member: ++claims, view: seen }))
          else if (call.name === "leave") carryOut(machine.handle({ type: "left", nowMs }))
          else carryOut(machine.handle({ type: "viewed", nowMs, view: how === "gone" ? undefined : seen }))
        }
        carryOut(machine.start(nowMs))
        for (const { do: action, how } of steps) {
          nowMs += 100
          if (action === "answer") respond(how)
          else if (action === "due" && armed && !ended) {
            armed = false
            carryOut(machine.handle({ type: "due", nowMs }))
          } else if (action === "watched" && watching === 1) {
            watching = 0
            carryOut(machine.handle({ type: "watched", nowMs, outcome: "changed" }))
          } else if (action === "take") held = machine.take(nowMs)?.assigned.map(({ claim }) => claim) ?? held
          else if (action === "release" || action === "leave") {
            open.add(++tickets)
            carryOut(
              machine.handle(
                action === "leave"
                  ? { type: "leave", nowMs, ticket: tickets }
                  : { type: "release", nowMs, ticket: tickets, claims: held },
              ),
            )
          }
        }
        open.add(++tickets)
        carryOut(machine.handle({ type: "leave", nowMs, ticket: tickets }))
        for (let answers = 0; answers < 5; answers++) respond("view")
        assert.equal(open.size, 0, "every ticket is settled")
        assert.equal(under, undefined)
      }),
      { numRuns: 500 },
    )
  })
})
