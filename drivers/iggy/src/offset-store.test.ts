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
