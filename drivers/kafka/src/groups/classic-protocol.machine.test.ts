import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, FencedError, MillraceError } from "@millrace/contract"
import fc from "fast-check"
import { ClassicCoordinator } from "./classic-coordinator.test-support.ts"
import { type ClassicAnswer, type ClassicCall, ClassicProtocolMachine } from "./classic-protocol.machine.ts"
import { gone, seat } from "./consumer-coordinator.test-support.ts"
import { cooperativeStickyAssignor } from "./cooperative-sticky-assignor.ts"
import type { MemberCommand, MemberEvent } from "./member-machine.ts"
import { rangeAssignor } from "./range-assignor.ts"

const cut = new ConnectionError("cut")
const stop = new MillraceError("permission", "not allowed")

function machine(): ClassicProtocolMachine {
  const times = { sessionTimeoutMs: 900, rebalanceTimeoutMs: 1000 }
  return new ClassicProtocolMachine({ group: "g", instanceId: "name", ...times })
}

function given(generation: number, partitions: readonly number[], eager = false): ClassicAnswer {
  return { kind: "joined", memberId: "m", generation, eager, target: partitions.map(seat) }
}

function call(commands: readonly MemberCommand<ClassicCall>[]): ClassicCall | undefined {
  return commands.find((command) => command.type === "call")?.call
}

function joined(partitions: readonly number[] = [0, 1], eager = false): ClassicProtocolMachine {
  const own = machine()
  own.start(0)
  own.handle({ type: "answered", nowMs: 0, answer: given(1, partitions, eager) })
  own.take(0)
  return own
}

