import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { DiskFullError, FencedError, type MillraceError, StorageError } from "@millrace/contract"
import type { GroupView } from "./engine/group-view.ts"
import {
  type MembershipCall,
  type MembershipCommand,
  type MembershipEvent,
  MembershipMachine,
} from "./membership.machine.ts"

/** A session timeout of 10 s: a heartbeat each second. */
const options = { sessionTimeoutMs: 10_000, rebalanceTimeoutMs: 3000 }

function view(
  details: Partial<Omit<GroupView, "claims">> & { claims?: readonly (readonly [number, boolean?])[] } = {},
): GroupView {
  const { claims = [], ...rest } = details
  return {
    version: "1",
    peers: [],
    revoking: [],
    topicIds: [5],
    ...rest,
    claims: claims.map(([claim, revoking = false]) => ({ claim, stream: "s", topic: "t", partition: claim, revoking })),
  }
}

/** Drives a machine and keeps its commands as texts, apart from the calls. */
class Driven {
  readonly machine = new MembershipMachine(options)
  nowMs = 0
  calls: MembershipCall[] = []
  notes: string[] = []
  armedMs: number | undefined

  constructor() {
    this.#note(this.machine.start(0))
  }

  static joined(claims: readonly (readonly [number, boolean?])[] = [[1], [2]]): Driven {
    const driven = new Driven()
    driven.handle({ type: "joined", member: 9, view: view({ claims }) })
    driven.machine.take(0)
    driven.forget()
    return driven
  }

  handle(event: DistributiveOmit<MembershipEvent, "nowMs">, nowMs = this.nowMs): void {
    this.nowMs = nowMs
    this.#note(this.machine.handle({ ...event, nowMs }))
  }

  /** The names of the calls since the last look. */
  called(): string[] {
    const names = this.calls.map(({ name }) => name)
    this.calls = []
    return names
  }

  forget(): void {
    this.calls = []
    this.notes = []
  }

  taken(): string {
    const change = this.machine.take(this.nowMs)
    if (change === undefined) return "nothing"
    const list = (name: string, claims: readonly { claim: number }[]): string =>
      claims.length === 0 ? "" : ` ${name} ${claims.map(({ claim }) => claim).join(",")}`
    return `change${list("assigned", change.assigned)}${list("revoked", change.revoked)}${list("lost", change.lost)}`
  }

  #note(commands: readonly MembershipCommand[]): void {
    for (const command of commands) {
      if (command.type === "call") this.calls.push(command.call)
      else if (command.type === "arm") this.armedMs = this.nowMs + command.delayMs
      else if (command.type === "settle")
        this.notes.push(`settle ${command.tickets.join(",")}${because(command.error)}`)
      else if (command.type === "end") this.notes.push(`end${because(command.error)}`)
      else if (command.type === "watch") this.notes.push(`watch ${command.version}`)
    }
  }
}

type DistributiveOmit<T, K extends string> = T extends unknown ? Omit<T, K> : never

function because(error: MillraceError | undefined): string {
  return error === undefined ? "" : ` ${error.kind}`
}

