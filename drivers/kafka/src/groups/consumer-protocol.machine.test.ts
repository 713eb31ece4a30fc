import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, FencedError, MillraceError } from "@millrace/contract"
import fc from "fast-check"
import { ConsumerCoordinator, gone, seat } from "./consumer-coordinator.test-support.ts"
import { type ConsumerAnswer, type ConsumerCall, ConsumerProtocolMachine } from "./consumer-protocol.machine.ts"
import type { MemberCommand, MemberEvent } from "./member-machine.ts"

const cut = new ConnectionError("cut")
const stop = new MillraceError("permission", "not allowed")

function machine(instanceId?: string): ConsumerProtocolMachine {
  return new ConsumerProtocolMachine({
    group: "g",
    memberId: "m",
    instanceId,
    sessionTimeoutMs: 900,
    rebalanceTimeoutMs: 1000,
  })
}

function beat(epoch: number, partitions?: readonly number[]): ConsumerAnswer {
  return { kind: "beat", epoch, intervalMs: 100, ...(partitions === undefined ? {} : { target: partitions.map(seat) }) }
}

function call(commands: readonly MemberCommand<ConsumerCall>[]): ConsumerCall | undefined {
  return commands.find((command) => command.type === "call")?.call
}

function ends(commands: readonly MemberCommand<ConsumerCall>[]): MillraceError | undefined | false {
  const end = commands.find((command) => command.type === "end")
  return end === undefined ? false : end.error
}

/** A member with these partitions, at time 0. */
function joined(partitions: readonly number[] = [0, 1]): ConsumerProtocolMachine {
  const own = machine()
  own.start(0)
  own.handle({ type: "answered", nowMs: 0, answer: beat(5, partitions) })
  own.take(0)
  return own
}

