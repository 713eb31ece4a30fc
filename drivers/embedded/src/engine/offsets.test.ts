import assert from "node:assert/strict"
import { describe, it } from "node:test"
import type { OffsetOwner, Position } from "@millrace/contract"
import fc from "fast-check"
import type { TopicRow } from "./command.ts"
import { type GroupFixture, orders, storeWithGroup } from "./group-fixture.test-support.ts"
import { type OffsetOutcome, offsetRoom } from "./offsets.ts"

const group: OffsetOwner = { kind: "group", name: "workers" }
const consumer: OffsetOwner = { kind: "consumer", name: "workers" }

function place(partition: number): { stream: string; topic: string; partition: number } {
  return { ...orders, partition }
}

function store(
  fixture: GroupFixture,
  owner: OffsetOwner,
  entry: { partition?: number; offset: bigint; lineage?: string; claim?: number },
): string | undefined {
  const { partition = 0, offset, lineage = "1.0", claim } = entry
  const entries = [{ ...place(partition), offset, lineage, ...(claim === undefined ? {} : { claim }) }]
  return fixture.refusal(fixture.call("offsets.store", { owner, entries }))?.kind
}

function load(fixture: GroupFixture, owner: OffsetOwner, partition = 0): bigint | undefined {
  const [outcome] = fixture.call<OffsetOutcome<Position | undefined>[]>("offsets.load", {
    owner,
    partitions: [place(partition)],
  })
  assert.ok(outcome !== undefined && "value" in outcome)
  return outcome.value?.offset
}

function remove(fixture: GroupFixture, owner: OffsetOwner, claim?: number): string | undefined {
  const entries = [{ ...place(0), ...(claim === undefined ? {} : { claim }) }]
  return fixture.refusal(fixture.call("offsets.delete", { owner, entries }))?.kind
}

