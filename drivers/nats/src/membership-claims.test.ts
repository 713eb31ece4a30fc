import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import type { OwnClaim } from "./groups-view.ts"
import { type ClaimNews, MembershipClaims } from "./membership-claims.ts"

function own(number: number, options: { readonly partition?: number; readonly wanted?: boolean } = {}): OwnClaim {
  const { partition = number, wanted = false } = options
  return { number, stream: "s", topic: "t", partition, lineage: "h", wanted }
}

/** `+1 -2 !3`: what was assigned, revoked and lost, by number. */
function told({ assigned, revoked, lost }: ClaimNews): string {
  const texts = (sign: string, claims: readonly OwnClaim[]): string[] => claims.map(({ number }) => `${sign}${number}`)
  return [...texts("+", assigned), ...texts("-", revoked), ...texts("!", lost)].join(" ")
}

/** How a claim comes to be in each state. */
const ways: Record<string, (claims: MembershipClaims) => void> = {
  unheard: (claims) => claims.see([own(1)], 0),
  owned(claims) {
    claims.see([own(1)], 0)
    claims.tell(0)
  },
  asked(claims) {
    ways.owned?.(claims)
    claims.see([own(1, { wanted: true })], 0)
  },
  draining(claims) {
    ways.asked?.(claims)
    claims.tell(0)
  },
  letGo(claims) {
    ways.draining?.(claims)
    claims.release([1])
  },
  gone(claims) {
    ways.owned?.(claims)
    claims.see([], 0)
  },
}

const events: Record<string, (claims: MembershipClaims) => void> = {
  stays: (claims) => claims.see([own(1)], 0),
  wanted: (claims) => claims.see([own(1, { wanted: true })], 0),
  void: (claims) => claims.see([], 0),
  forfeited: (claims) => claims.loseAll(),
  done: (claims) => claims.release([1]),
}

/** What the owner hears then, and with `>` what the record is still to be told. */
const expected: Record<string, Record<string, string>> = {
  unheard: { stays: "+1", wanted: ">1", void: "", forfeited: "", done: ">1" },
  owned: { stays: "", wanted: "-1", void: "!1", forfeited: "!1", done: ">1" },
  asked: { stays: "", wanted: "-1", void: "!1", forfeited: "!1", done: ">1" },
  draining: { stays: "", wanted: "", void: "!1", forfeited: "!1", done: ">1" },
  letGo: { stays: ">1", wanted: ">1", void: "", forfeited: "", done: ">1" },
  gone: { void: "!1", forfeited: "!1", done: "" },
}

describe("the claims of a member", () => {
  for (const [state, outcomes] of Object.entries(expected)) {
    for (const [event, outcome] of Object.entries(outcomes)) {
      it(`${state}, then ${event}: ${outcome === "" ? "nothing" : outcome}`, () => {
        const claims = new MembershipClaims(1000)
        ways[state]?.(claims)
        events[event]?.(claims)
        const heard = claims.news ? told(claims.tell(0)) : ""
        assert.equal(`${heard}${claims.released().map((number) => `>${number}`)}`, outcome)
        assert.equal(claims.news, false)
      })
    }
  }

  it("tell the loss of a partition before its new assignment", () => {
    const claims = new MembershipClaims(1000)
    claims.see([own(1, { partition: 0 })], 0)
    claims.tell(0)
    claims.see([own(3, { partition: 0 }), own(4, { partition: 2 })], 0)
    assert.equal(told(claims.tell(0)), "+4 !1")
    assert.equal(told(claims.tell(0)), "+3")
  })

  it("give the time that is left, from when a claim was first seen to be wanted", () => {
    const claims = new MembershipClaims(1000)
    claims.see([own(1), own(2)], 0)
    assert.equal(claims.tell(0).deadlineMs, 1000)
    claims.see([own(1, { wanted: true }), own(2)], 100)
    claims.see([own(1, { wanted: true }), own(2, { wanted: true })], 300)
    assert.equal(claims.tell(400).deadlineMs, 700)
  })

  it("agree with the owner's own account, whatever the record says and however seldom the owner looks", () => {
    const action = fc.constantFrom("give", "want", "unwant", "void", "release", "tell")
    fc.assert(
      fc.property(fc.array(fc.tuple(action, fc.nat(2)), { maxLength: 60 }), (steps) => {
        const claims = new MembershipClaims(1000)
        const record = new Map<number, OwnClaim>()
        const account = new Map<number, number>()
        let last = 0
        const listen = (): void => {
          const { assigned, lost } = claims.tell(0)
          for (const { partition, number } of lost) {
            assert.equal(account.get(partition), number, "only what was heard of is lost")
            account.delete(partition)
          }
          for (const { partition, number } of assigned) {
            assert.equal(account.has(partition), false, "a partition is assigned twice")
            account.set(partition, number)
          }
        }
        for (const [step, partition] of steps) {
          const present = record.get(partition)
          if (step === "give" && present === undefined) record.set(partition, own(++last, { partition }))
          else if (step === "want" && present !== undefined) record.set(partition, { ...present, wanted: true })
          else if (step === "unwant" && present !== undefined) record.set(partition, { ...present, wanted: false })
          else if (step === "void") record.delete(partition)
          else if (step === "tell") listen()
          else if (step === "release") {
            const number = account.get(partition)
            if (number !== undefined) claims.release([number])
            account.delete(partition)
          }
          const released = new Set(claims.released())
          for (const [key, { number }] of record) if (released.has(number)) record.delete(key)
          claims.see([...record.values()], 0)
        }
        while (claims.news) listen()
        for (const [partition, number] of account) assert.equal(record.get(partition)?.number, number)
        for (const [partition, { number, wanted }] of record) {
          if (!wanted && !claims.released().includes(number)) assert.equal(account.get(partition), number)
        }
      }),
    )
  })
})
