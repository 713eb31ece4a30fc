import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { ConnectionError } from "@millrace/contract"
import fc from "fast-check"
import {
  advance,
  type ConnectionCommand,
  type ConnectionEvent,
  type ConnectionState,
  newConnectionState,
} from "./connection.machine.ts"

const a = { host: "a", port: 1 }
const b = { host: "b", port: 2 }
const error = new ConnectionError("gone")

type Event = ConnectionEvent extends infer E ? (E extends { nowMs: number } ? Omit<E, "nowMs"> : never) : never

class Course {
  state: ConnectionState = newConnectionState([a, b])
  nowMs = 0
  dials = 0
  last: readonly ConnectionCommand[] = []

  to(event: Event, afterMs = 0): readonly string[] {
    this.nowMs += afterMs
    const [state, commands] = advance(this.state, { ...event, nowMs: this.nowMs } as ConnectionEvent)
    this.state = state
    this.last = commands
    this.dials += commands.filter((command) => command.type === "dial").length
    return commands.map((command) => command.type)
  }

  ready(): this {
    if (this.state.name === "idle") this.to({ type: "start" })
    this.to({ type: "dialed" })
    this.to({ type: "loggedIn" })
    assert.equal(this.state.name, "ready")
    return this
  }

  get waitMs(): number {
    const wait = this.last.find((command) => command.type === "wait")
    assert.ok(wait?.type === "wait")
    return wait.ms
  }
}

const failed = { type: "failed", error, jitter: 0 } as const
const evicted = { type: "evicted", error, jitter: 0 } as const

describe("the life of a connection", () => {
  it("calls, logs in, is ready", () => {
    const course = new Course()
    assert.deepEqual(course.to({ type: "start" }), ["dial"])
    assert.deepEqual(course.to({ type: "dialed" }), ["logIn"])
    assert.deepEqual(course.to({ type: "loggedIn" }), ["opened"])
    assert.equal(course.state.name, "ready")
  })

  it("tries every address once before the first session, then refuses", () => {
    const course = new Course()
    course.to({ type: "start" })
    assert.deepEqual(course.to(failed), ["drop", "dial"])
    course.to({ type: "dialed" })
    assert.deepEqual(course.to(failed), ["drop", "refuse"])
    assert.equal(course.state.name, "closed")
    assert.equal(course.dials, 2)
  })

  it("waits longer from try to try, tells the loss once and the return with its length", () => {
    const course = new Course().ready()
    assert.deepEqual(course.to(failed, 60_000), ["sessionLost", "drop", "lost", "wait"])
    const waits = [course.waitMs]
    for (let i = 0; i < 7; i++) {
      course.to({ type: "timer" }, course.waitMs)
      assert.deepEqual(course.to(failed), ["drop", "wait"])
      waits.push(course.waitMs)
    }
    assert.deepEqual(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000])
    course.to({ type: "timer" }, 5000)
    course.to({ type: "dialed" })
    assert.deepEqual(course.to({ type: "loggedIn" }), ["opened", "restored"])
    const restored = course.last[1]
    assert.equal(restored?.type === "restored" ? restored.afterMs : 0, 11_300 + 5000)
  })

  it("makes at most 20 tries in a minute without a server, whatever the chance", () => {
    fc.assert(
      fc.property(fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 40, maxLength: 40 }), (chances) => {
        const course = new Course().ready()
        course.to(failed, 60_000)
        const from = course.nowMs
        let tries = 0
        for (const jitter of chances) {
          course.to({ type: "timer" }, course.waitMs)
          if (course.nowMs - from > 60_000) break
          tries++
          course.to({ ...failed, jitter })
        }
        assert.ok(tries >= 10 && tries <= 20, `${tries} tries`)
      }),
    )
  })

  it("does not start the waits over for sessions that do not last", () => {
    const course = new Course().ready()
    let tries = 0
    course.to(failed)
    const from = course.nowMs
    while (course.nowMs - from <= 60_000) {
      course.to({ type: "timer" }, course.waitMs)
      tries++
      course.ready()
      course.to(failed, 10)
    }
    assert.ok(tries <= 20, `${tries} tries`)
  })

  it("logs in again where it was evicted, and waits when that happens again soon", () => {
    const course = new Course().ready()
    assert.deepEqual(course.to(evicted, 60_000), ["sessionLost", "logIn"])
    course.to({ type: "loggedIn" })
    assert.equal(course.state.name, "ready")
    assert.deepEqual(course.to(evicted, 10), ["sessionLost", "drop", "lost", "wait"])
  })

  it("gives up for good when it is denied, also on a return", () => {
    const course = new Course().ready()
    course.to(failed)
    course.to({ type: "timer" }, course.waitMs)
    course.to({ type: "dialed" })
    assert.deepEqual(course.to({ type: "denied", error }), ["drop", "refuse"])
    assert.equal(course.state.name, "refused")
    assert.deepEqual(course.to({ type: "timer" }, 100_000), [])
    assert.equal(course.dials, 2)
  })

  it("follows three leaders in a row and no fourth", () => {
    const course = new Course()
    course.to({ type: "start" })
    for (let i = 0; i < 3; i++) {
      course.to({ type: "dialed" })
      assert.deepEqual(course.to({ type: "redirect", address: i % 2 === 0 ? b : a, error }), ["drop", "dial"])
    }
    course.to({ type: "dialed" })
    assert.deepEqual(course.to({ type: "redirect", address: a, error }), ["opened"])
    assert.equal(course.state.name, "ready")
  })

  it("tells of the session's end when a leader takes over", () => {
    const course = new Course().ready()
    assert.deepEqual(course.to({ type: "redirect", address: b, error }), ["sessionLost", "drop", "dial"])
    assert.equal(course.state.memory.current, b)
  })

  it("ends with close, from wherever, and nothing more comes", () => {
    for (const prepare of [
      () => new Course(),
      () => new Course().ready(),
      () => {
        const course = new Course().ready()
        course.to(failed)
        return course
      },
    ]) {
      const course = prepare()
      assert.deepEqual(course.to({ type: "close" }), ["drop"])
      for (const event of [failed, evicted, { type: "timer" }, { type: "dialed" }, { type: "loggedIn" }] as const) {
        assert.deepEqual(course.to(event), [])
      }
      assert.equal(course.state.name, "closed")
    }
  })
})
