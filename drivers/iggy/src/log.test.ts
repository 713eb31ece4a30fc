import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { NotFoundError } from "@millrace/contract"
import { Bench, connectTo, eventually, plainSpec } from "./session.test-support.ts"

const sendOperation = 160

describe("appending", () => {
  test("many appends that nobody awaits keep their order, also where the topic must be looked up first", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    const bases = await Promise.all(Array.from({ length: 100 }, (_, index) => bench.append(topic, [`r${index}`])))
    assert.deepEqual(
      bases,
      Array.from({ length: 100 }, (_, index) => BigInt(index)),
    )
    const looks = bench.iggy.asked.filter((name) => name === "get_topic").length
    assert.ok(looks <= 3, `${looks} looks for 100 appends`)
  })

  test("a topic that this session deletes and makes again refuses what was made for the old one; nothing is sent", async () => {
    await using bench = await Bench.open()
    const old = await bench.topic()
    await bench.append(old, ["a"])
    await bench.session.catalog.deleteTopic(old)
    const recreated = await bench.session.catalog.createTopic(old, plainSpec)
    const before = bench.iggy.asked.length
    await assert.rejects(bench.append(old, ["late"]), (error: NotFoundError) => {
      assert.ok(error instanceof NotFoundError)
      assert.equal(error.outcome, "rejected")
      return true
    })
    assert.equal(bench.iggy.asked.slice(before).includes("send_messages"), false)
    assert.equal(await bench.append(recreated, ["b"]), 0n)
  })

  test("and so does one that another session made again, once the last look is a quarter of a second old", async () => {
    await using bench = await Bench.open()
    const other = await connectTo(bench.iggy)
    const old = await bench.topic()
    await bench.append(old, ["a"])
    await other.catalog.deleteTopic(old)
    const recreated = await other.catalog.createTopic(old, plainSpec)
    await new Promise((resolve) => setTimeout(resolve, 260))
    await assert.rejects(bench.append(old, ["late"]), NotFoundError)
    assert.equal((await bench.session.log.watermarks([{ ...recreated, partition: 0 }])).length, 1)
    await other.close()
  })

  test("a batch never lands in another topic that got the number of a deleted one", async () => {
    await using bench = await Bench.open()
    const doomed = await bench.topic("doomed")
    await bench.append(doomed, ["a"])
    const { topics } = bench.iggy.streams.get("s") ?? assert.fail("the stream is there")
    topics.delete("doomed")
    const heir = await bench.topic("heir")
    assert.equal(bench.iggy.topic("s", "heir").id, 0)
    await assert.rejects(bench.append(doomed, ["for the doomed one"]), NotFoundError)
    const [marks] = await bench.session.log.watermarks([{ ...heir, partition: 0 }])
    assert.ok(marks !== undefined && !(marks instanceof Error))
    assert.equal(marks.end, 0n)
  })

  test("a lost answer leaves the outcome unknown; a look that fails before leaves it rejected", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await bench.append(topic, ["a"])
    bench.iggy.intercept = (request, visitor) => {
      if (request.operation !== sendOperation) return false
      visitor.socket.destroy()
      return true
    }
    const sent = await outcomeOf(bench.append(topic, ["b"]))
    assert.equal(sent.outcome, "unknown")
    await untilThere(bench)
    bench.iggy.intercept = (request, visitor) => {
      if (request.code !== 300) return false
      visitor.socket.destroy()
      return true
    }
    await new Promise((resolve) => setTimeout(resolve, 260))
    const asked = await outcomeOf(bench.append(topic, ["c"]))
    assert.equal(asked.outcome, "rejected")
    assert.equal(asked.retryable, true)
    bench.iggy.intercept = () => false
    await untilThere(bench)
  })

  test("a partition that there is not is refused, with those that there are", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await assert.rejects(bench.append(topic, ["a"], 3), (error: NotFoundError) => {
      assert.match(error.message, /partition 3 .*1 partitions \(0 to 0\)/)
      return true
    })
  })
})

async function outcomeOf(append: Promise<unknown>): Promise<{ outcome: string; retryable: boolean }> {
  return append.then(
    () => assert.fail("the append was confirmed"),
    (error: { outcome: string; retryable: boolean }) => error,
  )
}

function untilThere(bench: Bench): Promise<unknown> {
  return eventually(() => bench.session.catalog.listStreams().catch(() => undefined))
}
