import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import { newGroup, reported, withMember, withoutMember, withoutTopic, withTopic } from "./groups-change.ts"
import { formatGroup, type GroupRecord, parseGroup } from "./groups-record.ts"
import { viewOf } from "./groups-view.ts"

const name = { stream: "s", topic: "t" }
const state = (partitions: number, lineage = "h1"): Parameters<typeof withTopic>[1] => ({
  ...name,
  lineage,
  partitions,
})
const nothing = { released: [], silent: [], overdue: [], topics: [] }

function joined(record: GroupRecord, memberId: string): GroupRecord {
  return withMember(record, { memberId, topics: [name], sessionTimeoutMs: 1000, rebalanceTimeoutMs: 500 })
}

function numberOf(record: GroupRecord, memberId: string): number {
  return record.members.find((one) => one.memberId === memberId)?.number ?? -1
}

/** `a:0 1>b`: a has partitions 0 and 1, the latter on its way to b. */
function shown(record: GroupRecord): string {
  const idOf = (number: number | undefined): string =>
    record.members.find((one) => one.number === number)?.memberId ?? "?"
  return record.members
    .map(({ number, memberId }) => {
      const own = record.claims.filter((claim) => claim.member === number)
      return `${memberId}:${own.map((claim) => `${claim.partition}${claim.heir === undefined ? "" : `>${idOf(claim.heir)}`}`).join(" ")}`
    })
    .join(", ")
}

const two = joined(withTopic(newGroup("g"), state(2)), "a")

