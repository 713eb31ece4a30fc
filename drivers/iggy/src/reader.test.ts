import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { ReadPosition, TopicDescription } from "@millrace/contract"
import { refusal, reply } from "./connection/scripted-server.test-support.ts"
import { Bench, eventually, nameOf, polled, roomy } from "./session.test-support.ts"
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
    const { context } = reads.find(({ error }) => error !== undefined)?.error ?? assert.fail("it failed")
    assert.deepEqual([context.partition, context.offset, context.nextOffset], [0, 0n, 1n])
  })
})

describe("a connection that falls behind a poll", () => {
  test("takes nothing along of what other partitions had answered", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic("t", { partitions: 2 })
    for (const partition of [0, 1]) for (const payload of ["a", "b"]) await bench.append(topic, [payload], partition)
    const reader = bench.session.log.openReader({ isolation: "committed" })
    reader.set([beginning(topic, 0), beginning(topic, 1)])
    let polls = 0
    bench.iggy.intercept = (request, visitor) => {
      if (request.operation !== nonReplicated || request.code !== pollCode) return false
      polls++
      // Retention empties the second partition before it is polled, and the server is gone when the reader asks where it begins.
      if (polls === 1) bench.iggy.topic("s", "t").partitions[1]?.batches.shift()
      if (polls === 2) visitor.send(reply(request, Buffer.alloc(16)))
      if (polls === 3) visitor.socket.destroy()
      return polls === 2 || polls === 3
    }
    assert.deepEqual(await polled(reader), ["a", "b"])
    assert.equal(polls, 3)
    const error = await eventually(async () => {
      const [read] = await reader.next(roomy).catch(() => [])
      return read?.error
    })
    assert.deepEqual([error.kind, error.context.partition, error.context.first], ["offset-out-of-range", 1, 1n])
  })
})

describe("data that flows", () => {
  const large = "x".repeat(40_000)
  const limits = { maxRecords: 4, maxBytes: 200_000 }

  test("of one partition does not keep the reader from another, whatever is left to read", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic("t", { partitions: 2 })
    for (let index = 0; index < 40; index++) await bench.append(topic, [`${index} ${large}`])
    const reader = bench.session.log.openReader({ isolation: "committed" })
    reader.set([beginning(topic, 0), beginning(topic, 1)])
    assert.equal((await polled(reader, limits)).length, 4)
    await bench.append(topic, ["late"], 1)
    const rounds: string[] = []
    for (let round = 0; round < 3; round++) rounds.push(...(await polled(reader, limits)))
    assert.ok(rounds.includes("late"), "the other partition is not read while data flows")
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

function beginning(topic: TopicDescription, partition: number): ReadPosition {
  return { ...nameOf(topic), partition, offset: 0n, lineage: topic.lineage }
}
