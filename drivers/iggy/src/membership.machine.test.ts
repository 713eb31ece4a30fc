import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, NotFoundError, PermissionError } from "@millrace/contract"
import fc from "fast-check"
import {
  type MembershipCommand,
  type MembershipEvent,
  MembershipMachine,
  type TopicSync,
} from "./membership.machine.ts"

const options = { topics: 1, sessionTimeoutMs: 10_000, rebalanceTimeoutMs: 3_000 }

type Untimed = MembershipEvent extends infer E ? (E extends MembershipEvent ? Omit<E, "nowMs"> : never) : never

/** A machine with a clock of its own and what it said. */
class Bench {
  readonly machine: MembershipMachine
  readonly commands: MembershipCommand[] = []
  nowMs = 0

  constructor(topics = 1) {
    this.machine = new MembershipMachine({ ...options, topics })
    this.commands.push(...this.machine.start(0))
  }

  tell(event: Untimed): readonly MembershipCommand[] {
    const said = this.machine.handle({ nowMs: this.nowMs, ...event } as MembershipEvent)
    this.commands.push(...said)
    return said
  }

  /** An answer to the call that is under way. */
  answer(...topics: TopicSync[]): readonly MembershipCommand[] {
    return this.tell({ type: "viewed", topics })
  }

  ask(): void {
    this.tell({ type: "due" })
  }

  take(): { assigned: number[]; revoked: number[]; lost: number[]; deadlineMs: number } | undefined {
    const change = this.machine.take(this.nowMs)
    if (change === undefined) return undefined
    const partitions = (claims: readonly { readonly partition: number }[]): number[] =>
      claims.map((own) => own.partition)
    return {
      assigned: partitions(change.assigned),
      revoked: partitions(change.revoked),
      lost: partitions(change.lost),
      deadlineMs: change.deadlineMs,
    }
  }

  get lastCall(): string | undefined {
    return this.commands.findLast((command) => command.type === "call")?.call.name
  }

  count(type: MembershipCommand["type"]): number {
    return this.commands.filter((command) => command.type === type).length
  }
}

function member(generation: number, partitions: number[], pending: number[] = []): TopicSync {
  return { kind: "member", generation: BigInt(generation), partitions, pending }
}

const gone: TopicSync = { kind: "gone", error: new NotFoundError("the group does not exist") }
const outside: TopicSync = { kind: "outside" }

function joined(partitions: number[]): Bench {
  const bench = new Bench()
  bench.answer(member(1, partitions))
  bench.take()
  return bench
}

describe("joining", () => {
  test("the first change is told, also when nothing is assigned", () => {
    const bench = new Bench()
    assert.equal(bench.lastCall, "join")
    assert.equal(bench.take(), undefined)
    bench.answer(member(1, []))
    assert.equal(bench.count("joined"), 1)
    assert.deepEqual(bench.take(), { assigned: [], revoked: [], lost: [], deadlineMs: 3_000 })
    assert.equal(bench.take(), undefined)
  })

  test("a first join that fails, or meets nothing, ends the member with the reason", () => {
    const failed = new Bench()
    failed.tell({ type: "failed", error: new ConnectionError("cut") })
    const last = failed.commands.at(-1)
    assert.ok(last?.type === "end" && last.error?.kind === "connection")
    const missing = new Bench(2)
    missing.answer(member(1, [0]), gone)
    const end = missing.commands.at(-1)
    assert.ok(end?.type === "end" && end.error?.kind === "not-found")
  })
})

describe("announcing", () => {
  test("one that waits is known, holds nothing, and asks again and again until it is in", () => {
    const bench = new Bench()
    bench.answer({ kind: "waiting" })
    assert.equal(bench.count("joined"), 1)
    assert.deepEqual(bench.take()?.assigned, [])
    for (let turn = 0; turn < 50; turn++) {
      bench.nowMs += 100
      bench.ask()
      assert.equal(bench.lastCall, "join")
      bench.answer({ kind: "waiting" })
      const arm = bench.commands.findLast((command) => command.type === "arm")
      assert.ok(arm?.type === "arm" && arm.delayMs <= 100)
    }
    bench.ask()
    bench.answer(member(2, [1]))
    assert.deepEqual(bench.take()?.assigned, [1])
    bench.ask()
    assert.equal(bench.lastCall, "sync")
  })

  test("one that is in one topic and waits for another keeps what it has", () => {
    const bench = new Bench(2)
    bench.answer(member(1, [0]), { kind: "waiting" })
    assert.deepEqual(bench.take()?.assigned, [0])
    bench.ask()
    bench.answer(member(1, [0]), member(4, [2]))
    assert.deepEqual(bench.take(), { assigned: [2], revoked: [], lost: [], deadlineMs: 3_000 })
  })
})

