import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { ConnectionError, FencedError, type MillraceError, NotFoundError } from "@millrace/contract"
import fc from "fast-check"
import type { GroupView } from "./groups-view.ts"
import { type MembershipCommand, type MembershipEvent, MembershipMachine } from "./membership.machine.ts"

/** A heartbeat each second. */
const options = { sessionTimeoutMs: 10_000, rebalanceTimeoutMs: 3_000 }
const away = new ConnectionError("the server is away")

/** `view("1 2*", 8)`: the claims 1 and 2, the latter wanted back, and a peer 8. */
function view(claims: string, ...peers: readonly number[]): GroupView {
  return {
    group: "g",
    claims: claims
      .split(" ")
      .filter((text) => text !== "")
      .map((text) => {
        const number = Number.parseInt(text, 10)
        return { number, stream: "s", topic: "t", partition: number, lineage: "h", wanted: text.endsWith("*") }
      }),
    peers: peers.map((member) => ({ member, sessionTimeoutMs: 5_000 })),
    passing: [],
  }
}

type Timeless = MembershipEvent extends infer E ? (E extends MembershipEvent ? Omit<E, "nowMs"> : never) : never

/** Drives a machine, and keeps what it commands as texts. */
class Driven {
  readonly machine: MembershipMachine = new MembershipMachine(options)
  nowMs = 0
  dueMs = Number.POSITIVE_INFINITY
  #said: string[] = []

  constructor() {
    this.#note(this.machine.start(0))
  }

  static member(claims = "1 2", ...peers: readonly number[]): Driven {
    const driven = new Driven()
    driven.handle({ type: "joined", member: 5, view: view(claims, ...peers) })
    driven.take()
    driven.said()
    return driven
  }

  handle(event: Timeless, nowMs: number = this.nowMs): this {
    this.nowMs = nowMs
    this.#note(this.machine.handle({ ...event, nowMs } as MembershipEvent))
    return this
  }

  /** The timer fires. */
  due(): this {
    return this.handle({ type: "due" }, Math.max(this.nowMs, this.dueMs))
  }

  said(): string {
    const said = this.#said.join(", ")
    this.#said = []
    return said
  }

  take(): string {
    const news = this.machine.take(this.nowMs)
    if (news === undefined) return "nothing"
    const texts = (sign: string, claims: readonly { readonly number: number }[]): string[] =>
      claims.map(({ number }) => `${sign}${number}`)
    return ["news", ...texts("+", news.assigned), ...texts("-", news.revoked), ...texts("!", news.lost)].join(" ")
  }

  #note(commands: readonly MembershipCommand[]): void {
    for (const command of commands) {
      if (command.type === "arm") this.dueMs = this.nowMs + command.delayMs
      else if (command.type === "call") this.#said.push(calledAs(command.call))
      else if (command.type === "settle") this.#said.push(`settle ${command.tickets}${because(command.error)}`)
      else if (command.type === "end") this.#said.push(`end${because(command.error)}`)
      else this.#said.push(command.type)
    }
  }
}

function calledAs(call: Extract<MembershipCommand, { type: "call" }>["call"]): string {
  if (call.name !== "report") return call.name
  const { released, silent, overdue, topics } = call
  const parts = [
    ...released.map((number) => `released ${number}`),
    ...silent.map(({ member }) => `silent ${member}`),
    ...overdue.map((number) => `overdue ${number}`),
    ...(topics ? ["topics"] : []),
  ]
  return `report${parts.length === 0 ? "" : `(${parts.join(" ")})`}`
}

function because(error: MillraceError | undefined): string {
  return error === undefined ? "" : `: ${error.kind}`
}

