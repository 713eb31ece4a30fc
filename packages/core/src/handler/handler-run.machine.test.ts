import assert from "node:assert/strict"
import { test } from "node:test"
import { HandlerRunMachine, type RunCommand, type RunEvent } from "./handler-run.machine.ts"

const failed = (error: string, busy = true): RunEvent => ({ type: "end", ending: { kind: "failed", error }, busy })
const well = (busy = true): RunEvent => ({ type: "end", ending: { kind: "well" }, busy })
const idle: RunEvent = { type: "idle" }
const deadline: RunEvent = { type: "deadline" }

const reached = {
  running: [],
  draining: [well()],
  "draining with a failure": [failed("first")],
  over: [well(false)],
} satisfies Record<string, RunEvent[]>

const table: [state: keyof typeof reached, event: RunEvent, command: RunCommand, phase: string][] = [
  ["running", well(), "drain", "draining"],
  ["running", well(false), "settle", "over"],
  ["running", failed("x"), "drain", "draining"],
  ["running", failed("x", false), "settle", "over"],
  ["running", idle, "none", "running"],
  ["running", deadline, "none", "running"],
  ["draining", well(), "none", "draining"],
  ["draining", failed("x"), "none", "draining"],
  ["draining", idle, "settle", "over"],
  ["draining", deadline, "abandon", "over"],
  ["draining with a failure", well(), "none", "draining"],
  ["draining with a failure", failed("x"), "none", "draining"],
  ["draining with a failure", idle, "settle", "over"],
  ["draining with a failure", deadline, "abandon", "over"],
  ["over", well(), "none", "over"],
  ["over", failed("x"), "none", "over"],
  ["over", idle, "none", "over"],
  ["over", deadline, "none", "over"],
]

for (const [state, event, command, phase] of table) {
  const name = event.type === "end" ? `${event.ending.kind}, ${event.busy ? "busy" : "idle"}` : event.type
  test(`${state}: ${name} → ${phase}, ${command}`, () => {
    const machine = new HandlerRunMachine()
    for (const before of reached[state]) machine.step(before)
    assert.equal(machine.step(event), command)
    assert.equal(machine.phase, phase)
  })
}

test("the first failure is the ending, also of a run that was to end well", () => {
  const machine = new HandlerRunMachine()
  machine.step(well())
  machine.step(failed("first"))
  machine.step(failed("second"))
  machine.step(well())
  assert.deepEqual(machine.ending, { kind: "failed", error: "first" })
})