describe("rebalances", () => {
  test("a partition that another has already is lost, one that is held back is revoked until it is released", () => {
    const bench = joined([0, 1, 2])
    bench.ask()
    bench.answer(member(2, [0], [1]))
    assert.deepEqual(bench.take(), { assigned: [], revoked: [1], lost: [2], deadlineMs: 3_000 })
    const revoked = bench.machine.live().find(({ partition }) => partition === 1)
    assert.ok(revoked !== undefined && bench.machine.isLive(revoked.claim), "it may be committed while it is drained")
    bench.tell({ type: "release", claims: [revoked.claim] })
    assert.equal(bench.machine.isLive(revoked.claim), false)
    bench.ask()
    bench.answer(member(3, [0]))
    assert.equal(bench.take(), undefined)
  })

  test("a revocation that is taken back before anybody heard of it was none", () => {
    const bench = joined([0])
    bench.ask()
    bench.answer(member(2, [], [0]))
    bench.ask()
    bench.answer(member(3, [0]))
    assert.equal(bench.take(), undefined)
    assert.equal(bench.machine.live().length, 1)
  })

  test("one that is drained and given back is assigned anew after its release", () => {
    const bench = joined([0])
    bench.ask()
    bench.answer(member(2, [], [0]))
    assert.deepEqual(bench.take()?.revoked, [0])
    const [old] = bench.machine.live()
    bench.ask()
    bench.answer(member(3, [0]))
    assert.equal(bench.take(), undefined, "the owner still drains it")
    bench.tell({ type: "release", claims: [old?.claim as number] })
    bench.ask()
    bench.answer(member(3, [0]))
    assert.deepEqual(bench.take()?.assigned, [0])
  })

  test("what is not released in time is lost", () => {
    const bench = joined([0])
    bench.ask()
    bench.answer(member(2, [], [0]))
    assert.deepEqual(bench.take()?.revoked, [0])
    bench.nowMs = 2_999
    bench.ask()
    bench.answer(member(2, [], [0]))
    assert.equal(bench.take(), undefined)
    bench.nowMs = 3_000
    bench.ask()
    assert.deepEqual(bench.take()?.lost, [0])
    assert.deepEqual(bench.machine.live(), [])
  })

  test("a refused commit is looked into at once", () => {
    const bench = joined([0])
    const calls = bench.count("call")
    bench.tell({ type: "doubted" })
    assert.equal(bench.count("call"), calls + 1)
    assert.equal(bench.lastCall, "sync")
  })
})

describe("sessions", () => {
  test("a lost session loses every claim, the next one joins again", () => {
    const bench = joined([0, 1])
    bench.tell({ type: "sessionLost" })
    assert.deepEqual(bench.take()?.lost, [0, 1])
    bench.tell({ type: "sessionReady" })
    assert.equal(bench.lastCall, "join")
    bench.answer(member(5, [1]))
    assert.deepEqual(bench.take()?.assigned, [1])
    assert.equal(bench.count("end"), 0)
  })

  test("a member that the server took out joins again at once, and after that only when it is due", () => {
    const bench = joined([0])
    bench.ask()
    bench.answer(outside)
    assert.deepEqual(bench.take()?.lost, [0])
    assert.equal(bench.lastCall, "join")
    const calls = bench.count("call")
    bench.answer(outside)
    assert.equal(bench.count("call"), calls)
    bench.ask()
    assert.equal(bench.count("call"), calls + 1)
    assert.equal(bench.lastCall, "join")
  })

  test("a failure that a pause may mend is tried again when it is due; another ends the member", () => {
    const bench = joined([0])
    bench.ask()
    bench.tell({ type: "failed", error: new ConnectionError("cut") })
    assert.equal(bench.count("end"), 0)
    bench.ask()
    bench.tell({ type: "failed", error: new PermissionError("no") })
    const end = bench.commands.at(-1)
    assert.ok(end?.type === "end" && end.error?.kind === "permission")
    assert.deepEqual(bench.take()?.lost, [0])
  })

  test("only when nothing is left to read is a missing topic the end", () => {
    const bench = new Bench(2)
    bench.answer(member(1, [0]), member(1, [0]))
    bench.take()
    bench.ask()
    bench.answer(gone, member(1, [0]))
    assert.deepEqual(bench.take()?.lost, [0])
    assert.equal(bench.count("end"), 0)
    bench.ask()
    bench.answer(gone, gone)
    assert.equal(bench.count("end"), 1)
  })
})