describe("the machine of a member", () => {
  it("joins, tells the first assignment also when it is empty, then beats and watches", () => {
    const driven = new Driven()
    assert.deepEqual(driven.calls, [{ name: "join" }])
    assert.equal(driven.taken(), "nothing")
    driven.handle({ type: "joined", member: 9, view: view() }, 100)
    assert.deepEqual(driven.notes, ["watch 1"])
    assert.equal(driven.taken(), "change")
    assert.equal(driven.taken(), "nothing")
    assert.equal(driven.armedMs, 1100)
    driven.forget()
    driven.handle({ type: "due" }, 1100)
    assert.deepEqual(driven.calls, [{ name: "beat", member: 9 }])
    driven.handle({ type: "viewed", view: view() }, 1105)
    assert.equal(driven.armedMs, 2100, "heartbeats keep their pace whatever a call takes")
  })

  it("ends when the first join fails, whatever the reason", () => {
    for (const error of [new DiskFullError("full"), new StorageError("gone")]) {
      const driven = new Driven()
      driven.handle({ type: "failed", error })
      assert.deepEqual(driven.notes, [`end ${error.kind}`])
    }
  })

  it("looks when it is told that something changed, and makes one call at a time", () => {
    const driven = Driven.joined()
    driven.handle({ type: "watched", outcome: "changed" })
    assert.deepEqual(driven.called(), ["observe"])
    driven.handle({ type: "due" }, 1000)
    assert.deepEqual(driven.called(), [])
    driven.handle({ type: "viewed", view: view({ version: "2", claims: [[1], [2, true], [3]] }) })
    assert.deepEqual(driven.called(), ["beat"])
    assert.equal(driven.taken(), "change assigned 3 revoked 2")
    driven.handle({ type: "viewed", view: view({ version: "2", claims: [[1], [2, true], [3]] }) })
    assert.deepEqual(driven.notes, ["watch 2"])
    assert.equal(driven.taken(), "nothing")
  })

  it("sets a watch again that ran out at once, one that failed with the next heartbeat", () => {
    const driven = Driven.joined()
    driven.handle({ type: "watched", outcome: "over" })
    assert.deepEqual(driven.notes, ["watch 1"])
    driven.handle({ type: "watched", outcome: "failed" })
    assert.deepEqual(driven.notes, ["watch 1"])
    driven.handle({ type: "due" }, 1000)
    driven.handle({ type: "viewed", view: view({ claims: [[1], [2]] }) })
    assert.deepEqual(driven.notes, ["watch 1", "watch 1"])
  })

  it("releases in one call what was released meanwhile, and settles each ticket with its own call", () => {
    const driven = Driven.joined([[1], [2], [3]])
    driven.handle({ type: "release", ticket: 1, claims: [1] })
    driven.handle({ type: "release", ticket: 2, claims: [2] })
    driven.handle({ type: "release", ticket: 3, claims: [3, 2] })
    assert.deepEqual(driven.calls, [{ name: "release", member: 9, claims: [1] }])
    driven.handle({ type: "viewed", view: view({ claims: [[2], [3]] }) })
    assert.deepEqual(driven.calls[1], { name: "release", member: 9, claims: [2, 3] })
    driven.handle({ type: "viewed", view: view() })
    assert.deepEqual(driven.notes.slice(0, 2), ["settle 1", "settle 2,3"])
    assert.equal(driven.taken(), "nothing", "what was released is not lost")
  })

  it("settles a release of void claims at once, and one whose claims become void while it waits", () => {
    const driven = Driven.joined()
    driven.handle({ type: "release", ticket: 1, claims: [77] })
    assert.deepEqual(driven.notes, ["settle 1"])
    driven.handle({ type: "due" }, 1000)
    driven.handle({ type: "release", ticket: 2, claims: [1] })
    driven.handle({ type: "viewed", view: view({ claims: [[2]] }) })
    assert.deepEqual(driven.notes.slice(0, 2), ["settle 1", "settle 2"])
    assert.deepEqual(driven.called(), ["beat"])
  })

  it("reports a failed release, rests until the next heartbeat, and tries again", () => {
    const driven = Driven.joined()
    driven.handle({ type: "release", ticket: 1, claims: [1] })
    driven.handle({ type: "failed", error: new DiskFullError("full") })
    assert.deepEqual(driven.notes, ["settle 1 disk-full"])
    driven.handle({ type: "watched", outcome: "changed" })
    assert.deepEqual(driven.called(), ["release"])
    driven.handle({ type: "due" }, 1000)
    assert.deepEqual(driven.called(), ["beat"])
    driven.handle({ type: "viewed", view: view({ claims: [[1], [2]] }) })
    assert.deepEqual(driven.called(), ["release"])
  })

  it("does not watch for what it knows to have changed while it rests", () => {
    const driven = Driven.joined()
    driven.handle({ type: "due" }, 1000)
    driven.handle({ type: "failed", error: new DiskFullError("full") })
    driven.handle({ type: "watched", outcome: "changed" })
    assert.deepEqual(driven.notes, [])
    driven.handle({ type: "due" }, 2000)
    driven.handle({ type: "viewed", view: view({ version: "2" }) })
    assert.deepEqual(driven.notes, ["watch 2"])
  })

  it("looks at once when something changes after an expulsion", () => {
    const driven = Driven.joined([])
    const revoking = [{ claim: 30, timeoutMs: 0 }]
    for (const nowMs of [1000, 2000]) {
      driven.handle({ type: "due" }, nowMs)
      driven.handle({ type: "viewed", view: view({ revoking }) })
    }
    assert.deepEqual(driven.called().at(-1), "expel")
    driven.handle({ type: "viewed", view: view() })
    driven.handle({ type: "watched", outcome: "changed" })
    assert.deepEqual(driven.called(), ["observe"])
  })

  it("keeps the pace of its heartbeats while they fail for a time, and ends when they fail for good", () => {
    const driven = Driven.joined()
    for (const nowMs of [1000, 2000, 3000]) {
      driven.handle({ type: "due" }, nowMs)
      assert.deepEqual(driven.called(), ["beat"])
      driven.handle({ type: "failed", error: new DiskFullError("full") }, nowMs + 10)
      assert.equal(driven.armedMs, nowMs + 1000)
    }
    driven.handle({ type: "due" }, 4000)
    driven.handle({ type: "failed", error: new StorageError("gone") })
    assert.deepEqual(driven.notes, ["end storage"])
    assert.equal(driven.taken(), "change lost 1,2")
  })

  it("is not stuck when a heartbeat falls due during a call that fails", () => {
    const driven = Driven.joined()
    driven.handle({ type: "watched", outcome: "changed" })
    driven.handle({ type: "due" }, 1000)
    driven.handle({ type: "failed", error: new DiskFullError("full") }, 1500)
    assert.equal(driven.armedMs, 1501)
    driven.handle({ type: "due" }, 1501)
    assert.deepEqual(driven.called(), ["observe", "beat"])
  })

  it("settles at once what waits for a release when it is no member any more", () => {
    const driven = Driven.joined()
    driven.handle({ type: "due" }, 1000)
    driven.handle({ type: "release", ticket: 1, claims: [1] })
    driven.handle({ type: "viewed", view: undefined })
    assert.deepEqual(driven.notes, ["settle 1"])
    assert.equal(driven.taken(), "change lost 2")
  })

  it("loses all when it was taken for dead, comes back, and gets anew", () => {
    const driven = Driven.joined()
    driven.handle({ type: "due" }, 1000)
    driven.handle({ type: "viewed", view: undefined })
    assert.deepEqual(driven.called(), ["beat", "join"])
    assert.equal(driven.taken(), "change lost 1,2")
    driven.handle({ type: "joined", member: 10, view: view({ claims: [[8]] }) })
    assert.equal(driven.taken(), "change assigned 8")
    driven.handle({ type: "due" }, 2000)
    assert.deepEqual(driven.calls, [{ name: "beat", member: 10 }])
  })

  it("names what it read before when it comes back, and tries again while that fails for a time", () => {
    const driven = Driven.joined()
    driven.handle({ type: "due" }, 1000)
    driven.handle({ type: "viewed", view: undefined })
    assert.deepEqual(driven.calls[1], { name: "join", returning: [5] })
    driven.handle({ type: "failed", error: new DiskFullError("full") }, 1100)
    driven.forget()
    driven.handle({ type: "due" }, 2000)
    assert.deepEqual(driven.calls, [{ name: "join", returning: [5] }])
  })

  it("ends with the reason when it cannot come back", () => {
    const driven = Driven.joined()
    driven.handle({ type: "due" }, 1000)
    driven.handle({ type: "viewed", view: undefined })
    driven.handle({ type: "failed", error: new FencedError("replaced") })
    assert.deepEqual(driven.notes, ["end fenced"])
    assert.equal(driven.taken(), "change lost 1,2")
    assert.equal(driven.taken(), "nothing")
    driven.handle({ type: "release", ticket: 1, claims: [1] })
    driven.handle({ type: "leave", ticket: 2 })
    assert.deepEqual(driven.notes, ["end fenced", "settle 1", "settle 2"])
  })

  it("expels who was silent for too long, once, and takes away what was not released in time", () => {
    const driven = Driven.joined([])
    const peers = [{ member: 4, beats: 7, sessionTimeoutMs: 10_000 }]
    const revoking = [{ claim: 30, timeoutMs: 2500 }]
    for (let nowMs = 1000; driven.calls.every(({ name }) => name !== "expel"); nowMs = driven.armedMs as number) {
      assert.ok(nowMs < 20_000)
      driven.handle({ type: "due" }, nowMs)
      driven.handle({ type: "viewed", view: view({ peers, revoking }) })
    }
    assert.deepEqual(driven.calls.at(-1), { name: "expel", member: 9, silent: [], overdue: [30] })
    assert.equal(driven.nowMs, 4500, "first seen at 1000, then 2500 and one heartbeat of grace")
    driven.forget()
    driven.handle({ type: "viewed", view: view({ peers }) })
    assert.deepEqual(driven.called(), [])
    for (let nowMs = 5000; driven.calls.every(({ name }) => name !== "expel"); nowMs = driven.armedMs as number) {
      assert.ok(nowMs < 20_000)
      driven.handle({ type: "due" }, nowMs)
      driven.handle({ type: "viewed", view: view({ peers }) })
    }
    assert.deepEqual(driven.calls.at(-1), { name: "expel", member: 9, silent: [{ member: 4, beats: 7 }], overdue: [] })
    assert.equal(driven.nowMs, 11_000)
  })

  it("does not expel again and again what stays", () => {
    const driven = Driven.joined([])
    const revoking = [{ claim: 30, timeoutMs: 0 }]
    let expelled = 0
    for (let nowMs = 1000; nowMs < 6000; nowMs = Math.max(nowMs + 1, driven.armedMs as number)) {
      driven.handle({ type: "due" }, nowMs)
      for (let answers = 0; answers < 5 && driven.calls.length > 0; answers++) {
        expelled += driven.called().filter((name) => name === "expel").length
        driven.handle({ type: "viewed", view: view({ revoking }) })
      }
    }
    assert.ok(expelled >= 1 && expelled <= 5, `${expelled} in five seconds`)
  })

  it("leaves after the call under way, hears nothing more, and settles all tickets", () => {
    const driven = Driven.joined()
    driven.handle({ type: "due" }, 1000)
    driven.handle({ type: "release", ticket: 1, claims: [1] })
    driven.handle({ type: "leave", ticket: 2 })
    assert.deepEqual(driven.notes, ["end"])
    driven.handle({ type: "viewed", view: view({ claims: [[1], [2, true], [3]] }) })
    assert.equal(driven.taken(), "nothing")
    assert.deepEqual(driven.called(), ["beat", "leave"])
    driven.handle({ type: "left" })
    assert.deepEqual(driven.notes, ["end", "settle 1,2"])
  })

  it("need not leave when it is no member any more", () => {
    const driven = Driven.joined()
    driven.handle({ type: "due" }, 1000)
    driven.handle({ type: "leave", ticket: 1 })
    driven.handle({ type: "viewed", view: undefined })
    assert.deepEqual(driven.called(), ["beat"])
    assert.deepEqual(driven.notes, ["end", "settle 1"])
  })

  it("leaves again when it comes back after it was told to leave", () => {
    const driven = Driven.joined()
    driven.handle({ type: "due" }, 1000)
    driven.handle({ type: "viewed", view: undefined })
    driven.handle({ type: "leave", ticket: 1 })
    driven.handle({ type: "joined", member: 10, view: view() })
    assert.deepEqual(driven.calls.at(-1), { name: "leave", member: 10 })
  })

  it("reports a leave that fails", () => {
    const driven = Driven.joined()
    driven.handle({ type: "leave", ticket: 1 })
    driven.handle({ type: "failed", error: new DiskFullError("full") })
    assert.deepEqual(driven.notes, ["end", "settle 1 disk-full"])
  })
})
