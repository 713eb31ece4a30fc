import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import { type AssignedPartition, assign, type Candidate, type OwnedPartition } from "./group-assignment.ts"

function members(...ids: number[]): Candidate[] {
  return ids.map((id) => ({ id, topics: new Set([1]) }))
}

function owned(...owners: (number | undefined)[]): OwnedPartition[] {
  return owners.map((owner, partition) => ({ topic: 1, partition, ...(owner === undefined ? {} : { owner }) }))
}

function loads(assignment: readonly AssignedPartition[], candidates: readonly Candidate[]): Map<number, number> {
  const counts = new Map(candidates.map(({ id }) => [id, 0]))
  for (const { member } of assignment) if (member !== undefined) counts.set(member, (counts.get(member) ?? 0) + 1)
  return counts
}

function moves(before: readonly OwnedPartition[], after: readonly AssignedPartition[], present: Set<number>): number {
  const target = new Map(after.map(({ topic, partition, member }) => [`${topic}/${partition}`, member]))
  return before.filter(
    ({ topic, partition, owner }) =>
      owner !== undefined && present.has(owner) && target.get(`${topic}/${partition}`) !== owner,
  ).length
}

/** The most partitions that can stay in any balanced assignment of one topic: the fullest members keep the larger share. */
function mostKept(before: readonly OwnedPartition[], candidates: readonly Candidate[]): number {
  const counts = candidates.map(({ id }) => before.filter(({ owner }) => owner === id).length).sort((a, b) => b - a)
  const small = Math.floor(before.length / candidates.length)
  const large = before.length % candidates.length
  return counts.reduce((kept, count, rank) => kept + Math.min(count, rank < large ? small + 1 : small), 0)
}

const oneTopic = fc
  .record({
    ids: fc.uniqueArray(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 12 }),
    owners: fc.array(fc.option(fc.integer({ min: 1, max: 40 }), { nil: undefined }), { maxLength: 60 }),
  })
  .map(({ ids, owners }) => ({ candidates: members(...ids), partitions: owned(...owners) }))

const manyTopics = fc
  .record({
    subscriptions: fc.array(fc.uniqueArray(fc.integer({ min: 1, max: 4 }), { minLength: 1 }), {
      minLength: 1,
      maxLength: 8,
    }),
    partitions: fc.array(
      fc.record({ topic: fc.integer({ min: 1, max: 4 }), owner: fc.option(fc.integer({ min: 0, max: 9 })) }),
      { maxLength: 40 },
    ),
  })
  .map(({ subscriptions, partitions }) => ({
    candidates: subscriptions.map((topics, id) => ({ id, topics: new Set(topics) })),
    partitions: partitions.map(({ topic, owner }, partition) => ({
      topic,
      partition,
      ...(owner === null ? {} : { owner }),
    })),
  }))

