import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { refusal } from "./connection/scripted-server.test-support.ts"
import { Bench, nameOf, polled, roomy } from "./session.test-support.ts"
import { nonReplicated } from "./wire/operation.ts"

const pollCode = 100

describe("what a poll answers", () => {
  test("records from the position on, sliced from the middle of a batch", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await bench.append(topic, ["a", "b", "c"])
    await bench.append(topic, ["d"])
    assert.deepEqual(await polled(bench.reader(topic, 1n)), ["b", "c", "d"])
    const reader = bench.reader(topic)
    assert.deepEqual(await polled(reader, { maxRecords: 2 }), ["a", "b"])
    assert.deepEqual(await polled(reader, { maxRecords: 2 }), ["c", "d"])
    assert.deepEqual(await polled(reader, { maxWaitMs: 0 }), [])
  })

  test("what retention took between two polls is told as out of range, with where the log begins", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    for (const payload of ["a", "b", "c"]) await bench.append(topic, [payload])
    const reader = bench.reader(topic)
    assert.deepEqual(await polled(reader, { maxRecords: 1 }), ["a"])
    bench.iggy.trim("s", "t", 2)
    const [read] = await reader.next(roomy)
    assert.equal(read?.error?.kind, "offset-out-of-range")
    assert.equal(read?.error?.context.first, 2n)
    assert.deepEqual(await polled(bench.reader(topic, 2n)), ["c"])
  })

  test("also where retention left nothing at all", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await bench.append(topic, ["a"])
    await bench.append(topic, ["b"])
    bench.iggy.trim("s", "t", 2)
    const [read] = await bench.reader(topic).next(roomy)
    assert.equal(read?.error?.kind, "offset-out-of-range")
    assert.equal(read?.error?.context.first, 2n)
    assert.equal(read?.error?.context.end, 2n)
  })

  test("a topic that another client recreated while the poll was under way hands nothing over under the old lineage", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await bench.append(topic, ["old"])
    const reader = bench.reader(topic)
    let recreated = false
    bench.iggy.intercept = (request) => {
      if (recreated || request.operation !== nonReplicated || request.code !== pollCode) return false
      recreated = true
      const { topics } = bench.iggy.streams.get("s") ?? assert.fail("the stream is there")
      const old = bench.iggy.topic("s", "t")
      topics.set("t", { ...old, created: old.created + 1n })
      return false
    }
    assert.deepEqual(await polled(reader), ["!history-changed"])
  })

  test("a purge by another client, which leaves no trace, is seen where the end lies before the position", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await bench.append(topic, ["a", "b"])
    const reader = bench.reader(topic)
    assert.deepEqual(await polled(reader), ["a", "b"])
    bench.iggy.purge("s", "t")
    assert.deepEqual(await polled(reader), ["!offset-out-of-range"])
  })

  test("a partition that is not there yet though its topic is, is no error", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await bench.append(topic, ["a"])
    let refusals = 0
    bench.iggy.intercept = (request, visitor) => {
      if (request.code !== pollCode || refusals === 2) return false
      refusals++
      visitor.send(refusal(request, 3007))
      return true
    }
    assert.deepEqual(await polled(bench.reader(topic)), ["a"])
    assert.equal(refusals, 2)
  })

  test("a record whose checksum is wrong fails its partition as corrupt, and no other", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic("t", { partitions: 2 })
    await bench.append(topic, ["broken"], 0)
    await bench.append(topic, ["whole"], 1)
    const [batch] = bench.iggy.topic("s", "t").partitions[0]?.batches ?? []
    const broken = batch?.bytes ?? assert.fail("a batch is there")
    broken.writeUInt8((broken.at(-1) as number) ^ 1, broken.length - 1)
    const reader = bench.session.log.openReader({ isolation: "committed" })
    reader.set([0, 1].map((partition) => ({ ...nameOf(topic), partition, offset: 0n, lineage: topic.lineage })))
    const reads = [...(await reader.next(roomy)), ...(await reader.next({ ...roomy, maxWaitMs: 0 }))]
    assert.deepEqual(reads.map((read) => read.error?.kind ?? "fine").toSorted(), ["corruption", "fine"])
  })
})

describe("waiting", () => {
  test("an idle reader asks less and less often, and is woken by a new position", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic("t", { partitions: 2 })
    await bench.append(topic, ["there"], 1)
    const reader = bench.reader(topic)
    const poll = polled(reader, { maxWaitMs: 60_000 })
    await new Promise((resolve) => setTimeout(resolve, 600))
    const looks = bench.iggy.asked.filter((name) => name === "get_topic").length
    assert.ok(looks < 40, `${looks} looks in 600 ms`)
    reader.set([0, 1].map((partition) => ({ ...nameOf(topic), partition, offset: 0n, lineage: topic.lineage })))
    assert.deepEqual(await poll, ["there"])
  })

  test("a lost connection rejects the poll, retryably, and the reader goes on where it was", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await bench.append(topic, ["a", "b"])
    const reader = bench.reader(topic)
    assert.deepEqual(await polled(reader, { maxRecords: 1 }), ["a"])
    bench.iggy.intercept = (request, visitor) => {
      if (request.code !== pollCode) return false
      bench.iggy.intercept = () => false
      visitor.socket.destroy()
      return true
    }
    const error = await reader.next(roomy).then(
      () => assert.fail("the poll was answered"),
      (reason: { kind: string; retryable: boolean }) => reason,
    )
    assert.equal(error.kind, "connection")
    assert.equal(error.retryable, true)
    for (;;) {
      const seen = await polled(reader).catch(() => [])
      if (seen.length > 0) {
        assert.deepEqual(seen, ["b"])
        break
      }
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  })
})
