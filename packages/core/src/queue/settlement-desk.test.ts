import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  ClosedError,
  ConnectionError,
  MillraceError,
  NotFoundError,
  type QueueSession,
  type Settlement,
} from "@millrace/contract"
import { VirtualClock } from "@millrace/runtime"
import { usualSpec } from "./fake-queue.test-support.ts"
import { PromisedSettlement, SettlementDesk } from "./settlement-desk.ts"

type Answer = (boolean | MillraceError)[] | Error

/** A desk whose requests the test answers. */
function rig() {
  const clock = new VirtualClock()
  const requests: { list: readonly Settlement[]; confirm: boolean; answer: (answer: Answer) => Promise<void> }[] = []
  const session = {
    spec: usualSpec,
    settle: (list, { confirm }) =>
      new Promise((resolve, reject) => {
        const answer = async (given: Answer): Promise<void> => {
          if (given instanceof Error) reject(given)
          else resolve(given)
          await clock.advance(0)
        }
        requests.push({ list, confirm, answer })
      }),
  } as Partial<QueueSession> as QueueSession
  const desk = new SettlementDesk(session, clock)
  const ask = (token: number, confirm = false): Promise<boolean> => {
    const settlement = new PromisedSettlement()
    desk.settle({ token, verdict: "ack" }, settlement, confirm)
    settlement.promise.catch(() => {})
    return settlement.promise
  }
  const tokens = (): unknown[][] => requests.map(({ list }) => list.map(({ token }) => token))
  return { clock, requests, desk, ask, tokens }
}

describe("the desk", () => {
  test("sends those of one turn together, those that come meanwhile behind them, and never two requests at once", async () => {
    const { clock, requests, ask, tokens } = rig()
    const first = [ask(1), ask(2)]
    await clock.advance(0)
    const later = [ask(3), ask(4)]
    await clock.advance(0)
    assert.deepEqual(tokens(), [[1, 2]])
    await requests[0]?.answer([true, false])
    assert.deepEqual(await Promise.all(first), [true, false])
    assert.deepEqual(tokens(), [
      [1, 2],
      [3, 4],
    ])
    await requests[1]?.answer([true, new NotFoundError("gone")])
    assert.equal(await later[0], true)
    await assert.rejects(later[1] as Promise<boolean>, NotFoundError)
  })

  test("those to be confirmed do not hold the others up", async () => {
    const { clock, requests, ask } = rig()
    const confirmed = ask(1, true)
    const plain = ask(2)
    await clock.advance(0)
    assert.deepEqual(requests.map(({ confirm }) => confirm).sort(), [false, true])
    for (const request of requests) await request.answer([true])
    assert.deepEqual(await Promise.all([confirmed, plain]), [true, true])
  })

  test("tries again what may pass, with waits that grow, five times; then they fail", async () => {
    const { clock, requests, ask } = rig()
    const settled = ask(1)
    await clock.advance(0)
    for (let n = 0; n < 5; n++) {
      await requests[n]?.answer(new ConnectionError("away"))
      await clock.advance(50 * 2 ** n)
    }
    assert.equal(requests.length, 5)
    await assert.rejects(settled, ConnectionError)
    assert.equal(clock.timers, 0)
  })

  test("does not try again what will not pass, nor anything once it is closed", async () => {
    const { clock, requests, ask, desk } = rig()
    const first = ask(1)
    await clock.advance(0)
    await requests[0]?.answer(new NotFoundError("gone"))
    await assert.rejects(first, NotFoundError)
    const second = ask(2)
    await clock.advance(0)
    await requests[1]?.answer(new ConnectionError("away"))
    desk.close("the consumer")
    await clock.advance(0)
    await assert.rejects(second, ClosedError)
    await assert.rejects(ask(3), ClosedError)
    await desk.idle()
    assert.deepEqual([requests.length, clock.timers], [2, 0])
  })

  test("an answer that is too short is a failure, not a silence; so is an error that is none of Millrace", async () => {
    const { clock, requests, ask } = rig()
    const both = [ask(1), ask(2)]
    await clock.advance(0)
    await requests[0]?.answer([true])
    await assert.rejects(both[1] as Promise<boolean>, MillraceError)
    const other = ask(3)
    await clock.advance(0)
    await requests[1]?.answer(new TypeError("a driver's fault"))
    await assert.rejects(other, MillraceError)
  })
})
