/** The machine of reports: every state times every event, and what must hold over any course. */
import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { type ReporterEvent, ReporterMachine, type ReporterState } from "./statistics-reporter.machine.ts"

const intervalMs = 1000
const started: ReporterEvent = { kind: "producers", live: 1 }
const due: ReporterEvent = { kind: "due" }
const failed: ReporterEvent = { kind: "reported", outcome: "failed" }
const sent: ReporterEvent = { kind: "reported", outcome: "sent" }

const ways: Readonly<Record<ReporterState, readonly ReporterEvent[]>> = {
  idle: [],
  waiting: [started],
  busy: [started, due],
  ended: [{ kind: "shutdown" }],
}

const gone: ReporterEvent = { kind: "producers", live: 0 }

/** State, event, what follows, commands. */
const table: readonly (readonly [ReporterState, ReporterEvent, ReporterState, string])[] = [
  ["idle", started, "waiting", "setTimer 1000"],
  ["idle", gone, "idle", ""],
  ["idle", due, "idle", ""],
  ["idle", sent, "idle", ""],
  ["idle", { kind: "lost" }, "idle", ""],
  ["idle", { kind: "shutdown" }, "ended", "cancelTimer, disconnect"],
  ["waiting", started, "waiting", ""],
  ["waiting", gone, "idle", "cancelTimer, disconnect"],
  ["waiting", due, "busy", "report"],
  ["waiting", sent, "waiting", ""],
  ["waiting", { kind: "lost" }, "waiting", "disconnect"],
  ["waiting", { kind: "shutdown" }, "ended", "cancelTimer, disconnect"],
  ["busy", started, "busy", ""],
  ["busy", gone, "busy", ""],
  ["busy", due, "busy", ""],
  ["busy", sent, "waiting", "setTimer 1000"],
  ["busy", { kind: "reported", outcome: "nothing" }, "waiting", "setTimer 1000"],
  ["busy", failed, "waiting", "disconnect, setTimer 2000"],
  ["busy", { kind: "lost" }, "busy", ""],
  ["busy", { kind: "shutdown" }, "ended", "cancelTimer, disconnect"],
  ["ended", started, "ended", ""],
  ["ended", due, "ended", ""],
  ["ended", sent, "ended", ""],
  ["ended", { kind: "lost" }, "ended", ""],
  ["ended", { kind: "shutdown" }, "ended", ""],
]

for (const [state, event, next, commands] of table) {
  const what = event.kind === "reported" ? `reported ${event.outcome}` : event.kind
  test(`${state}, ${what}${event.kind === "producers" ? ` ${event.live}` : ""}: ${next}`, () => {
    const machine = new ReporterMachine(intervalMs)
    for (const step of ways[state]) machine.step(step)
    assert.equal(machine.state, state)
    assert.equal(written(machine, event), commands)
    assert.equal(machine.state, next)
  })
}

test("producers that leave during a report end it all when it is done", () => {
  const machine = new ReporterMachine(intervalMs)
  for (const event of [started, due, gone]) machine.step(event)
  assert.equal(written(machine, sent), "disconnect")
  assert.equal(machine.state, "idle")
})

test("a connection that is lost during a report is closed behind it", () => {
  const machine = new ReporterMachine(intervalMs)
  for (const event of [started, due, { kind: "lost" } as const]) machine.step(event)
  assert.equal(written(machine, sent), "disconnect, setTimer 1000")
})

test("failures in a row double the pause, eight intervals at the most; a success ends it", () => {
  const machine = new ReporterMachine(intervalMs)
  machine.step(started)
  const pauses: string[] = []
  for (let i = 0; i < 6; i++) {
    machine.step(due)
    pauses.push(written(machine, failed))
  }
  assert.deepEqual(
    pauses,
    [2000, 4000, 8000, 8000, 8000, 8000].map((ms) => `disconnect, setTimer ${ms}`),
  )
  machine.step(due)
  assert.equal(written(machine, sent), "setTimer 1000")
})

test("at any time: one timer or one report while producers live, and neither without", () => {
  const event = fc.oneof(
    fc.nat(3).map((live): ReporterEvent => ({ kind: "producers", live })),
    fc.constantFrom<ReporterEvent>(due, sent, failed, { kind: "lost" }, { kind: "reported", outcome: "nothing" }),
  )
  fc.assert(
    fc.property(fc.array(event, { maxLength: 60 }), fc.boolean(), (events, shutdown) => {
      const machine = new ReporterMachine(intervalMs)
      let timer = false
      let busy = false
      let live = 0
      for (const given of shutdown ? [...events, { kind: "shutdown" } as const] : events) {
        // Only what was commanded can come.
        if ((given.kind === "due" && !timer) || (given.kind === "reported" && !busy)) continue
        if (given.kind === "due") timer = false
        if (given.kind === "reported") busy = false
        if (given.kind === "producers") live = given.live
        for (const command of machine.step(given)) {
          if (command.kind === "setTimer") {
            assert.ok(!timer, "a second timer")
            timer = true
          }
          if (command.kind === "cancelTimer") timer = false
          if (command.kind === "report") {
            assert.ok(!busy, "a second report")
            busy = true
          }
        }
        if (machine.state === "ended") assert.ok(!timer)
        else assert.equal(timer || busy, live > 0 || busy, `${machine.state} with ${live} producers`)
      }
    }),
  )
})

function written(machine: ReporterMachine, event: ReporterEvent): string {
  return machine
    .step(event)
    .map((command) => (command.kind === "setTimer" ? `setTimer ${command.ms}` : command.kind))
    .join(", ")
}