describe("a member of the classic protocol", () => {
  test("joins without an id and with nothing, and beats at a third of the session timeout", () => {
    const own = machine()
    assert.deepEqual(call(own.start(0)), { name: "join", memberId: "", generation: -1, owned: [] })
    const commands = own.handle({ type: "answered", nowMs: 0, answer: given(1, [0]) })
    assert.deepEqual(commands.at(-1), { type: "arm", delayMs: 300 })
    assert.deepEqual(own.fence(1), { memberId: "m", generation: 1, instanceId: "name" })
    assert.deepEqual(call(own.handle({ type: "due", nowMs: 300 })), { name: "beat", memberId: "m", generation: 1 })
  })

  test("cooperative: it joins again at once with what it has, keeps what stays, and joins once more when it has handed over", () => {
    const own = joined()
    own.handle({ type: "due", nowMs: 300 })
    const again = own.handle({ type: "answered", nowMs: 300, answer: { kind: "rebalance" } })
    assert.deepEqual(call(again), { name: "join", memberId: "m", generation: 1, owned: [seat(0), seat(1)] })
    assert.notEqual(own.fence(1), undefined, "commits go on while it joins")
    own.handle({ type: "answered", nowMs: 400, answer: given(2, [0]) })
    assert.deepEqual(
      own.take(400)?.revoked.map(({ partition }) => partition),
      [1],
    )
    assert.deepEqual(own.fence(1)?.generation, 2)
    const handedOver = own.handle({ type: "release", nowMs: 450, ticket: 1, claims: [2] })
    assert.deepEqual(call(handedOver), { name: "join", memberId: "m", generation: 2, owned: [seat(0)] })
    const settled = own.handle({ type: "answered", nowMs: 460, answer: given(3, [0]) })
    assert.deepEqual(settled[0], { type: "settle", tickets: [1] })
    assert.equal(own.take(460), undefined)
  })

  test("eager: it hands over everything first, beats meanwhile, and joins with nothing", () => {
    const own = joined([0, 1], true)
    own.handle({ type: "due", nowMs: 300 })
    own.handle({ type: "answered", nowMs: 300, answer: { kind: "rebalance" } })
    assert.equal(own.take(300)?.revoked.length, 2)
    const beat = own.handle({ type: "due", nowMs: 600 })
    assert.equal(call(beat)?.name, "beat")
    own.handle({ type: "answered", nowMs: 600, answer: { kind: "rebalance" } })
    assert.equal(call(own.handle({ type: "release", nowMs: 650, ticket: 1, claims: [1] })), undefined)
    const join = own.handle({ type: "release", nowMs: 660, ticket: 2, claims: [2] })
    assert.deepEqual(call(join), { name: "join", memberId: "m", generation: 1, owned: [] })
  })

  test("where an eager assignor takes over, what it gave to others is lost at once", () => {
    const own = joined()
    own.handle({ type: "due", nowMs: 300 })
    own.handle({ type: "answered", nowMs: 300, answer: { kind: "rebalance" } })
    own.handle({ type: "answered", nowMs: 310, answer: given(2, [1, 2], true) })
    const change = own.take(310)
    assert.deepEqual([change?.lost.map(({ partition }) => partition), change?.revoked], [[0], []])
    assert.deepEqual(
      change?.assigned.map(({ partition }) => partition),
      [2],
    )
    assert.notEqual(own.fence(2), undefined)
  })

  test("who does not hand over in time loses the partition, and the others hear of it", () => {
    const own = joined()
    own.handle({ type: "due", nowMs: 300 })
    own.handle({ type: "answered", nowMs: 300, answer: { kind: "rebalance" } })
    own.handle({ type: "answered", nowMs: 310, answer: given(2, [0]) })
    own.take(310)
    const late = own.handle({ type: "due", nowMs: 1310 })
    assert.deepEqual(call(late), { name: "join", memberId: "m", generation: 2, owned: [seat(0)] })
    assert.deepEqual(
      own.take(1310)?.lost.map(({ partition }) => partition),
      [1],
    )
    assert.equal(own.fence(2), undefined)
  })

  test("unknown or of an old generation, it has lost everything and joins anew", () => {
    for (const unknown of [true, false]) {
      const own = joined()
      own.handle({ type: "due", nowMs: 300 })
      const again = own.handle({ type: "answered", nowMs: 300, answer: { kind: "gone", unknown, error: gone("x") } })
      assert.deepEqual(call(again), { name: "join", memberId: unknown ? "" : "m", generation: -1, owned: [] })
      assert.equal(own.take(300)?.lost.length, 2)
    }
  })

  test("a failed heartbeat is repeated, a failed join too, and neither is a loss", () => {
    const own = joined()
    own.handle({ type: "due", nowMs: 300 })
    assert.deepEqual(own.handle({ type: "failed", nowMs: 300, error: cut }), [{ type: "arm", delayMs: 100 }])
    assert.equal(call(own.handle({ type: "due", nowMs: 400 }))?.name, "beat")
    own.handle({ type: "answered", nowMs: 400, answer: { kind: "rebalance" } })
    own.handle({ type: "failed", nowMs: 410, error: cut })
    assert.notEqual(own.fence(1), undefined)
    assert.equal(call(own.handle({ type: "due", nowMs: 520 }))?.name, "join")
  })

  test("replaced by another of its name, it ends with FencedError; the first join is tried once", () => {
    const own = joined()
    own.handle({ type: "due", nowMs: 300 })
    const commands = own.handle({ type: "answered", nowMs: 300, answer: { kind: "replaced", error: stop } })
    const end = commands.find((command) => command.type === "end")?.error
    assert.ok(end instanceof FencedError && end.message.includes('"name"'))
    const other = machine()
    other.start(0)
    const failed = other.handle({ type: "failed", nowMs: 0, error: cut })
    assert.equal(failed.find((command) => command.type === "end")?.error, cut)
  })

  test("every event in every state: one call at a time, nothing after the end, and each ticket settled once", () => {
    const answers: ClassicAnswer[] = [
      given(2, [0, 1]),
      given(3, [1]),
      given(4, [0, 2], true),
      { kind: "beat" },
      { kind: "rebalance" },
      { kind: "rebalance", memberId: "m2" },
      { kind: "gone", unknown: true, error: stop },
      { kind: "gone", unknown: false, error: stop },
      { kind: "replaced", error: stop },
      { kind: "left" },
    ]
    const event = fc.oneof(
      {
        weight: 4,
        arbitrary: fc.record({ type: fc.constant("answered" as const), answer: fc.constantFrom(...answers) }),
      },
      fc.record({ type: fc.constant("failed" as const), error: fc.constantFrom<MillraceError>(cut, stop) }),
      fc.constant({ type: "due" as const }),
      fc.record({ type: fc.constant("release" as const), claims: fc.subarray([1, 2, 3, 4]) }),
      fc.constant({ type: "leave" as const }),
      fc.constant({ type: "take" as const }),
    )
    fc.assert(
      fc.property(fc.array(event, { maxLength: 40 }), (events) => {
        const own = machine()
        let busy = false
        let over = false
        let nowMs = 0
        let ticket = 0
        const waiting = new Set<number>()
        const carry = (commands: readonly MemberCommand<ClassicCall>[]): void => {
          for (const command of commands) {
            if (command.type === "call") {
              assert.ok(!busy, "two calls at a time")
              assert.ok(!over || command.call.name === "leave", "a call after the end")
              busy = true
            } else if (command.type === "arm") assert.ok(!over && command.delayMs > 0, "a timer after the end")
            else if (command.type === "end") {
              assert.ok(!over, "it ended twice")
              over = true
            } else if (command.type === "settle") {
              for (const one of command.tickets) assert.ok(waiting.delete(one), "a ticket was settled twice")
            }
          }
        }
        carry(own.start(nowMs))
        for (const one of events) {
          nowMs += 60
          if (one.type === "take") {
            own.take(nowMs)
            continue
          }
          if (one.type === "answered" || one.type === "failed") {
            if (!busy) continue
            busy = false
          }
          if (one.type === "release" || one.type === "leave") waiting.add(++ticket)
          carry(own.handle({ ...one, nowMs, ticket } as MemberEvent<ClassicAnswer>))
        }
        waiting.add(++ticket)
        carry(own.handle({ type: "leave", nowMs, ticket }))
        for (let round = 0; busy && round < 3; round++) {
          busy = false
          carry(own.handle({ type: "answered", nowMs, answer: { kind: "left" } }))
        }
        assert.equal(waiting.size, 0, "somebody waits for ever")
      }),
      { numRuns: 1000 },
    )
  })

  for (const assignor of [cooperativeStickyAssignor, rangeAssignor]) {
    test(`several members, ${assignor.name}: no two commit for one partition, and in the end an even share`, () => {
      const what = fc.constantFrom("due", "due", "release", "lose", "fence")
      const step = fc.record({ who: fc.nat(2), what })
      fc.assert(
        fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
          const coordinator = new ClassicCoordinator(6, assignor)
          const members = [0, 1, 2].map(() => new Simulated(coordinator))
          let nowMs = 0
          const check = (): void => {
            const owners = members.flatMap((member) => member.committable())
            assert.equal(new Set(owners).size, owners.length, `two members commit for one partition: ${owners.join()}`)
          }
          for (const one of steps) {
            nowMs += 60
            ;(members[one.who] as Simulated).step(one.what, nowMs)
            check()
          }
          for (let round = 0; round < 60; round++) {
            nowMs += 100
            for (const member of members) {
              for (const one of ["release", "due"]) member.step(one, nowMs)
              check()
            }
          }
          const shares = members.map(({ held }) => held.size)
          assert.equal(
            shares.reduce((sum, share) => sum + share, 0),
            6,
            shares.join(),
          )
          assert.ok(Math.max(...shares) - Math.min(...shares) <= 1, shares.join())
        }),
        { numRuns: 200 },
      )
    })
  }
})

