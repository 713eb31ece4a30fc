import assert from "node:assert/strict"
import { describe, it } from "node:test"
import type { QueueSpec } from "@millrace/contract"
import { VirtualClock } from "@millrace/runtime"
import type { PullAnswer } from "./engine/queue-pull.ts"
import { EmbeddedQueueSession } from "./queue-session.ts"

const spec: QueueSpec = { ackWaitMs: 1000, backoffMs: [], ackPolicy: "explicit", startAt: { kind: "first" } }

describe("A taker of an empty queue", () => {
  const opened = (): { readonly asked: string[]; pull(maxWaitMs: number): Promise<unknown> } => {
    const asked: string[] = []
    const nothing: PullAnswer = { leases: [], lineage: "a", buffers: [] }
    const session = new EmbeddedQueueSession({
      channel: {
        call: async <R>(name: string): Promise<R> => {
          asked.push(name)
          return (name === "queues.ready" ? false : nothing) as R
        },
      },
      clock: new VirtualClock(),
      call: { topic: { stream: "s", topic: "t" }, queue: 1, name: "work" },
      spec,
      closed: () => {},
    })
    return { asked, pull: (maxWaitMs) => session.pull({ maxMessages: 10, maxBytes: 1000, maxWaitMs }) }
  }

  it("takes once, and from then on asks whether there is something, which writes nothing", async () => {
    const { asked, pull } = opened()
    for (let i = 0; i < 4; i++) assert.deepEqual(await pull(1000), [])
    assert.deepEqual(asked, ["queues.pull", "queues.ready", "queues.ready", "queues.ready", "queues.ready"])
  })

  it("takes at once when it does not wait", async () => {
    const { asked, pull } = opened()
    for (let i = 0; i < 2; i++) assert.deepEqual(await pull(0), [])
    assert.deepEqual(asked, ["queues.pull", "queues.pull"])
  })
})