describe("a member under KIP-848", () => {
  test("joins with epoch 0, in full and with nothing", () => {
    const own = machine()
    assert.deepEqual(call(own.start(0)), { name: "beat", epoch: 0, full: true, owned: [] })
    const commands = own.handle({ type: "answered", nowMs: 0, answer: beat(5, [0, 1]) })
    assert.deepEqual(
      commands.map(({ type }) => type),
      ["joined", "offer", "arm"],
    )
    assert.deepEqual(
      own.take(0)?.assigned.map(({ partition }) => partition),
      [0, 1],
    )
    assert.deepEqual(own.fence(1), { memberId: "m", generation: 5, instanceId: undefined })
    assert.equal(own.fence(3), undefined)
  })

  test("the first assignment is told also when it is empty", () => {
    const own = machine()
    own.start(0)
    own.handle({ type: "answered", nowMs: 0, answer: beat(5, []) })
    assert.deepEqual(own.take(0)?.assigned, [])
    assert.equal(own.take(0), undefined)
  })

  test("heartbeats come at the interval of the coordinator, and say what the member has only when that is news", () => {
    const own = joined()
    const first = own.handle({ type: "due", nowMs: 100 })
    assert.deepEqual(call(first), { name: "beat", epoch: 5, full: false, owned: [seat(0), seat(1)] })
    assert.deepEqual(own.handle({ type: "answered", nowMs: 101, answer: beat(6) }), [{ type: "arm", delayMs: 100 }])
    assert.deepEqual(call(own.handle({ type: "due", nowMs: 201 })), { name: "beat", epoch: 6, full: false })
  })

  test("a release is told at once, and settles when the coordinator has heard it", () => {
    const own = joined()
    own.handle({ type: "due", nowMs: 100 })
    own.handle({ type: "answered", nowMs: 100, answer: beat(5, [0]) })
    const change = own.take(100)
    assert.deepEqual([change?.revoked.map(({ partition }) => partition), change?.deadlineMs], [[1], 1000])
    assert.notEqual(own.fence(2), undefined, "until its release the partition is committed")
    const commands = own.handle({ type: "release", nowMs: 110, ticket: 1, claims: [2] })
    assert.deepEqual(call(commands), { name: "beat", epoch: 5, full: false, owned: [seat(0)] })
    assert.equal(own.fence(2), undefined)
    const answered = own.handle({ type: "answered", nowMs: 111, answer: beat(6, [0]) })
    assert.deepEqual(answered[0], { type: "settle", tickets: [1] })
  })

  test("after a lost answer the next heartbeat describes the member in full, so that it is not fenced", () => {
    const own = joined()
    own.handle({ type: "due", nowMs: 100 })
    const commands = own.handle({ type: "failed", nowMs: 120, error: cut })
    assert.deepEqual(commands, [{ type: "arm", delayMs: 100 }], "it is not in a hurry")
    assert.notEqual(own.fence(1), undefined, "a cut connection is no loss")
    const again = own.handle({ type: "due", nowMs: 220 })
    assert.deepEqual(call(again), { name: "beat", epoch: 5, full: true, owned: [seat(0), seat(1)] })
  })

  test("what it has is told again once the coordinator gave something: it may wait to hear that a lost answer never came", () => {
    const own = joined([0, 1])
    own.handle({ type: "due", nowMs: 100 })
    own.handle({ type: "answered", nowMs: 100, answer: beat(6) })
    // An answer with 0 to 3 gets lost; to the next heartbeat the coordinator says 0 and 1, and waits for 2 and 3 to come back.
    own.handle({ type: "due", nowMs: 200 })
    own.handle({ type: "failed", nowMs: 200, error: cut })
    own.handle({ type: "due", nowMs: 300 })
    own.handle({ type: "answered", nowMs: 300, answer: beat(6, [0, 1]) })
    const told = call(own.handle({ type: "due", nowMs: 400 }))
    assert.deepEqual(told, { name: "beat", epoch: 6, full: false, owned: [seat(0), seat(1)] })
    own.handle({ type: "answered", nowMs: 400, answer: beat(7) })
    assert.deepEqual(call(own.handle({ type: "due", nowMs: 500 })), { name: "beat", epoch: 7, full: false })
  })

  test("a release that could not be told is told with the next heartbeat, and waits for it", () => {
    const own = joined()
    const commands = own.handle({ type: "release", nowMs: 10, ticket: 7, claims: [1] })
    assert.equal(call(commands)?.name, "beat")
    const failed = own.handle({ type: "failed", nowMs: 20, error: cut })
    assert.equal(
      failed.some(({ type }) => type === "settle" || type === "call"),
      false,
    )
    own.handle({ type: "due", nowMs: 120 })
    const answered = own.handle({ type: "answered", nowMs: 121, answer: beat(6) })
    assert.deepEqual(answered[0], { type: "settle", tickets: [7] })
  })

  test("fenced, its partitions are lost, and it joins again at once", () => {
    const own = joined()
    own.handle({ type: "due", nowMs: 100 })
    const commands = own.handle({ type: "answered", nowMs: 100, answer: { kind: "gone", error: gone("FENCED") } })
    assert.deepEqual(call(commands), { name: "beat", epoch: 0, full: true, owned: [] })
    assert.equal(own.fence(1), undefined)
    own.handle({ type: "answered", nowMs: 100, answer: beat(9, [0]) })
    assert.deepEqual(own.take(100)?.lost.length, 2)
    assert.deepEqual(
      own.take(100)?.assigned.map(({ claim }) => claim),
      [3],
    )
  })

  test("replaced by another of its name, it ends with FencedError", () => {
    const own = machine("name")
    own.start(0)
    own.handle({ type: "answered", nowMs: 0, answer: beat(5, [0]) })
    own.take(0)
    own.handle({ type: "due", nowMs: 100 })
    const end = ends(own.handle({ type: "answered", nowMs: 100, answer: { kind: "replaced", error: stop } }))
    assert.ok(end instanceof FencedError && end.message.includes('"name"'))
    assert.equal(own.take(100)?.lost.length, 1)
    assert.equal(own.fence(1), undefined)
  })

  test("a name that is taken is wrested from its member, a few times at most", () => {
    const own = machine("name")
    let commands = own.start(0)
    const occupied: ConsumerAnswer = { kind: "occupied", error: stop }
    for (let round = 0; round < 3; round++) {
      commands = own.handle({ type: "answered", nowMs: 0, answer: occupied })
      assert.deepEqual(call(commands), { name: "evict" })
      commands = own.handle({ type: "answered", nowMs: 0, answer: { kind: "evicted" } })
      assert.equal(call(commands)?.name, "beat")
    }
    assert.ok(ends(own.handle({ type: "answered", nowMs: 0, answer: occupied })) instanceof FencedError)
  })

  test("the first join is tried once; what goes wrong for good ends the member", () => {
    const own = machine()
    own.start(0)
    assert.equal(ends(own.handle({ type: "failed", nowMs: 0, error: cut })), cut)
    const other = joined()
    other.handle({ type: "due", nowMs: 100 })
    assert.equal(ends(other.handle({ type: "failed", nowMs: 100, error: stop })), stop)
  })

  test("a leave during a heartbeat follows it; claims are void at once", () => {
    const own = joined()
    own.handle({ type: "due", nowMs: 100 })
    const commands = own.handle({ type: "leave", nowMs: 100, ticket: 1 })
    assert.deepEqual(commands, [{ type: "end" }])
    assert.equal(own.fence(1), undefined)
    const next = own.handle({ type: "answered", nowMs: 100, answer: beat(6) })
    assert.deepEqual(call(next), { name: "leave", epoch: 6 })
    assert.deepEqual(own.handle({ type: "answered", nowMs: 100, answer: { kind: "left" } }), [
      { type: "settle", tickets: [1] },
    ])
    assert.equal(own.take(100), undefined)
  })

  test("a leave that fails says so", () => {
    const own = joined()
    own.handle({ type: "leave", nowMs: 0, ticket: 1 })
    const commands = own.handle({ type: "failed", nowMs: 0, error: cut })
    assert.deepEqual(commands, [{ type: "settle", tickets: [1], error: cut }])
  })

  test("every event in every state: one call at a time, nothing after the end, and each ticket settled once", () => {
    const answers: ConsumerAnswer[] = [
      beat(5, [0, 1]),
      beat(6, [1]),
      beat(7),
      { kind: "gone", error: stop },
      { kind: "replaced", error: stop },
      { kind: "occupied", error: stop },
      { kind: "evicted" },
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
      { weight: 1, arbitrary: fc.constant({ type: "leave" as const }) },
      fc.constant({ type: "take" as const }),
    )
    fc.assert(
      fc.property(fc.array(event, { maxLength: 40 }), fc.boolean(), (events, named) => {
        const own = machine(named ? "name" : undefined)
        let busy = false
        let over = false
        let nowMs = 0
        let ticket = 0
        const waiting = new Set<number>()
        const carry = (commands: readonly MemberCommand<ConsumerCall>[]): void => {
          for (const command of commands) {
            if (command.type === "call") {
              assert.ok(!busy, "two calls at a time")
              assert.ok(!over || command.call.name === "leave", "a call after the end")
              busy = true
            } else if (command.type === "arm") {
              assert.ok(!over && command.delayMs > 0, "a timer after the end")
            } else if (command.type === "end") {
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
          carry(own.handle({ ...one, nowMs, ticket } as MemberEvent<ConsumerAnswer>))
        }
        carry(own.handle({ type: "leave", nowMs, ticket: ++ticket, ...(waiting.add(ticket) && {}) }))
        for (let round = 0; busy && round < 3; round++) {
          busy = false
          carry(own.handle({ type: "answered", nowMs, answer: { kind: "left" } }))
        }
        assert.equal(waiting.size, 0, "somebody waits for ever")
      }),
      { numRuns: 1000 },
    )
  })

  test("several members and a network that loses requests and answers: no commit of a partition that is another's, and in the end an even share", () => {
    const step = fc.record({
      who: fc.nat(2),
      what: fc.constantFrom(
        ...["deliver", "deliver", "deliver", "due", "due", "due", "lose request", "lose answer", "release", "fence"],
      ),
    })
    fc.assert(
      fc.property(fc.array(step, { minLength: 60, maxLength: 150 }), (steps) => {
        const coordinator = new ConsumerCoordinator(6)
        const members = [0, 1, 2].map((nth) => new Simulated(coordinator, `m${nth}`))
        let nowMs = 0
        for (const { who, what } of steps) {
          nowMs += 60
          ;(members[who] as Simulated).step(what, nowMs)
          for (const member of members) member.check()
        }
        for (let round = 0; round < 60; round++) {
          nowMs += 100
          for (const member of members) {
            for (const what of ["deliver", "release", "due", "deliver"]) member.step(what, nowMs)
            member.check()
          }
        }
        const shares = members.filter(({ over }) => !over).map(({ held }) => held.size)
        assert.equal(
          shares.reduce((sum, share) => sum + share, 0),
          6,
        )
        assert.ok(Math.max(...shares) - Math.min(...shares) <= 1, shares.join())
      }),
      { numRuns: 300 },
    )
  })
})

/** A member over the simulated network: its owner takes what it is told, and releases when the test says so. */
class Simulated {
  readonly held = new Map<number, number>()
  over = false
  readonly #asked = new Set<number>()
  readonly #coordinator: ConsumerCoordinator
  readonly #memberId: string
  readonly #machine: ConsumerProtocolMachine
  #call: ConsumerCall | undefined
  #known = false
  #ticket = 0

  constructor(coordinator: ConsumerCoordinator, memberId: string) {
    this.#coordinator = coordinator
    this.#memberId = memberId
    this.#machine = new ConsumerProtocolMachine({
      ...{ group: "g", memberId, instanceId: undefined, sessionTimeoutMs: 900, rebalanceTimeoutMs: 1000 },
    })
    this.#carry(this.#machine.start(0), 0)
  }

  step(what: string, nowMs: number): void {
    const call = this.#call
    if (what === "due") this.#handle({ type: "due", nowMs }, nowMs)
    else if (what === "fence") this.#coordinator.fence(this.#memberId)
    else if (what === "release") {
      const claims = [...this.#asked]
      this.#asked.clear()
      for (const [partition, claim] of this.held) if (claims.includes(claim)) this.held.delete(partition)
      this.#handle({ type: "release", nowMs, ticket: ++this.#ticket, claims }, nowMs)
    } else if (call !== undefined) {
      // The first join is tried once, so the network is kind to it.
      const kind = !this.#known || what === "deliver"
      this.#call = undefined
      const answer = kind || what === "lose answer" ? this.#coordinator.handle(this.#memberId, call) : undefined
      if (kind && answer !== undefined) {
        this.#known = true
        this.#handle({ type: "answered", nowMs, answer }, nowMs)
      } else this.#handle({ type: "failed", nowMs, error: cut }, nowMs)
    }
  }

  /** What the coordinator would take under a claim of this member must be this member's. */
  check(): void {
    for (const [partition, claim] of this.held) {
      const fence = this.#machine.fence(claim)
      if (fence === undefined || !this.#coordinator.takesCommit(this.#memberId, fence.generation)) continue
      assert.equal(this.#coordinator.ownerOf(partition), this.#memberId, `partition ${partition} is another's`)
    }
  }

  #handle(event: MemberEvent<ConsumerAnswer>, nowMs: number): void {
    this.#carry(this.#machine.handle(event), nowMs)
  }

  #carry(commands: readonly MemberCommand<ConsumerCall>[], nowMs: number): void {
    for (const command of commands) {
      if (command.type === "call") this.#call = command.call
      if (command.type === "end") this.over = true
    }
    for (let change = this.#machine.take(nowMs); change !== undefined; change = this.#machine.take(nowMs)) {
      for (const { partition, claim } of change.lost) {
        this.held.delete(partition)
        this.#asked.delete(claim)
      }
      for (const { claim } of change.revoked) this.#asked.add(claim)
      for (const { partition, claim } of change.assigned) this.held.set(partition, claim)
    }
  }
}
