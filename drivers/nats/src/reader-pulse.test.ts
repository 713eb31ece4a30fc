import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { ReaderPulse } from "./reader-pulse.ts"

const waits = { asked: true, waiting: true }

describe("the pulse of a consumer", () => {
  it("is missed after three heartbeats' times of silence, but only while something was asked for", () => {
    const pulse = new ReaderPulse()
    assert.deepEqual(
      [1, 2, 3].map(() => pulse.tick(waits)),
      ["wait", "wait", "silent"],
    )
    const idle = new ReaderPulse()
    for (let beat = 0; beat < 10; beat++) assert.equal(idle.tick({ asked: false, waiting: true }), "wait")
    assert.equal(idle.tick(waits), "wait")
  })

  it("asks for a look at the leader after two heartbeats without a record, and after every two more", () => {
    const pulse = new ReaderPulse()
    const verdicts = [1, 2, 3, 4, 5].map(() => {
      pulse.hear()
      return pulse.tick(waits)
    })
    assert.deepEqual(verdicts, ["wait", "look", "wait", "look", "wait"])
    pulse.record()
    assert.equal(pulse.tick(waits), "wait")
  })

  it("calls a consumer behind that has not brought what the leader holds by its next sign of life", () => {
    const pulse = new ReaderPulse()
    pulse.owes()
    assert.equal(pulse.tick(waits), "wait", "a slow connection holds the sign of life up, too")
    pulse.hear()
    assert.equal(pulse.tick({ asked: true, waiting: false }), "wait", "what came before is still to be taken")
    pulse.hear()
    assert.equal(pulse.tick({ asked: false, waiting: true }), "wait", "nothing was asked for")
    pulse.hear()
    assert.equal(pulse.tick(waits), "behind")
  })

  it("forgets what was owed when a record comes, or another consumer begins", () => {
    for (const event of ["record", "begin"] as const) {
      const pulse = new ReaderPulse()
      pulse.owes()
      pulse[event]()
      pulse.hear()
      assert.equal(pulse.tick(waits), "wait")
    }
  })
})