describe("the life of a member", () => {
  it("joins, tells the first assignment also when it is empty, and sends a heartbeat at once", () => {
    const driven = new Driven()
    assert.equal(driven.said(), "join")
    driven.handle({ type: "joined", member: 5, view: view("") })
    assert.equal(driven.said(), "beat, offer")
    assert.equal(driven.take(), "news")
    assert.equal(driven.take(), "nothing")
  })

  it("a first join that fails is the end, and is not tried again", () => {
    const driven = new Driven()
    driven.said()
    driven.handle({ type: "failed", error: away })
    assert.equal(driven.said(), "end: connection")
    assert.equal(driven.due().said(), "")
  })

  it("beats and reports each second, and beats also while a call is under way", () => {
    const driven = Driven.member()
    assert.equal(driven.dueMs, 1000)
    assert.equal(driven.due().said(), "beat, report(topics)")
    assert.equal(driven.due().said(), "beat", "one call at a time, heartbeats whatever comes")
    assert.equal(driven.handle({ type: "viewed", view: view("1 2"), signs: [] }).said(), "report(topics)")
  })

  it("looks at once when somebody says that something changed", () => {
    const driven = Driven.member("1 2")
    assert.equal(driven.handle({ type: "stirred" }).said(), "report")
    assert.equal(driven.handle({ type: "stirred" }).said(), "")
    assert.equal(driven.handle({ type: "viewed", view: view("1 2*"), signs: [] }).said(), "report, offer")
    assert.equal(driven.take(), "news -2")
  })

  it("a release settles when the record has heard of it", () => {
    const driven = Driven.member("1 2")
    driven.handle({ type: "stirred" }).handle({ type: "viewed", view: view("1 2*"), signs: [] })
    driven.take()
    driven.said()
    assert.equal(driven.handle({ type: "release", ticket: 1, claims: [2] }).said(), "report(released 2)")
    assert.equal(driven.handle({ type: "viewed", view: view("1"), signs: [] }).said(), "settle 1")
    assert.equal(
      driven.handle({ type: "release", ticket: 2, claims: [2] }).said(),
      "settle 2",
      "nothing is left to tell",
    )
  })

  it("a release that fails is told to whoever waits, and is reported again with the next heartbeat", () => {
    const driven = Driven.member("1")
    assert.equal(driven.handle({ type: "release", ticket: 1, claims: [1] }).said(), "report(released 1)")
    assert.equal(driven.handle({ type: "failed", error: away }).said(), "settle 1: connection")
    assert.equal(driven.due().said(), "beat, report(released 1 topics)")
  })

  it("loses everything when the record does not list it any more, and joins again", () => {
    const driven = Driven.member("1 2")
    driven.due()
    driven.said()
    driven.handle({ type: "viewed", view: undefined, signs: [] })
    assert.equal(driven.said(), "join, offer")
    assert.equal(driven.take(), "news !1 !2")
    driven.handle({ type: "joined", member: 9, view: view("7") })
    assert.equal(driven.said(), "beat, offer")
    assert.equal(driven.take(), "news +7")
  })

  it("a join that fails on the way back is tried again with the next heartbeat, if that can help", () => {
    const driven = Driven.member("1")
    driven.due().handle({ type: "viewed", view: undefined, signs: [] })
    driven.said()
    assert.equal(driven.handle({ type: "failed", error: away }).said(), "offer")
    assert.equal(driven.due().said().includes("join"), true)
    assert.equal(
      driven
        .handle({ type: "failed", error: new NotFoundError("no group") })
        .said()
        .includes("end: not-found"),
      true,
    )
    assert.equal(driven.take(), "news !1")
  })

  it("ends as fenced when another has its id, after it told the loss", () => {
    const driven = Driven.member("1")
    driven.due()
    driven.said()
    assert.equal(driven.handle({ type: "failed", error: new FencedError("replaced") }).said(), "end: fenced")
    assert.equal(driven.take(), "news !1")
    assert.equal(driven.handle({ type: "leave", ticket: 1 }).said(), "settle 1")
  })

  it("reports a peer that it has not heard of for the peer's session time-out, and not one that beats", () => {
    const driven = Driven.member("1", 7, 8)
    driven.handle({ type: "heard", member: 7, beat: 1 }).handle({ type: "heard", member: 8, beat: 1 })
    for (let beat = 2; driven.nowMs < 3_900; beat++) {
      driven.due().handle({ type: "heard", member: 8, beat })
      assert.doesNotMatch(driven.said(), /silent/)
      driven.handle({ type: "viewed", view: view("1", 7, 8), signs: [] })
    }
    driven.said()
    driven.due()
    assert.match(driven.said(), /silent 7/)
  })

  it("takes nobody for dead after a time in which it could not hear", () => {
    const driven = Driven.member("1", 7)
    driven.handle({ type: "heard", member: 7, beat: 1 })
    for (let round = 0; round < 20; round++) {
      driven.due()
      assert.doesNotMatch(driven.said(), /silent/)
      driven.handle({ type: "failed", error: away })
    }
  })

  it("leaves: the owner hears nothing more, and the call is made when the one under way has ended", () => {
    const driven = Driven.member("1")
    driven.due()
    driven.said()
    assert.equal(driven.handle({ type: "leave", ticket: 1 }).said(), "end")
    assert.equal(driven.handle({ type: "viewed", view: view("1 2"), signs: [] }).said(), "leave")
    assert.equal(driven.take(), "nothing")
    assert.equal(driven.handle({ type: "left" }).said(), "settle 1")
  })

  it("a leave during the join takes the member out again; a join that failed needs none", () => {
    const joined = new Driven()
    joined.handle({ type: "leave", ticket: 1 }).said()
    assert.equal(joined.handle({ type: "joined", member: 5, view: view("1") }).said(), "leave")
    const failed = new Driven()
    failed.handle({ type: "leave", ticket: 1 }).said()
    assert.equal(failed.handle({ type: "failed", error: away }).said(), "settle 1")
  })

  it("has one call under way, answers every ticket once, and never tells a partition twice, whatever happens", () => {
    const event = fc.oneof(
      fc.constantFrom("due", "stirred", "answer", "fail", "remove", "take"),
      fc.record({ claims: fc.uniqueArray(fc.integer({ min: 1, max: 6 }), { maxLength: 4 }) }),
      fc.record({ release: fc.integer({ min: 1, max: 6 }) }),
    )
    fc.assert(
      fc.property(fc.array(event, { maxLength: 60 }), (events) => {
        const driven = new Driven()
        let record = "1 2"
        let underWay: string | undefined
        let ended = false
        let tickets = 0
        const open = new Set<number>()
        const held = new Set<string>()
        const hear = (): void => {
          for (const word of driven.said().split(", ")) {
            if (/^(join|report|leave)/.test(word)) {
              assert.equal(underWay, undefined, "two calls at a time")
              underWay = word.split("(")[0]
            } else if (word.startsWith("settle")) {
              for (const ticket of (/settle ([\d,]+)/.exec(word)?.[1] ?? "").split(",").map(Number)) {
                assert.ok(open.delete(ticket), `ticket ${ticket} was settled twice`)
              }
            } else if (word.startsWith("end")) ended = true
          }
        }
        const answer = (kind: "well" | "fail" | "removed"): void => {
          const call = underWay
          if (call === undefined) return
          underWay = undefined
          if (kind === "fail") driven.handle({ type: "failed", error: away })
          else if (call === "join") driven.handle({ type: "joined", member: 5, view: view(record) })
          else if (call === "leave") driven.handle({ type: "left" })
          else driven.handle({ type: "viewed", view: kind === "removed" ? undefined : view(record), signs: [] })
        }
        const take = (): void => {
          for (let text = driven.take(); text !== "nothing"; text = driven.take()) {
            for (const word of text.split(" ")) {
              if (word.startsWith("+")) {
                assert.equal(held.has(word.slice(1)), false, `${word} was assigned twice`)
                held.add(word.slice(1))
              } else if (word.startsWith("!")) assert.ok(held.delete(word.slice(1)), `${word} was never assigned`)
            }
          }
        }
        hear()
        answer("well")
        hear()
        for (const step of events) {
          if (step === "due") driven.due()
          else if (step === "stirred") driven.handle({ type: "stirred" })
          else if (step === "answer") answer("well")
          else if (step === "fail") answer("fail")
          else if (step === "remove") answer("removed")
          else if (step === "take") take()
          else if ("claims" in step) record = step.claims.join(" ")
          else {
            open.add(++tickets)
            held.delete(String(step.release))
            driven.handle({ type: "release", ticket: tickets, claims: [step.release] })
          }
          hear()
        }
        open.add(++tickets)
        driven.handle({ type: "leave", ticket: tickets })
        hear()
        for (let round = 0; underWay !== undefined; round++) {
          assert.ok(round < 10)
          answer("well")
          hear()
        }
        assert.deepEqual([...open], [], "somebody waits for ever")
        assert.equal(ended, true)
      }),
    )
  })
})