describe("leaving", () => {
  test("a leave waits for the call that is under way, voids every claim at once, and ends", () => {
    const bench = joined([0])
    const [own] = bench.machine.live()
    bench.ask()
    bench.tell({ type: "leave" })
    assert.equal(bench.lastCall, "sync")
    assert.equal(bench.machine.isLive(own?.claim as number), false)
    assert.equal(bench.take(), undefined)
    bench.answer(member(2, [0]))
    assert.equal(bench.lastCall, "leave")
    bench.tell({ type: "left" })
    assert.equal(bench.count("end"), 1)
    assert.deepEqual(bench.tell({ type: "due" }), [])
  })
})

describe("any course of events", () => {
  const sync = fc.record({
    kind: fc.constant("member" as const),
    generation: fc.bigInt({ min: 1n, max: 4n }),
    partitions: fc.subarray([0, 1, 2]),
    pending: fc.subarray([0, 1, 2]),
  })
  const topic: fc.Arbitrary<TopicSync> = fc.oneof(
    { weight: 8, arbitrary: sync },
    { weight: 1, arbitrary: fc.constant(outside) },
    { weight: 1, arbitrary: fc.constant<TopicSync>({ kind: "waiting" }) },
    { weight: 1, arbitrary: fc.constant(gone) },
  )
  const step = fc.oneof(
    fc.record({ do: fc.constant("answer" as const), topics: fc.tuple(topic, topic) }),
    fc.record({ do: fc.constantFrom("due", "doubted", "sessionLost", "sessionReady", "take", "fail", "wait") }),
    fc.record({ do: fc.constant("release" as const), claim: fc.nat({ max: 6 }) }),
    { weight: 1, arbitrary: fc.constant({ do: "leave" as const }) },
  )

  test("one call at a time, no partition twice, nothing after the end", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const bench = new Bench(2)
        const held = new Map<string, number>()
        let calling = true
        const follow = (said: readonly MembershipCommand[]): void => {
          for (const command of said) {
            if (command.type !== "call") continue
            assert.equal(calling, false, "a call while one is under way")
            calling = true
          }
        }
        for (const one of steps) {
          const over = bench.count("end") > 0
          if (one.do === "take") {
            const change = bench.machine.take(bench.nowMs)
            for (const { claim } of change?.lost ?? [])
              for (const [key, value] of held) if (value === claim) held.delete(key)
            for (const own of change?.assigned ?? []) {
              const key = `${own.topic}/${own.partition}`
              assert.equal(held.has(key), false, `partition ${key} is assigned twice`)
              held.set(key, own.claim)
            }
            continue
          }
          if (one.do === "wait") bench.nowMs += 1_000
          const before = bench.commands.length
          if (one.do === "answer" || one.do === "fail") {
            if (!calling) continue
            calling = false
            const error = new ConnectionError("cut")
            if (one.do === "fail") bench.tell({ type: "failed", error })
            else if (bench.lastCall === "leave") bench.tell({ type: "left" })
            else bench.answer(...(one as { topics: TopicSync[] }).topics)
          } else if (one.do === "release") {
            const { claim } = one as { claim: number }
            bench.tell({ type: "release", claims: [claim] })
            for (const [key, value] of held) if (value === claim) held.delete(key)
          } else if (one.do !== "wait") {
            bench.tell({ type: one.do } as Untimed)
          }
          const said = bench.commands.slice(before)
          if (over) assert.deepEqual(said, [])
          follow(said)
          if (bench.machine.phase !== "ended" && bench.machine.phase !== "leaving" && !calling) {
            assert.ok(bench.count("arm") > 0, "nothing will wake the member")
          }
        }
      }),
      { numRuns: 400 },
    )
  })
})
