/** Chapter: stored progress: the next offset to read, kept apart by owner, bound to the history it belongs to. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { OffsetOwner, Position, TopicDescription } from "@millrace/contract"
import { numbered } from "../rig/records.ts"
import { checkedRefusal } from "../rig/refusal.ts"
import { at, type Rig } from "../rig/rig.ts"

/** Records in each partition: more than any offset that is stored. */
const held = 50

const heldOnly = "this backend stores only offsets within what a partition holds"

export function offsetsChapter(rig: Rig): void {
  describe("offsets", () => {
    test("nothing is stored at first; what is stored is read back", async () => {
      const topic = await filled(rig)
      const owner = consumer(rig)
      assert.equal(await loaded(rig, owner, topic), undefined)
      await store(rig, owner, topic, 7n)
      assert.deepEqual(await loaded(rig, owner, topic), { ...at(topic, 0), offset: 7n, lineage: topic.lineage })
    })

    test("0 is an offset like any other: nothing was read, and that is known", async (t) => {
      if (rig.manifest.offsets.range === "held") return t.skip(heldOnly)
      const topic = await filled(rig)
      const owner = consumer(rig)
      await store(rig, owner, topic, 0n)
      assert.equal((await loaded(rig, owner, topic))?.offset, 0n)
    })

    test("where only what is held can be stored, an offset behind the end is refused, and 0 forgets", async (t) => {
      if (rig.manifest.offsets.range === "any") return t.skip("this backend stores any offset")
      const topic = await filled(rig)
      const owner = consumer(rig)
      await store(rig, owner, topic, BigInt(held))
      const entry = { ...at(topic, 0), offset: BigInt(held) + 1n, lineage: topic.lineage }
      const [outcome] = await rig.session.offsets.store(owner, [entry])
      checkedRefusal(outcome, { kind: "offset-out-of-range", outcome: "rejected" })
      assert.equal((await loaded(rig, owner, topic))?.offset, BigInt(held))
      await store(rig, owner, topic, 0n)
      assert.equal(await loaded(rig, owner, topic), undefined)
    })

    test("offsets above 2^53 keep every digit", async (t) => {
      if (rig.manifest.offsets.range === "held") return t.skip(heldOnly)
      const topic = await filled(rig)
      const owner = consumer(rig)
      const large = 2n ** 53n + 1n
      await store(rig, owner, topic, large)
      assert.equal((await loaded(rig, owner, topic))?.offset, large)
    })

    test("a stored offset moves on, and back", async () => {
      const topic = await filled(rig)
      const owner = consumer(rig)
      for (const offset of [1n, 5n, 2n]) {
        await store(rig, owner, topic, offset)
        assert.equal((await loaded(rig, owner, topic))?.offset, offset)
      }
    })

    test("owners never meet: other names, the other kind, other partitions, other topics", async () => {
      const topic = await filled(rig, 2)
      const neighbour = await filled(rig)
      const owner = consumer(rig)
      await store(rig, owner, topic, 3n)
      assert.equal(await loaded(rig, { kind: "consumer", name: `${owner.name}2` }, topic), undefined)
      assert.equal(await loaded(rig, { kind: "group", name: owner.name }, topic), undefined)
      assert.equal(await loaded(rig, owner, topic, 1), undefined)
      assert.equal(await loaded(rig, owner, neighbour), undefined)
    })

    test("many partitions are stored and loaded in the order asked, each with its own outcome", async () => {
      const topic = await filled(rig, 4)
      const owner = consumer(rig)
      const { offsets } = rig.session
      const entry = (partition: number, offset: bigint): Position => ({
        ...at(topic, partition),
        offset,
        lineage: topic.lineage,
      })
      const outcomes = await offsets.store(owner, [
        entry(3, 33n),
        { ...entry(0, 1n), topic: "missing" },
        entry(1, 11n),
        { ...entry(2, 2n), lineage: "another history" },
      ])
      assert.equal(outcomes.length, 4)
      assert.equal(outcomes[0], undefined)
      checkedRefusal(outcomes[1], { kind: "not-found", says: ["missing"] })
      assert.equal(outcomes[2], undefined)
      checkedRefusal(outcomes[3], { kind: "history-changed", says: [topic.topic] })
      const found = await offsets.load(owner, [at(topic, 1), at(topic, 2), at(topic, 3), at(topic, 0)])
      assert.deepEqual(
        found.map((place) => (place === undefined || place instanceof Error ? place : place.offset)),
        [11n, undefined, 33n, undefined],
      )
      assert.deepEqual(await offsets.store(owner, []), [])
      assert.deepEqual(await offsets.load(owner, []), [])
    })

    test("a deleted offset is gone, and deleting none is no failure", async () => {
      const topic = await filled(rig, 2)
      const owner = consumer(rig)
      await store(rig, owner, topic, 3n)
      assert.deepEqual(await rig.session.offsets.delete(owner, [at(topic, 0), at(topic, 1)]), [undefined, undefined])
      assert.equal(await loaded(rig, owner, topic), undefined)
    })

    test("offsets of an old history are refused, and forgotten with it", async (t) => {
      if (rig.manifest.catalog.purge !== "restarts") return t.skip("a purge goes on counting on this backend")
      const topic = await filled(rig)
      const owner = consumer(rig)
      await store(rig, owner, topic, 2n)
      await rig.session.catalog.purgeTopic(topic)
      assert.equal(await loaded(rig, owner, topic), undefined)
      const [outcome] = await rig.session.offsets.store(owner, [
        { ...at(topic, 0), offset: 2n, lineage: topic.lineage },
      ])
      checkedRefusal(outcome, { kind: "history-changed", outcome: "rejected" })
      assert.equal(await loaded(rig, owner, topic), undefined)
    })

    test("a recreated topic begins without offsets", async () => {
      const topic = await filled(rig)
      const owner = consumer(rig)
      await store(rig, owner, topic, 2n)
      await rig.session.catalog.deleteTopic(topic)
      const [gone] = await rig.session.offsets.load(owner, [at(topic, 0)])
      checkedRefusal(gone, "not-found")
      const recreated = await rig.session.catalog.createTopic(topic, rig.spec())
      assert.equal(await loaded(rig, owner, recreated), undefined)
    })

    test("another session sees what was stored, and it survives the one that stored it", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await filled(rig)
      const owner = consumer(rig)
      const other = await rig.connect()
      const entry = { ...at(topic, 0), offset: 9n, lineage: topic.lineage }
      assert.deepEqual(await other.offsets.store(owner, [entry]), [undefined])
      await other.close()
      assert.equal((await loaded(rig, owner, topic))?.offset, 9n)
    })

    test("stores that are not awaited take effect in the order of the calls", async () => {
      const topic = await filled(rig)
      const owner = consumer(rig)
      await Promise.all(Array.from({ length: 40 }, (_, index) => store(rig, owner, topic, BigInt(index + 1))))
      assert.equal((await loaded(rig, owner, topic))?.offset, 40n)
    })
  })
}

/** A topic whose partitions hold records, so that their offsets can be stored everywhere. */
async function filled(rig: Rig, partitions = 1): Promise<TopicDescription> {
  const topic = await rig.topic({ partitions })
  for (let partition = 0; partition < partitions; partition++)
    await rig.append(topic, partition, numbered("r", 0, held))
  return topic
}

function consumer(rig: Rig): OffsetOwner {
  return { kind: "consumer", name: rig.name("reader") }
}

async function store(rig: Rig, owner: OffsetOwner, topic: TopicDescription, offset: bigint): Promise<void> {
  const [outcome] = await rig.session.offsets.store(owner, [{ ...at(topic, 0), offset, lineage: topic.lineage }])
  if (outcome !== undefined) throw outcome
}

async function loaded(
  rig: Rig,
  owner: OffsetOwner,
  topic: TopicDescription,
  partition = 0,
): Promise<Position | undefined> {
  const [place] = await rig.session.offsets.load(owner, [at(topic, partition)])
  if (place instanceof Error) throw place
  return place
}
