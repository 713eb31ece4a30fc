import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import { assign, type Seat } from "./groups-assignment.ts"
import type { GroupMember } from "./groups-record.ts"

const member = (number: number, topics: readonly number[]): GroupMember => ({
  number,
  memberId: `m${number}`,
  topics,
  sessionTimeoutMs: 1,
  rebalanceTimeoutMs: 1,
})

/** Members with some of three topics each, and the partitions of these topics with or without a (perhaps departed) owner. */
const situation = fc.record({
  members: fc
    .uniqueArray(fc.integer({ min: 1, max: 9 }), { maxLength: 6 })
    .chain((numbers) =>
      fc.tuple(
        ...numbers.map((number) => fc.subarray([1, 2, 3], { minLength: 1 }).map((topics) => member(number, topics))),
      ),
    ),
  seats: fc
    .tuple(fc.nat(5), fc.nat(5), fc.nat(5))
    .chain((counts) =>
      fc.tuple(
        ...counts.flatMap((count, topic) =>
          Array.from({ length: count }, (_, partition) =>
            fc
              .option(fc.integer({ min: 1, max: 9 }), { nil: undefined })
              .map((owner): Seat => ({ topic: topic + 1, partition, member: owner })),
          ),
        ),
      ),
    ),
})

describe("the assignment of a group", () => {
  it("leaves a partition out only when nobody reads its topic, and gives it to nobody else", () => {
    fc.assert(
      fc.property(situation, ({ members, seats }) => {
        const answer = assign(members, seats)
        assert.deepEqual(
          answer.map(({ topic, partition }) => [topic, partition]),
          seats.map(({ topic, partition }) => [topic, partition]),
        )
        for (const { topic, member: owner } of answer) {
          const takers = members.filter(({ topics }) => topics.includes(topic))
          assert.equal(owner === undefined, takers.length === 0)
          if (owner !== undefined) assert.ok(takers.some(({ number }) => number === owner))
        }
      }),
    )
  })

  it("is even among those that read the same topics, and leaves it at that", () => {
    fc.assert(
      fc.property(situation, ({ members, seats }) => {
        const answer = assign(members, seats)
        const count = (number: number): number => answer.filter((seat) => seat.member === number).length
        for (const one of members) {
          for (const other of members) {
            if (one.topics.join() !== other.topics.join()) continue
            assert.ok(
              Math.abs(count(one.number) - count(other.number)) <= 1,
              `${count(one.number)} and ${count(other.number)}`,
            )
          }
        }
        assert.deepEqual(assign(members, answer), answer, "what is assigned stays")
      }),
    )
  })

  it("takes from who has most, not from who stands in between (6 partitions, one of them free)", () => {
    const members = [1, 2, 3, 4].map((number) => member(number, [1]))
    const seats = [2, 2, 2, 1, 1, undefined].map((owner, partition): Seat => ({ topic: 1, partition, member: owner }))
    assert.deepEqual(
      assign(members, seats).map((seat) => seat.member),
      [2, 2, 4, 1, 1, 3],
    )
  })

  it("moves no more than evenness needs", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 20 }),
        fc.array(fc.integer({ min: 1, max: 4 }), { maxLength: 20 }),
        (count, owners) => {
          const members = [1, 2, 3, 4].map((number) => member(number, [1]))
          const seats = Array.from(
            { length: count },
            (_, partition): Seat => ({ topic: 1, partition, member: owners[partition] }),
          )
          const moved = assign(members, seats).filter((seat, index) => {
            const before = seats[index]?.member
            return before !== undefined && seat.member !== before
          })
          // Whoever has more than the even share allows must give the rest away; nobody else gives anything.
          const has = members
            .map(({ number }) => seats.filter((seat) => seat.member === number).length)
            .sort((a, b) => b - a)
          const [low, extra] = [Math.floor(count / 4), count % 4]
          const surplus = has.reduce((sum, n, index) => sum + Math.max(0, n - (index < extra ? low + 1 : low)), 0)
          assert.equal(moved.length, surplus)
        },
      ),
      { examples: [[6, [2, 2, 2, 1, 1]]] },
    )
  })

  it("does not depend on the order in which members are listed", () => {
    fc.assert(
      fc.property(situation, ({ members, seats }) => {
        assert.deepEqual(assign([...members].reverse(), seats), assign(members, seats))
      }),
    )
  })
})
