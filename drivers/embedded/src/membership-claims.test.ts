import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import type { OwnClaim } from "./engine/group-view.ts"
import { type ClaimChange, MembershipClaims } from "./membership-claims.ts"

function own(claim: number, options: { partition?: number; revoking?: boolean } = {}): OwnClaim {
  return { claim, stream: "s", topic: "t", partition: options.partition ?? claim, revoking: options.revoking ?? false }
}

function numbers({ assigned, revoked, lost }: ClaimChange): { assigned: number[]; revoked: number[]; lost: number[] } {
  const claims = (list: readonly OwnClaim[]): number[] => list.map(({ claim }) => claim)
  return { assigned: claims(assigned), revoked: claims(revoked), lost: claims(lost) }
}

/** What a claim came to be, by how the owner heard of it: one way a state. */
const reach: Record<string, (claims: MembershipClaims) => void> = {
  offered: (claims) => claims.observe([own(1)], 0),
  held(claims) {
    claims.observe([own(1)], 0)
    claims.take(0)
  },
  revoking(claims) {
    reach.held?.(claims)
    claims.observe([own(1, { revoking: true })], 0)
  },
  draining(claims) {
    reach.revoking?.(claims)
    claims.take(0)
  },
  releasing(claims) {
    reach.draining?.(claims)
    claims.release([1])
  },
  lost(claims) {
    reach.held?.(claims)
    claims.observe([], 0)
  },
}

const events: Record<string, (claims: MembershipClaims) => void> = {
  kept: (claims) => claims.observe([own(1)], 0),
  revoked: (claims) => claims.observe([own(1, { revoking: true })], 0),
  vanished: (claims) => claims.observe([], 0),
  released: (claims) => claims.release([1]),
}

/** What the owner then hears, and what the store is to be told: a(ssigned), r(evoked), l(ost), and ! for a release. */
const expected: Record<string, Record<string, string>> = {
  offered: { kept: "a", revoked: "!", vanished: "", released: "!" },
  held: { kept: "", revoked: "r", vanished: "l", released: "!" },
  revoking: { kept: "", revoked: "r", vanished: "l", released: "!" },
  draining: { kept: "", revoked: "", vanished: "l", released: "!" },
  releasing: { kept: "!", revoked: "!", vanished: "", released: "!" },
  lost: { vanished: "l", released: "" },
}

describe("the claims of a member", () => {
  for (const [state, outcomes] of Object.entries(expected)) {
    for (const [event, outcome] of Object.entries(outcomes)) {
      it(`${state}, then ${event}: ${outcome === "" ? "nothing" : outcome}`, () => {
        const claims = new MembershipClaims(1000)
        reach[state]?.(claims)
        events[event]?.(claims)
        const { assigned, revoked, lost } = numbers(claims.take(0))
        const heard = `${"a".repeat(assigned.length)}${"r".repeat(revoked.length)}${"l".repeat(lost.length)}`
        assert.equal(`${heard}${"!".repeat(claims.releasing().length)}`, outcome)
        assert.equal(claims.pending, false)
      })
    }
  }

  it("tells the loss of a partition before its new assignment", () => {
    const claims = new MembershipClaims(1000)
    claims.observe([own(1, { partition: 0 }), own(2, { partition: 1 })], 0)
    claims.take(0)
    claims.observe([own(2, { partition: 1 }), own(3, { partition: 0 }), own(4, { partition: 2 })], 0)
    assert.deepEqual(numbers(claims.take(0)), { assigned: [4], revoked: [], lost: [1] })
    assert.deepEqual(numbers(claims.take(0)), { assigned: [3], revoked: [], lost: [] })
  })

  it("gives the time that is left, from when the revocation was first seen", () => {
    const claims = new MembershipClaims(1000)
    claims.observe([own(1), own(2)], 0)
    assert.equal(claims.take(0).deadlineMs, 1000)
    claims.observe([own(1, { revoking: true }), own(2)], 100)
    claims.observe([own(1, { revoking: true }), own(2, { revoking: true })], 300)
    assert.equal(claims.take(400).deadlineMs, 700)
    const late = new MembershipClaims(1000)
    late.observe([own(1)], 0)
    late.take(0)
    late.observe([own(1, { revoking: true })], 0)
    assert.equal(late.take(5000).deadlineMs, 0)
  })

  it("agree with the owner's own account, whatever the store says and however seldom the owner looks", () => {
    const partitions = 3
    const step = fc.oneof(
      fc.record({ do: fc.constant("give"), partition: fc.nat(partitions - 1) }),
      fc.record({
        do: fc.constantFrom("want", "want not", "void", "release", "take"),
        partition: fc.nat(partitions - 1),
      }),
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const claims = new MembershipClaims(1000)
        const store = new Map<number, OwnClaim>()
        const heard = new Map<number, number>()
        let last = 0
        const observe = (): void => claims.observe([...store.values()], 0)
        const take = (): void => {
          const change = claims.take(0)
          for (const { partition, claim } of change.lost) {
            assert.equal(heard.get(partition), claim, "only what was heard of is lost")
            heard.delete(partition)
          }
          for (const { partition, claim } of change.revoked) assert.equal(heard.get(partition), claim)
          for (const { partition, claim } of change.assigned) {
            assert.equal(heard.has(partition), false, "a partition is not assigned twice")
            heard.set(partition, claim)
          }
        }
        for (const { do: action, partition } of steps) {
          const present = store.get(partition)
          if (action === "give" && present === undefined) store.set(partition, own(++last, { partition }))
          else if (action === "want" && present !== undefined) store.set(partition, { ...present, revoking: true })
          else if (action === "want not" && present !== undefined) store.set(partition, { ...present, revoking: false })
          else if (action === "void") store.delete(partition)
          else if (action === "release") {
            const claim = heard.get(partition)
            if (claim !== undefined) claims.release([claim])
            heard.delete(partition)
          } else if (action === "take") take()
          const told = new Set(claims.releasing())
          for (const [key, { claim }] of store) if (told.has(claim)) store.delete(key)
          observe()
        }
        while (claims.pending) take()
        const truth = new Map([...store].map(([partition, { claim }]) => [partition, claim]))
        for (const [partition, claim] of heard) assert.equal(truth.get(partition), claim)
        for (const [partition, { claim, revoking }] of store) {
          if (!revoking && !claims.releasing().includes(claim)) assert.equal(heard.get(partition), claim)
        }
      }),
    )
  })
})