describe("a group's record", () => {
  it("gives a member that is alone everything, and marks what moves when a second one comes", () => {
    assert.equal(shown(two), "a:0 1")
    assert.equal(shown(joined(two, "b")), "a:0 1>b, b:")
  })

  it("hands over only what was released, under a new claim", () => {
    const both = joined(two, "b")
    const moving = both.claims.find(({ heir }) => heir !== undefined)
    const after = reported(both, numberOf(both, "a"), { ...nothing, released: [moving?.number ?? -1] })
    assert.equal(shown(after), "a:0, b:1")
    const passed = after.claims.find(({ partition }) => partition === 1)
    assert.ok((passed?.number ?? 0) > (moving?.number ?? 0), "the new claim fences the old one")
    assert.ok(after.generation > both.generation)
  })

  it("takes an overdue claim away, and everything from a silent member", () => {
    const both = joined(two, "b")
    const moving = both.claims.find(({ heir }) => heir !== undefined)?.number ?? -1
    const b = numberOf(both, "b")
    assert.equal(shown(reported(both, b, { ...nothing, overdue: [moving] })), "a:0, b:1")
    assert.equal(shown(reported(both, b, { ...nothing, silent: [numberOf(both, "a")] })), "b:0 1")
  })

  it("does not let a member release what is another's, nor condemn itself", () => {
    const both = joined(two, "b")
    const b = numberOf(both, "b")
    const foreign = both.claims.map(({ number }) => number)
    assert.equal(reported(both, b, { ...nothing, released: foreign, silent: [b] }), both)
  })

  it("gives a member that comes back its place, under new claims", () => {
    const both = reported(joined(two, "b"), numberOf(two, "a"), {
      ...nothing,
      released: [joined(two, "b").claims[1]?.number ?? -1],
    })
    assert.equal(shown(both), "a:0, b:1")
    const again = joined(both, "a")
    assert.equal(shown(again), "b:1, a:0")
    assert.notEqual(numberOf(again, "a"), numberOf(both, "a"))
    const claim = (record: GroupRecord): number => record.claims.find(({ partition }) => partition === 0)?.number ?? 0
    assert.ok(claim(again) > claim(both))
  })

  it("voids the claims of a topic that was made anew or is gone, and gives added partitions out", () => {
    const a = numberOf(two, "a")
    const anew = reported(two, a, { ...nothing, topics: [state(2, "h2")] })
    assert.equal(shown(anew), "a:0 1")
    assert.equal(
      anew.claims.some(({ number }) => two.claims.some((old) => old.number === number)),
      false,
    )
    assert.equal(
      shown(reported(two, a, { ...nothing, topics: [{ ...name, lineage: undefined, partitions: 0 }] })),
      "a:",
    )
    assert.equal(shown(reported(two, a, { ...nothing, topics: [state(4)] })), "a:0 1 2 3")
    assert.equal(shown(withoutTopic(two, name)), "")
  })

  it("is the same object when nothing is news", () => {
    assert.equal(reported(two, numberOf(two, "a"), { ...nothing, topics: [state(2)] }), two)
    assert.equal(withoutMember(two, 999), two)
    assert.equal(reported(two, 999, { ...nothing, overdue: two.claims.map(({ number }) => number) }), two)
  })

  it("never has two claims on one partition nor gives a number twice, and comes to rest evenly, whatever happens", () => {
    const step = fc.oneof(
      fc.record({ do: fc.constant("join"), who: fc.constantFrom("a", "b", "c", "d") }),
      fc.record({
        do: fc.constantFrom("leave", "silent", "release", "overdue"),
        who: fc.constantFrom("a", "b", "c", "d"),
      }),
      fc.record({ do: fc.constant("grow"), who: fc.constantFrom("a", "b", "c", "d") }),
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        let record = withTopic(newGroup("g"), state(5))
        let partitions = 5
        const owners = new Map<number, string>()
        const apply = (next: GroupRecord): void => {
          assert.ok(next.generation >= record.generation && next.next >= record.next)
          const places = next.claims.map(({ topic, partition }) => `${topic}/${partition}`)
          assert.equal(new Set(places).size, places.length, "a partition is given twice")
          for (const claim of next.claims) {
            const owner = `${claim.member} ${claim.partition}`
            assert.equal(owners.get(claim.number) ?? owner, owner, "a claim changed its owner")
            owners.set(claim.number, owner)
            assert.ok(next.members.some(({ number }) => number === claim.member))
            assert.ok(claim.heir === undefined || next.members.some(({ number }) => number === claim.heir))
          }
          if (next.members.length > 0) assert.equal(next.claims.length, partitions)
          if (next !== record && JSON.stringify(next.claims) !== JSON.stringify(record.claims)) {
            assert.ok(next.generation > record.generation, "who reads what changed without a new generation")
          }
          record = next
        }
        for (const { do: action, who } of steps) {
          const own = numberOf(record, who)
          const other = record.members.find(({ number }) => number !== own)
          const wanted = record.claims.filter((claim) => claim.heir !== undefined)
          if (action === "join") apply(joined(record, who))
          else if (action === "leave") apply(withoutMember(record, own))
          else if (action === "silent" && other !== undefined)
            apply(reported(record, own, { ...nothing, silent: [other.number] }))
          else if (action === "overdue")
            apply(reported(record, own, { ...nothing, overdue: wanted.map(({ number }) => number) }))
          else if (action === "release") {
            apply(
              reported(record, own, {
                ...nothing,
                released: wanted.filter((claim) => claim.member === own).map(({ number }) => number),
              }),
            )
          } else if (action === "grow" && own !== -1 && partitions < 8) {
            partitions++
            apply(reported(record, own, { ...nothing, topics: [state(partitions)] }))
          }
          assert.deepEqual(parseGroup("g", formatGroup(record)), record)
        }
        for (let round = 0; record.claims.some(({ heir }) => heir !== undefined); round++) {
          assert.ok(round < 50, "it does not come to rest")
          for (const { number } of record.members) {
            const released = record.claims.filter((claim) => claim.member === number && claim.heir !== undefined)
            apply(reported(record, number, { ...nothing, released: released.map((claim) => claim.number) }))
          }
        }
        const counts = record.members.map(
          ({ number }) => record.claims.filter((claim) => claim.member === number).length,
        )
        if (counts.length > 0) assert.ok(Math.max(...counts) - Math.min(...counts) <= 1, counts.join())
      }),
    )
  })

  it("tells each member its own claims, the others, and what others are to hand over", () => {
    const both = joined(two, "b")
    const [a, b] = [numberOf(both, "a"), numberOf(both, "b")]
    assert.deepEqual(
      viewOf(both, a)?.claims.map(({ partition, wanted }) => [partition, wanted]),
      [
        [0, false],
        [1, true],
      ],
    )
    assert.deepEqual(viewOf(both, a)?.passing, [])
    assert.deepEqual(viewOf(both, b)?.peers, [{ member: a, sessionTimeoutMs: 1000 }])
    assert.deepEqual(
      viewOf(both, b)?.passing.map(({ timeoutMs }) => timeoutMs),
      [500],
    )
    assert.equal(viewOf(both, 999), undefined)
  })
})

describe("the bytes of a group's record", () => {
  it("are refused when they are damaged, at whatever byte", () => {
    const bytes = formatGroup(joined(two, "b"))
    for (let length = 0; length < bytes.length; length++) {
      assert.throws(() => parseGroup("g", bytes.subarray(0, length)), { kind: "corruption" })
    }
    const json = JSON.parse(new TextDecoder().decode(bytes)) as Record<string, unknown>
    for (const [field, value] of Object.entries({
      next: -1,
      members: {},
      claims: [{ number: 1.5 }],
      id: 7,
      topics: [null],
    })) {
      const damaged = new TextEncoder().encode(JSON.stringify({ ...json, [field]: value }))
      assert.throws(() => parseGroup("g", damaged), { kind: "corruption" }, field)
    }
  })

  it("of a newer format are refused as such", () => {
    const newer = new TextEncoder().encode(JSON.stringify({ format: 2 }))
    assert.throws(() => parseGroup("g", newer), { kind: "storage", message: /newer version/ })
  })
})
