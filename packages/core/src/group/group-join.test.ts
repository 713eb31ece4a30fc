/** Joining a group: how often it is tried, and what is refused before. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ClosedError, ConnectionError, InvalidError } from "@millrace/contract"
import type { Consumer } from "../consumer/consumer.ts"
import type { GroupConsumerOptions } from "../consumer/consumer-options.ts"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import { openGroupConsumer } from "./group-consumer.ts"

function open(client: FakeClient, options: GroupConsumerOptions): Promise<Consumer> {
  client.groups.membership.tell({ assigned: [client.claim(0)] })
  return openGroupConsumer(client.context, { topic: client.topic, group: "g" }, options)
}

describe("joining", () => {
  test("a join that fails is tried as often as initRetries says, and a wrong call is not", async () => {
    const client = new FakeClient()
    const away = (): ConnectionError => new ConnectionError("no server", { outcome: "rejected" })
    client.groups.failures.push(away(), away())
    const opening = open(client, { initRetries: { retries: 2, intervalMs: 300 } })
    await client.clock.advance(599)
    assert.equal(client.groups.joins.length, 0)
    await client.clock.advance(1)
    const consumer = await opening
    assert.equal(client.groups.joins.length, 1)
    await consumer.shutdown()

    const failing = new FakeClient()
    failing.groups.failures.push(away(), away(), away())
    const refusal = assert.rejects(open(failing, { initRetries: { retries: 2, intervalMs: 300 } }), ConnectionError)
    await failing.clock.advance(600)
    await refusal
    const wrong = new FakeClient()
    wrong.groups.failures.push(new InvalidError("no"))
    await assert.rejects(open(wrong, { initRetries: { retries: 2, intervalMs: 300 } }), InvalidError)
    assert.deepEqual([failing.clock.timers, wrong.clock.timers, failing.owned.size], [0, 0, 0])
  })

  test("the wait before another try ends with the client, and leaves no timer", async () => {
    const client = new FakeClient()
    client.groups.failures.push(new ConnectionError("no server", { outcome: "rejected" }))
    const refusal = assert.rejects(open(client, { initRetries: { retries: 9, intervalMs: 3_600_000 } }), ClosedError)
    await client.settle()
    assert.deepEqual([client.clock.timers, client.owned.size], [1, 1])
    await Promise.all([...client.owned].map((owned) => owned.shutdown()))
    await refusal
    assert.deepEqual([client.clock.timers, client.owned.size, client.groups.joins.length], [0, 0, 0])
  })

  test("options of handing over that contradict each other or cannot be are refused by name", async () => {
    const client = new FakeClient()
    const wrong: [GroupConsumerOptions, RegExp][] = [
      [{ onRevoke: "wait" as never }, /"onRevoke" is "wait"; it must be one of "finish", "fence"/],
      [{ revokeTimeoutMs: 0 }, /"revokeTimeoutMs" is 0/],
      [{ revokeTimeoutMs: 31_000 }, /revokeTimeoutMs is 31000; it must be at most rebalanceTimeoutMs \(30000\)/],
      [{ revokeTimeoutMs: 5, onRevoke: "fence" }, /no meaning with onRevoke "fence"/],
      [{ handlerTimeoutMs: 0 }, /"handlerTimeoutMs" is 0/],
      [{ stalledAfterMs: -1 }, /"stalledAfterMs" is -1/],
      [{ topics: ["t"] as never }, /topics\[0\] is "t"; it must be a topic handle/],
    ]
    for (const [options, message] of wrong) {
      await assert.rejects(open(client, options), (error) => {
        return error instanceof InvalidError && message.test(error.message)
      })
    }
    assert.equal(client.groups.joins.length, 0)
  })
})