describe("the assignment of a group", () => {
  it("gives everything to the only member", () => {
    const assignment = assign(members(7), owned(undefined, undefined, undefined))
    assert.deepEqual(
      assignment.map(({ member }) => member),
      [7, 7, 7],
    )
  })

  it("moves only what a newcomer needs", () => {
    const assignment = assign(members(1, 2, 3), owned(1, 1, 1, 2, 2, 2))
    assert.deepEqual([...loads(assignment, members(1, 2, 3)).values()], [2, 2, 2])
    assert.equal(moves(owned(1, 1, 1, 2, 2, 2), assignment, new Set([1, 2])), 2)
  })

  it("moves nothing when a leaver's partitions even the others out", () => {
    const before = owned(1, 1, 2, 2, 3, 3)
    const assignment = assign(members(1, 2), before)
    assert.equal(moves(before, assignment, new Set([1, 2])), 0)
    assert.deepEqual([...loads(assignment, members(1, 2)).values()], [3, 3])
  })

  it("leaves surplus members without partitions", () => {
    const assignment = assign(members(1, 2, 3), owned(undefined))
    assert.deepEqual([...loads(assignment, members(1, 2, 3)).values()].sort(), [0, 0, 1])
  })

  it("answers no member for a topic that nobody subscribes to", () => {
    assert.deepEqual(assign(members(1), [{ topic: 2, partition: 0, owner: 1 }]), [{ topic: 2, partition: 0 }])
    assert.deepEqual(assign([], owned(4)), [{ topic: 1, partition: 0 }])
  })

  it("evens out through a member that subscribes to both topics", () => {
    const candidates = [
      { id: 1, topics: new Set([1]) },
      { id: 2, topics: new Set([1, 2]) },
      { id: 3, topics: new Set([2]) },
    ]
    const before = [
      ...[0, 1, 2].map((partition) => ({ topic: 1, partition, owner: 1 })),
      ...[0, 1].map((partition) => ({ topic: 2, partition, owner: 2 })),
      { topic: 2, partition: 2, owner: 3 },
    ]
    assert.deepEqual([...loads(assign(candidates, before), candidates).values()], [2, 2, 2])
  })

  it("gives out first what few can have, so that nothing owned must move for it", () => {
    const candidates = [
      { id: 1, topics: new Set([1, 2]) },
      { id: 2, topics: new Set([1]) },
    ]
    const before = [
      { topic: 1, partition: 0 },
      { topic: 1, partition: 9, owner: 1 },
      { topic: 2, partition: 0 },
      { topic: 1, partition: 2 },
    ]
    const assignment = assign(candidates, before)
    assert.deepEqual([...loads(assignment, candidates).values()], [2, 2])
    assert.equal(moves(before, assignment, new Set([1, 2])), 0)
  })

  it("assigns every partition once, to a member that subscribes, balanced among equals", () => {
    fc.assert(
      fc.property(manyTopics, ({ candidates, partitions }) => {
        const assignment = assign(candidates, partitions)
        assert.equal(assignment.length, partitions.length)
        for (const { topic, member } of assignment) {
          const able = candidates.filter(({ topics }) => topics.has(topic)).map(({ id }) => id)
          if (able.length === 0) assert.equal(member, undefined)
          else assert.ok(member !== undefined && able.includes(member))
        }
        const counts = loads(assignment, candidates)
        for (const a of candidates) {
          for (const b of candidates) {
            if ([...a.topics].sort().join() !== [...b.topics].sort().join()) continue
            assert.ok(Math.abs((counts.get(a.id) as number) - (counts.get(b.id) as number)) <= 1)
          }
        }
      }),
    )
  })

  it("moves as few as any balanced assignment of one topic can", () => {
    fc.assert(
      fc.property(oneTopic, ({ candidates, partitions }) => {
        const present = new Set(candidates.map(({ id }) => id))
        const held = partitions.filter(({ owner }) => owner !== undefined && present.has(owner)).length
        const assignment = assign(candidates, partitions)
        assert.equal(moves(partitions, assignment, present), held - mostKept(partitions, candidates))
      }),
    )
  })

  it("does not depend on the order in which members and partitions are listed", () => {
    fc.assert(
      fc.property(manyTopics, fc.infiniteStream(fc.nat()), ({ candidates, partitions }, keys) => {
        const shuffled = <T>(list: readonly T[]): T[] =>
          list
            .map((item) => ({ item, key: keys.next().value }))
            .sort((a, b) => a.key - b.key)
            .map(({ item }) => item)
        assert.deepEqual(assign(shuffled(candidates), shuffled(partitions)), assign(candidates, partitions))
      }),
    )
  })

  it("is settled: assigning again moves nothing", () => {
    fc.assert(
      fc.property(manyTopics, ({ candidates, partitions }) => {
        const once = assign(candidates, partitions)
        const again = assign(
          candidates,
          once.map(({ topic, partition, member }) => ({
            topic,
            partition,
            ...(member === undefined ? {} : { owner: member }),
          })),
        )
        assert.deepEqual(again, once)
      }),
    )
  })

  it("stays balanced and sticky while members come and go in any order", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 30 }),
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 30 }),
        (count, toggles) => {
          const present = new Set<number>()
          let partitions = owned(...Array.from({ length: count }, () => undefined))
          for (const id of toggles) {
            const joins = !present.delete(id)
            if (joins) present.add(id)
            const candidates = members(...present)
            const assignment = assign(candidates, partitions)
            if (candidates.length > 0) {
              const counts = [...loads(assignment, candidates).values()]
              assert.ok(Math.max(...counts) - Math.min(...counts) <= 1)
              const most = joins ? Math.floor(count / candidates.length) : 0
              assert.ok(
                moves(partitions, assignment, present) <= most,
                "a change moves no more than the newcomer's share",
              )
            }
            partitions = owned(...assignment.map(({ member }) => member))
          }
        },
      ),
    )
  })
})
