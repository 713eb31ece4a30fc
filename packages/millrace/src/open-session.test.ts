import assert from "node:assert/strict"
import { test } from "node:test"
import type { ConnectTarget, Driver, Session } from "@millrace/contract"
import { CancelledError, ConnectionError, TimeoutError } from "@millrace/contract"
import { VirtualClock } from "@millrace/runtime"
import { openSession } from "./open-session.ts"

const target: ConnectTarget = {
  scheme: "kafka",
  hosts: [{ host: "a", port: 1 }, { host: "b" }],
  path: "",
  username: "ann",
  password: "secret",
  options: {},
}

/** A driver whose answer is given by hand. */
function slowDriver() {
  const answer = Promise.withResolvers<Session>()
  const session = { closed: 0, close: () => Promise.resolve(void session.closed++) }
  const driver = { connect: () => answer.promise } as unknown as Driver
  return { driver, session, arrive: () => answer.resolve(session as unknown as Session), fail: answer.reject }
}

test("a session in time is handed over, and no timer is left", async () => {
  const clock = new VirtualClock()
  const { driver, session, arrive } = slowDriver()
  const opening = openSession(driver, target, { timeoutMs: 100, clock })
  arrive()
  assert.equal(await opening, session)
  assert.equal(clock.timers, 0)
  assert.equal(session.closed, 0)
})

test("at the time-out the caller gets a TimeoutError, and the late session is closed", async () => {
  const clock = new VirtualClock()
  const { driver, session, arrive } = slowDriver()
  const opening = openSession(driver, target, { timeoutMs: 100, clock })
  const refused = assert.rejects(
    opening,
    (error) =>
      error instanceof TimeoutError &&
      error.message === "no connection to kafka://a:1,b within 100 ms" &&
      error.outcome === "rejected",
  )
  await clock.advance(100)
  await refused
  assert.equal(session.closed, 0)
  arrive()
  await clock.advance(0)
  assert.equal(session.closed, 1)
})

test("a failure behind the time-out is not left unobserved", async () => {
  const clock = new VirtualClock()
  const { driver, fail } = slowDriver()
  const refused = assert.rejects(openSession(driver, target, { timeoutMs: 1, clock }), TimeoutError)
  await clock.advance(1)
  await refused
  fail(new ConnectionError("late"))
  await clock.advance(0)
})

test("an abort ends the attempt with its reason as cause, and the late session is closed", async () => {
  const clock = new VirtualClock()
  const { driver, session, arrive } = slowDriver()
  const controller = new AbortController()
  const opening = openSession(driver, target, { timeoutMs: 100, clock, signal: controller.signal })
  controller.abort("enough")
  await assert.rejects(opening, (error) => error instanceof CancelledError && error.cause === "enough")
  assert.equal(clock.timers, 0)
  arrive()
  await clock.advance(0)
  assert.equal(session.closed, 1)
})

test("a signal that fired before keeps the driver from being called", async () => {
  const driver = { connect: () => assert.fail("called") } as unknown as Driver
  const options = { timeoutMs: 100, clock: new VirtualClock(), signal: AbortSignal.abort() }
  await assert.rejects(openSession(driver, target, options), CancelledError)
})

test("what the driver says is passed on, thrown or rejected, and no timer is left", async () => {
  const clock = new VirtualClock()
  const down = new ConnectionError("host a is down")
  const rejecting = { connect: () => Promise.reject(down) } as unknown as Driver
  await assert.rejects(openSession(rejecting, target, { timeoutMs: 100, clock }), (error) => error === down)
  const throwing = {
    connect: () => {
      throw down
    },
  } as unknown as Driver
  await assert.rejects(openSession(throwing, target, { timeoutMs: 100, clock }), (error) => error === down)
  assert.equal(clock.timers, 0)
})