/** A member whose calls are answered at once, a join when everybody has joined. */
class Simulated {
  readonly held = new Map<number, number>()
  readonly #asked = new Set<number>()
  readonly #coordinator: ClassicCoordinator
  readonly #machine = machine()
  #memberId = ""
  #nowMs = 0
  #ticket = 0
  /** The next heartbeat's answer gets lost. */
  #lose = false

  constructor(coordinator: ClassicCoordinator) {
    this.#coordinator = coordinator
    this.#carry(this.#machine.start(0))
  }

  step(what: string, nowMs: number): void {
    this.#nowMs = nowMs
    if (what === "due") this.#handle({ type: "due", nowMs })
    else if (what === "fence") this.#coordinator.fence(this.#memberId)
    else if (what === "lose") this.#lose = true
    else {
      const claims = [...this.#asked]
      this.#asked.clear()
      for (const [partition, claim] of this.held) if (claims.includes(claim)) this.held.delete(partition)
      if (claims.length > 0) this.#handle({ type: "release", nowMs, ticket: ++this.#ticket, claims })
    }
  }

  /** The partitions of which the coordinator would take a commit. */
  committable(): number[] {
    return [...this.held].flatMap(([partition, claim]) => {
      const fence = this.#machine.fence(claim)
      return fence !== undefined && this.#coordinator.takesCommit(fence.memberId, fence.generation) ? [partition] : []
    })
  }

  #handle(event: MemberEvent<ClassicAnswer>): void {
    this.#carry(this.#machine.handle(event))
  }

  #carry(commands: readonly MemberCommand<ClassicCall>[]): void {
    for (let change = this.#machine.take(this.#nowMs); change !== undefined; change = this.#machine.take(this.#nowMs)) {
      for (const { partition, claim } of change.lost) {
        this.held.delete(partition)
        this.#asked.delete(claim)
      }
      for (const { claim } of change.revoked) this.#asked.add(claim)
      for (const { partition, claim } of change.assigned) this.held.set(partition, claim)
    }
    for (const command of commands) {
      if (command.type !== "call") continue
      const lost = this.#lose && command.call.name === "beat"
      if (lost) this.#lose = false
      this.#coordinator.handle(command.call, (answer) => {
        if (answer.kind === "joined") this.#memberId = answer.memberId
        if (lost) this.#handle({ type: "failed", nowMs: this.#nowMs, error: cut })
        else this.#handle({ type: "answered", nowMs: this.#nowMs, answer })
      })
    }
  }
}
