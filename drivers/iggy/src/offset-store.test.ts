import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { MillraceError, OffsetOwner, Position } from "@millrace/contract"
import { Bench, nameOf, plainSpec } from "./session.test-support.ts"

const reader: OffsetOwner = { kind: "consumer", name: "reader" }

describe("offsets", () => {
  test("the server gets the last handled offset, the contract the next; 0 forgets", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await bench.append(topic, ["a", "b", "c"])
    const entry = (offset: bigint): Position => ({ ...nameOf(topic), partition: 0, offset, lineage: topic.lineage })
    const { offsets } = bench.session
    assert.deepEqual(await offsets.store(reader, [entry(2n)]), [undefined])
    assert.equal(bench.iggy.topic("s", "t").partitions[0]?.offsets.get("consumer reader"), 1n)
    assert.deepEqual(await offsets.load(reader, [entry(0n)]), [entry(2n)])
    assert.deepEqual(await offsets.store(reader, [entry(0n)]), [undefined])
    assert.deepEqual(await offsets.load(reader, [entry(0n)]), [undefined])
    const [beyond] = await offsets.store(reader, [entry(4n)])
    assert.equal((beyond as MillraceError).kind, "offset-out-of-range")
    assert.match((beyond as MillraceError).message, /offset 4 .* 0 to 3/)
  })

  test("an offset of a history before a purge or a recreation is refused, and not sent", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await bench.append(topic, ["a", "b"])
    const old = { ...nameOf(topic), partition: 0, offset: 1n, lineage: topic.lineage }
    await bench.session.catalog.purgeTopic(topic)
    const purged = await bench.session.catalog.describeTopic(topic)
    await bench.append(purged, ["new"])
    const [afterPurge] = await bench.session.offsets.store(reader, [old])
    assert.equal((afterPurge as MillraceError).kind, "history-changed")
    await bench.session.catalog.deleteTopic(topic)
    const again = await bench.session.catalog.createTopic(topic, plainSpec)
    await bench.append(again, ["newer"])
    const [afterRecreation] = await bench.session.offsets.store(reader, [{ ...old, lineage: purged.lineage }])
    assert.equal((afterRecreation as MillraceError).kind, "history-changed")
    assert.equal(bench.iggy.asked.includes("store_consumer_offset"), false)
    assert.equal(new Set([topic.lineage, purged.lineage, again.lineage]).size, 3)
  })

  test("a call that fails when a part of it is stored says that it may have been done", async () => {
    await using bench = await Bench.open()
    const topics = [await bench.topic("one"), await bench.topic("two")]
    const entries: Position[] = []
    for (const topic of topics) {
      await bench.append(topic, ["a", "b"])
      entries.push({ ...nameOf(topic), partition: 0, offset: 1n, lineage: topic.lineage })
    }
    let looks = 0
    bench.iggy.intercept = (request, visitor) => {
      if (request.code !== 300 || ++looks === 1) return false
      // The first topic's store is answered before the look at the second falls with the connection.
      const { offsets } = bench.iggy.topic("s", "one").partitions[0] ?? assert.fail("there is a partition")
      const waiting = setInterval(() => {
        if (offsets.size === 0) return
        clearInterval(waiting)
        setTimeout(() => visitor.socket.destroy(), 20)
      }, 1)
      return true
    }
    const error = await bench.session.offsets.store(reader, entries).then(
      () => assert.fail("all was stored"),
      (thrown: MillraceError) => thrown,
    )
    assert.deepEqual([error.kind, error.outcome, error.retryable], ["connection", "unknown", true])
  })

  test("a group's offset is stored by its owner alone", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await bench.append(topic, ["a", "b"])
    await bench.session.groups.create("g", topic)
    const place = { ...nameOf(topic), partition: 0, offset: 1n, lineage: topic.lineage }
    const [nobody] = await bench.session.offsets.store({ kind: "group", name: "g" }, [place])
    assert.equal((nobody as MillraceError).kind, "not-assigned")
  })
})
