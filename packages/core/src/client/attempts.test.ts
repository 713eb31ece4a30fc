import assert from "node:assert/strict"
import { test } from "node:test"
import {
  CancelledError,
  ConnectionError,
  type MillraceError,
  NotFoundError,
  PermissionError,
  TimeoutError,
} from "@millrace/contract"
import { VirtualClock } from "@millrace/runtime"
import { attempt } from "./attempts.ts"

const settings = { timeoutMs: 1000, retries: 2, retryBackoffMs: 100 }

test("only temporary failures are tried again, with doubling waits and within the retries", async () => {
  const clock = new VirtualClock()
  const times: number[] = []
  const work = attempt(clock, settings, {
    what: "asking",
    request: async () => {
      times.push(clock.monotonicMs())
      throw new ConnectionError("down")
    },
  }).catch((error: unknown) => error)
  await clock.advance(5000)
  assert.ok((await work) instanceof ConnectionError)
  assert.deepEqual(times, [0, 100, 300])
  assert.equal(clock.timers, 0)
  let calls = 0
  const lasting = attempt(clock, settings, {
    what: "asking",
    request: async () => {
      calls++
      throw new NotFoundError("none")
    },
  })
  await assert.rejects(lasting, NotFoundError)
  assert.equal(calls, 1)
})

test("an attempt that hangs ends at its deadline; its late failure is observed", async () => {
  const clock = new VirtualClock()
  let late: ((error: Error) => void) | undefined
  const request = (): Promise<never> =>
    new Promise((_, reject) => {
      late = reject
    })
  const work = attempt(clock, { ...settings, retries: 0 }, { what: "asking", request }).catch((error: unknown) => error)
  await clock.advance(1000)
  const error = await work
  assert.ok(error instanceof TimeoutError)
  assert.equal(error.message, "asking took longer than 1000 ms")
  late?.(new Error("late"))
  await clock.advance(1)
})

test("a request that throws at once leaves no timer", async () => {
  const clock = new VirtualClock()
  const request = (): Promise<never> => {
    throw new NotFoundError("none")
  }
  await assert.rejects(attempt(clock, settings, { what: "asking", request }), NotFoundError)
  assert.equal(clock.timers, 0)
})

test("an abort ends the waiting at once, during an attempt and between two", async () => {
  const clock = new VirtualClock()
  for (const request of [() => new Promise<never>(() => {}), () => Promise.reject(new ConnectionError("down"))]) {
    const control = new AbortController()
    const work = attempt(clock, settings, { what: "asking", request, signal: control.signal }).catch((e: unknown) => e)
    await clock.advance(10)
    control.abort()
    assert.ok((await work) instanceof CancelledError)
    assert.equal(clock.timers, 0)
    const never = attempt(clock, settings, { what: "asking", request, signal: control.signal })
    await assert.rejects(never, CancelledError)
    assert.equal(clock.timers, 0)
  }
})

test("of a change that an attempt may have made no later refusal says that it has not happened, unless it can know", async () => {
  const lost = (): Error => new ConnectionError("lost", { outcome: "unknown" })
  const outcomes = async (errors: (() => Error)[], isCertain?: (error: MillraceError) => boolean): Promise<unknown> => {
    const clock = new VirtualClock()
    const request = async (): Promise<never> => {
      throw errors.shift()?.() ?? new Error("asked too often")
    }
    const work = { what: "changing", request, ...(isCertain === undefined ? {} : { isCertain }) }
    const failure = attempt(clock, settings, work).catch((error: unknown) => error)
    await clock.advance(5000)
    const { kind, outcome } = (await failure) as MillraceError
    return [kind, outcome]
  }
  const refused = (): Error => new PermissionError("no")
  const isMissing = ({ kind }: MillraceError): boolean => kind === "not-found"
  assert.deepEqual(await outcomes([lost, refused], isMissing), ["permission", "unknown"])
  assert.deepEqual(await outcomes([lost, () => new NotFoundError("none")], isMissing), ["not-found", "rejected"])
  assert.deepEqual(await outcomes([refused], isMissing), ["permission", "rejected"])
  assert.deepEqual(await outcomes([lost, refused]), ["permission", "rejected"], "a question changes nothing")
})
