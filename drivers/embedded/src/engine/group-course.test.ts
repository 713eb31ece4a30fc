import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import { orders, storeWithGroup } from "./group-fixture.test-support.ts"

describe("a group under any course of events", () => {
  const step = fc.oneof(
    fc.record({ do: fc.constantFrom("join", "leave", "kill", "drain", "overdue", "beat", "replace"), who: fc.nat(5) }),
    fc.record({ do: fc.constant("grow"), who: fc.constant(0) }),
  )

  it("gives each partition to one member, under a claim of its own, and ends balanced and complete", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 9 }), fc.array(step, { maxLength: 40 }), (partitions, steps) => {
        const fixture = storeWithGroup(partitions)
        const live = new Map<number, { member: number; pid: number }>()
        const used = new Map<number, string>()
        let pid = 10
        let count = partitions
        const join = (who: number): void => {
          fixture.processes.runAs(++pid)
          live.set(who, { member: fixture.join(`m${who}`).member, pid })
        }
        const check = (): void => {
          const owned = [...live.values()].flatMap(({ member }) =>
            (fixture.view(member)?.claims ?? []).map(({ claim, partition }) => {
              const use = `${member}/${partition}`
              assert.equal(used.get(claim) ?? use, use, "a claim never passes to another member or partition")
              used.set(claim, use)
              return partition
            }),
          )
          assert.equal(new Set(owned).size, owned.length, "two members own one partition")
        }
        for (const { do: action, who } of steps) {
          const at = live.get(who)
          if (action === "grow") {
            fixture.addPartitions(orders, 1)
            count++
          } else if (action === "join" || action === "replace") {
            if ((action === "join") === (at === undefined)) join(who)
          } else if (at === undefined) continue
          else if (action === "leave") {
            fixture.call("groups.leave", { member: at.member })
            live.delete(who)
          } else if (action === "kill") {
            fixture.processes.end(at.pid)
            live.delete(who)
          } else if (action === "drain") fixture.drain(at.member)
          else if (action === "beat") assert.notEqual(fixture.call("groups.beat", { member: at.member }), undefined)
          else {
            const overdue = (fixture.view(at.member)?.revoking ?? []).map(({ claim }) => claim)
            fixture.call("groups.expel", { member: at.member, silent: [], overdue })
          }
          check()
        }
        const members = [...live.values()].map(({ member }) => member)
        for (let round = 0; round < 3; round++) {
          for (const member of members) {
            fixture.call("groups.beat", { member })
            fixture.drain(member)
          }
        }
        check()
        const loads = members.map((member) => fixture.claims(member, { revoking: false }).length)
        if (members.length > 0) {
          assert.equal(
            loads.reduce((sum, load) => sum + load, 0),
            count,
            "every partition has an owner",
          )
          assert.ok(Math.max(...loads) - Math.min(...loads) <= 1, `balanced: ${loads}`)
        }
        for (const member of members) fixture.call("groups.leave", { member })
        if (members.length > 0) {
          for (const table of ["group_member", "group_subscription", "group_claim"]) {
            assert.equal(fixture.rows(table), 0, table)
          }
        }
      }),
      { numRuns: 150 },
    )
  })

  it("never interrupts what stays: a claim changes only when its partition moves", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 1, max: 5 }), (partitions, members) => {
        const fixture = storeWithGroup(partitions)
        const joined: number[] = []
        for (let index = 0; index < members; index++) {
          const before = new Map(joined.map((member) => [member, fixture.view(member)?.claims ?? []]))
          joined.push(fixture.join(`m${index}`).member)
          for (const member of joined) fixture.drain(member)
          for (const [member, claims] of before) {
            const after = new Set(fixture.claims(member))
            const kept = claims.filter(({ claim }) => after.has(claim)).length
            assert.equal(kept, after.size, "nothing was taken away and given back")
          }
        }
      }),
      { numRuns: 50 },
    )
  })
})
