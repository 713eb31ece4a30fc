import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { MillraceError } from "@millrace/contract"
import { deleteConsumerOffset } from "./codec/group-commands.ts"
import type { Received } from "./connection/scripted-server.test-support.ts"
import { refusal } from "./connection/scripted-server.test-support.ts"
import { Bench, eventually, nameOf, plainSpec } from "./session.test-support.ts"

const getTopic = 300
const notYet = 58

describe("topics that are made", () => {
  test("settle when every partition takes what is sent to it, however often the server says not yet", async () => {
    await using bench = await Bench.open()
    await bench.session.catalog.createStream("s")
    const said = new Map<string, number>()
    bench.iggy.intercept = (request, visitor) => {
      if (request.operation !== deleteConsumerOffset.operation) return false
      const asked = request.body.toString("hex")
      const times = (said.get(asked) ?? 0) + 1
      said.set(asked, times)
      if (times > 2) return false
      visitor.send(refusal(request, notYet))
      return true
    }
    await bench.session.catalog.createTopic({ stream: "s", topic: "t" }, { ...plainSpec, partitions: 40 })
    assert.deepEqual(
      [...said.values()],
      Array.from({ length: 40 }, () => 3),
    )
    said.clear()
    const grown = await bench.session.catalog.addPartitions({ stream: "s", topic: "t" }, 2)
    assert.equal(grown.partitions.length, 42)
    assert.deepEqual([...said.values()], [3, 3])
  })

  test("are not called rejected when the connection falls behind their making", async () => {
    await using bench = await Bench.open()
    await bench.session.catalog.createStream("s")
    const cutAt = (what: (request: Received) => boolean): void => {
      bench.iggy.intercept = (request, visitor) => {
        if (!what(request)) return false
        visitor.socket.destroy()
        return true
      }
    }
    cutAt((request) => request.code === getTopic)
    const made = await failureOf(bench.session.catalog.createTopic({ stream: "s", topic: "t" }, plainSpec))
    assert.deepEqual([made.kind, made.outcome, made.retryable], ["connection", "unknown", true])
    bench.iggy.intercept = () => false
    const topic = await eventually(() =>
      bench.session.catalog.describeTopic({ stream: "s", topic: "t" }).catch(() => undefined),
    )
    await bench.append(topic, ["a"])
    let purged = false
    const asked = bench.iggy.server.received
    cutAt((request) => {
      purged ||= bench.iggy.asked.at(-1) === "purge_topic"
      return purged && request.code === getTopic && asked.includes(request)
    })
    const emptied = await failureOf(bench.session.catalog.purgeTopic(nameOf(topic)))
    assert.deepEqual([emptied.kind, emptied.outcome], ["connection", "unknown"])
  })
})

function failureOf(call: Promise<unknown>): Promise<MillraceError> {
  return call.then(
    () => assert.fail("it was done"),
    (error: MillraceError) => error,
  )
}