describe("stored offsets", () => {
  it("are kept apart by owner and partition, and may move back", () => {
    const fixture = storeWithGroup(4)
    assert.equal(load(fixture, consumer), undefined)
    assert.equal(store(fixture, consumer, { offset: 7n }), undefined)
    assert.equal(store(fixture, group, { offset: 9n }), undefined)
    assert.equal(load(fixture, consumer), 7n)
    assert.equal(load(fixture, group), 9n)
    assert.equal(load(fixture, { kind: "consumer", name: "other" }), undefined)
    assert.equal(load(fixture, consumer, 1), undefined)
    assert.equal(store(fixture, consumer, { offset: 2n }), undefined)
    assert.equal(load(fixture, consumer), 2n)
  })

  it("come back exactly as they were stored, whatever their size", () => {
    const fixture = storeWithGroup(4)
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 63n - 1n }), (offset) => {
        assert.equal(store(fixture, consumer, { offset }), undefined)
        assert.equal(load(fixture, consumer), offset)
      }),
      { examples: [[2n ** 53n + 1n], [2n ** 63n - 1n], [0n]] },
    )
  })

  it("outside 0 to 2^63 − 1 are refused", () => {
    const fixture = storeWithGroup(4)
    assert.equal(store(fixture, consumer, { offset: -1n }), "invalid")
    assert.equal(store(fixture, consumer, { offset: 2n ** 63n }), "invalid")
    assert.equal(load(fixture, consumer), undefined)
  })

  it("of an earlier history count as none and are refused", () => {
    const fixture = storeWithGroup(4)
    store(fixture, consumer, { offset: 7n })
    fixture.purgeTopic(orders)
    assert.equal(load(fixture, consumer), undefined)
    assert.equal(fixture.rows("stored_offset"), 0)
    assert.equal(store(fixture, consumer, { offset: 8n }), "history-changed")
    assert.equal(store(fixture, consumer, { offset: 1n, lineage: "1.0+" }), undefined)
    assert.equal(load(fixture, consumer), 1n)
  })

  it("of an earlier history count as none wherever their rows still stand", () => {
    const fixture = storeWithGroup(4)
    store(fixture, consumer, { offset: 7n })
    fixture.renewHistory(orders)
    assert.equal(fixture.rows("stored_offset"), 1)
    assert.equal(load(fixture, consumer), undefined)
  })

  it("of a topic that was recreated count as none and are refused", () => {
    const fixture = storeWithGroup(4)
    store(fixture, consumer, { offset: 7n })
    fixture.deleteTopic(orders)
    assert.equal(store(fixture, consumer, { offset: 8n }), "not-found")
    fixture.makeTopic(orders, 4)
    assert.equal(load(fixture, consumer), undefined)
    assert.equal(store(fixture, consumer, { offset: 8n }), "history-changed")
    assert.equal(fixture.rows("stored_offset"), 0)
  })

  it("are refused one by one: a bad entry leaves its neighbours alone", () => {
    const fixture = storeWithGroup(4)
    const entries = [
      { ...place(0), offset: 1n, lineage: "1.0" },
      { ...place(4), offset: 2n, lineage: "1.0" },
      { stream: "shop", topic: "missing", partition: 0, offset: 3n, lineage: "1.0" },
      { ...place(1), offset: 4n, lineage: "old" },
      { ...place(2), offset: 5n, lineage: "1.0" },
    ]
    const outcomes = fixture.call<OffsetOutcome<undefined>[]>("offsets.store", { owner: consumer, entries })
    assert.deepEqual(
      outcomes.map((outcome) => ("error" in outcome ? outcome.error.kind : undefined)),
      [undefined, "not-found", "not-found", "history-changed", undefined],
    )
    assert.match(
      fixture.refusal(outcomes.slice(1))?.message ?? "",
      /^partition 4 of topic "shop\/orders" is out of range: the topic has 4 partitions \(0 to 3\)$/,
    )
    assert.equal(load(fixture, consumer, 0), 1n)
    assert.equal(load(fixture, consumer, 1), undefined)
    assert.equal(load(fixture, consumer, 2), 5n)
  })

  it("of a group obey the present owner alone", () => {
    const fixture = storeWithGroup(4)
    assert.equal(store(fixture, group, { offset: 1n }), undefined, "nobody owns it: no claim is needed")
    assert.equal(store(fixture, group, { offset: 1n, claim: 77 }), "not-assigned", "a claim that never was")
    const a = fixture.join("a")
    const claim = fixture.view(a.member)?.claims[0]?.claim as number
    assert.equal(store(fixture, group, { offset: 2n }), "not-assigned", "an owner is there: a claim is needed")
    assert.equal(store(fixture, group, { offset: 3n, claim }), undefined)
    assert.equal(
      store(fixture, group, { partition: 1, offset: 3n, claim }),
      "not-assigned",
      "another partition's claim",
    )
    assert.equal(remove(fixture, group), "not-assigned")
    fixture.call("groups.leave", { member: a.member })
    assert.equal(store(fixture, group, { offset: 4n, claim }), "not-assigned", "the claim of one who has left")
    assert.equal(remove(fixture, group, claim), "not-assigned")
    assert.equal(load(fixture, group), 3n)
    const b = fixture.join("b")
    assert.equal(
      store(fixture, group, { offset: 5n, claim: fixture.view(b.member)?.claims[0]?.claim as number }),
      undefined,
    )
    assert.equal(load(fixture, group), 5n)
  })

  it("of a group that does not exist are refused", () => {
    const fixture = storeWithGroup(4)
    assert.equal(store(fixture, { kind: "group", name: "nobody" }, { offset: 1n }), "not-found")
    assert.equal(load(fixture, { kind: "group", name: "nobody" }), undefined)
  })

  it("are forgotten when asked, also twice, and with their group", () => {
    const fixture = storeWithGroup(4)
    store(fixture, consumer, { offset: 7n })
    store(fixture, group, { offset: 8n })
    assert.equal(remove(fixture, consumer), undefined)
    assert.equal(remove(fixture, consumer), undefined)
    assert.equal(load(fixture, consumer), undefined)
    assert.equal(load(fixture, group), 8n)
    fixture.call("groups.delete", { group: "workers", topic: orders })
    assert.equal(fixture.rows("stored_offset"), 0)
  })

  it("are as durable as the strictest topic of the call asks", () => {
    const durabilities = new Map([
      ["a", "synced"],
      ["b", "written"],
    ])
    const lookup = ({ topic }: { topic: string }): TopicRow | undefined =>
      durabilities.has(topic) ? ({ offsetDurability: durabilities.get(topic) } as TopicRow) : undefined
    const store = offsetRoom.commands.find(({ name }) => name === "offsets.store")
    assert.ok(store?.mode === "write")
    const durability = (...topics: string[]): string =>
      store.durability(
        {
          owner: consumer,
          entries: topics.map((topic) => ({ stream: "s", topic, partition: 0, offset: 0n, lineage: "" })),
        },
        lookup,
      )
    assert.equal(durability("a"), "synced")
    assert.equal(durability("b"), "written")
    assert.equal(durability("b", "a"), "synced")
    assert.equal(durability("gone"), "written")
  })
})
