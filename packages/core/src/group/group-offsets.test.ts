/** A group's progress moved from outside, also where only an owner may store. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type GroupDescription, InvalidError, NotAssignedError, type OffsetEntry } from "@millrace/contract"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import { groupLag, resetGroupOffsets } from "./group-offsets.ts"

const group = { kind: "group", name: "g" } as const

function filled(members: GroupDescription["members"] = []): FakeClient {
  const client = new FakeClient({ partitions: 2 })
  client.put(0, 10, 0)
  client.put(0, 4, 1)
  client.groups.created.add("g")
  client.groups.describe = (async () => ({ group: "g", generation: 1, members })) as never
  return client
}

const where = (client: FakeClient) => ({ group: "g", topic: client.topic })
const stored = (client: FakeClient) => [client.groupNext("g", 0), client.groupNext("g", 1)]

describe("resetting a group", () => {
  test("stores the place of each partition, forward and back", async () => {
    const client = filled()
    client.storeNext(group, 7n, 0)
    await resetGroupOffsets(client.context, where(client), { kind: "first" })
    assert.deepEqual(stored(client), [0n, 0n])
    await resetGroupOffsets(client.context, where(client), { kind: "last" })
    assert.deepEqual(stored(client), [9n, 3n])
    await resetGroupOffsets(client.context, where(client), { kind: "offset", value: 6n })
    assert.deepEqual(stored(client), [6n, 4n], "a partition that does not reach so far: its end")
    client.log.trim(client.place(0), 8n)
    await resetGroupOffsets(client.context, where(client), { kind: "offset", value: 2n })
    assert.deepEqual(stored(client), [8n, 2n], "one that begins behind it: its first")
  })

  test("sees partitions that were added since the topic was last looked at", async () => {
    const client = filled()
    await client.context.topics.describe(client.topic)
    client.partitions = 3
    client.log.add(client.place(2))
    client.put(0, 5, 2)
    await resetGroupOffsets(client.context, where(client), { kind: "last" })
    assert.equal(client.groupNext("g", 2), 4n)
  })

  test("is refused while a member reads the topic, with its name; one that reads another topic is no reader", async () => {
    const reading = filled([{ memberId: "m7", partitions: [{ stream: "s", topic: "t", partition: 1 }] }])
    await assert.rejects(resetGroupOffsets(reading.context, where(reading), { kind: "first" }), (error) => {
      return error instanceof InvalidError && /"m7"/.test(error.message) && /Shut the members down/.test(error.message)
    })
    assert.deepEqual(stored(reading), [undefined, undefined])
    const elsewhere = filled([{ memberId: "m7", partitions: [{ stream: "s", topic: "other", partition: 1 }] }])
    await resetGroupOffsets(elsewhere.context, where(elsewhere), { kind: "first" })
    assert.deepEqual(stored(elsewhere), [0n, 0n])
  })

  test("is refused for next, and for what is no start", async () => {
    const client = filled()
    for (const to of [{ kind: "next" }, { kind: "earliest" }, undefined] as never[]) {
      await assert.rejects(resetGroupOffsets(client.context, where(client), to), InvalidError)
    }
  })
})

describe("where only an owner may store", () => {
  /** Refuses what has no claim, as such backends do. */
  function ownersOnly(client: FakeClient): void {
    const store = client.offsets.store.bind(client.offsets)
    client.offsets.store = async (owner, entries: readonly OffsetEntry[]) => {
      if (entries.every(({ claim }) => claim !== undefined)) return store(owner, entries)
      return entries.map(() => new NotAssignedError("not owned here"))
    }
  }

  test("it joins for a moment, stores under the claims, and leaves", async () => {
    const client = filled()
    ownersOnly(client)
    client.groups.membership.tell({ assigned: [client.claim(0)] })
    client.groups.membership.tell({ assigned: [client.claim(1)] })
    await resetGroupOffsets(client.context, where(client), { kind: "last" })
    assert.deepEqual(stored(client), [9n, 3n])
    assert.equal(client.groups.membership.left, true)
    assert.equal(client.clock.timers, 0)
  })

  test("it gives up, and leaves, when others come in the way", async () => {
    const client = filled()
    ownersOnly(client)
    client.groups.membership.tell({ assigned: [client.claim(0)] })
    const refusal = assert.rejects(
      resetGroupOffsets(client.context, where(client), { kind: "last" }),
      (error) => error instanceof NotAssignedError && /other members came in the way/.test(error.message),
    )
    await client.clock.advance(10_000)
    await refusal
    assert.deepEqual(stored(client), [undefined, undefined])
    assert.equal(client.groups.membership.left, true)
    assert.equal(client.clock.timers, 0)
  })
})

test("the lag of a group is told for each partition; with nothing stored, all of it", async () => {
  const client = filled()
  client.storeNext(group, 7n, 0)
  const lag = await groupLag(client.context, where(client))
  assert.deepEqual(
    lag.map(({ partition, storedOffset, end, lag: behind }) => [partition, storedOffset, end, behind]),
    [
      [0, 6n, 10n, 3n],
      [1, undefined, 4n, 4n],
    ],
  )
})
