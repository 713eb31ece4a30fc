import assert from "node:assert/strict"
import { describe, test } from "node:test"
import fc from "fast-check"
import { CommitPolicyMachine, type StoreCommand } from "./commit-policy.machine.ts"
import { checkCommitPolicy } from "./commit-policy.ts"

const kinds = ["disabled", "polling", "all", "each"] as const

/** What a consumer does, in the terms that a caller would use. */
type Step =
  | { readonly do: "deliver"; readonly key: number }
  | { readonly do: "handle" }
  | { readonly do: "poll" }
  | { readonly do: "release"; readonly key: number }
  | { readonly do: "commit"; readonly key: number; readonly back: number }

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant("deliver" as const), key: fc.nat({ max: 2 }) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("handle" as const) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("poll" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("release" as const), key: fc.nat({ max: 2 }) }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("commit" as const), key: fc.nat({ max: 2 }), back: fc.nat({ max: 3 }) }),
  },
)

/** A model of three partitions that delivers offsets one after the other, and holds the machine against what is handled. */
class Model {
  readonly machine: CommitPolicyMachine<number>
  readonly delivered: bigint[] = [0n, 0n, 0n]
  readonly handled: bigint[] = [0n, 0n, 0n]
  readonly stored: (bigint | undefined)[] = [undefined, undefined, undefined]
  readonly commands: StoreCommand<number>[] = []
  readonly kind: (typeof kinds)[number]

  constructor(kind: (typeof kinds)[number]) {
    this.kind = kind
    this.machine = new CommitPolicyMachine({ kind })
    for (const key of [0, 1, 2]) this.machine.handle({ type: "gained", key, stored: undefined })
  }

  get open(): number {
    return [0, 1, 2].reduce(
      (sum, key) => sum + Number((this.delivered[key] as bigint) - (this.handled[key] as bigint)),
      0,
    )
  }

  run(one: Step): void {
    if (one.do === "deliver") this.delivered[one.key] = (this.delivered[one.key] as bigint) + 1n
    else if (one.do === "handle") for (const key of [0, 1, 2]) this.handleAll(key)
    else if (one.do === "poll") this.take(this.machine.handle({ type: "pollStarted", open: this.open }))
    else if (one.do === "release") this.take(this.machine.handle({ type: "released", key: one.key }))
    else this.commit(one.key, BigInt(one.back))
  }

  handleAll(key: number): void {
    const next = this.delivered[key] as bigint
    if (this.handled[key] === next) return
    this.handled[key] = next
    this.take(this.machine.handle({ type: "handled", key, next, open: this.open }))
  }

  commit(key: number, back: bigint): void {
    const next = (this.delivered[key] as bigint) - back
    if (next <= 0n || next <= (this.stored[key] ?? 0n)) return
    if (next > (this.handled[key] as bigint)) this.handled[key] = next
    this.stored[key] = next
    this.take(this.machine.handle({ type: "submitted", key, next }))
    this.take(this.machine.handle({ type: "handled", key, next, open: this.open }))
  }

  take(commands: readonly StoreCommand<number>[]): void {
    for (const { key, next } of commands) {
      assert.notEqual(this.kind, "disabled", "disabled stores nothing by itself")
      assert.ok(next <= (this.handled[key] as bigint), `stored ${next}, handled ${this.handled[key]}`)
      assert.ok(next > (this.stored[key] ?? 0n), `stored ${next} after ${this.stored[key]}`)
      this.stored[key] = next
      this.commands.push({ key, next })
    }
  }
}

describe("commit policies, whatever happens", () => {
  for (const kind of kinds) {
    test(`${kind}: what is stored never passes an unhandled message, never repeats and never goes back`, () => {
      fc.assert(
        fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
          const model = new Model(kind)
          for (const one of steps) model.run(one)
        }),
      )
    })

    test(`${kind}: a clean end reaches the end of what was delivered`, () => {
      fc.assert(
        fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
          const model = new Model(kind)
          for (const one of steps) model.run(one)
          model.run({ do: "handle" })
          model.take(model.machine.handle({ type: "shutdown" }))
          if (kind === "disabled") return
          for (const key of [0, 1, 2]) assert.equal(model.stored[key] ?? 0n, model.delivered[key])
        }),
      )
    })
  }
})

describe("the moments of storing", () => {
  const moments = {
    disabled: { handled: 0, poll: 0, released: 0, shutdown: 0 },
    polling: { handled: 0, poll: 1, released: 1, shutdown: 1 },
    all: { handled: 0, poll: 1, released: 1, shutdown: 1 },
    each: { handled: 1, poll: 0, released: 0, shutdown: 0 },
  } as const
  for (const kind of kinds) {
    test(`of ${kind}`, () => {
      const fresh = (): { machine: CommitPolicyMachine<string>; handled: number } => {
        const machine = new CommitPolicyMachine<string>({ kind })
        machine.handle({ type: "gained", key: "p", stored: 4n })
        return { machine, handled: machine.handle({ type: "handled", key: "p", next: 7n, open: 0 }).length }
      }
      assert.deepEqual(
        {
          handled: fresh().handled,
          poll: fresh().machine.handle({ type: "pollStarted", open: 0 }).length,
          released: fresh().machine.handle({ type: "released", key: "p" }).length,
          shutdown: fresh().machine.handle({ type: "shutdown" }).length,
        },
        moments[kind],
      )
    })
  }

  test("all waits until the page's last open message is handled, polling does not", () => {
    for (const [kind, atPoll] of [
      ["all", 0],
      ["polling", 1],
    ] as const) {
      const machine = new CommitPolicyMachine<string>({ kind })
      machine.handle({ type: "gained", key: "p", stored: undefined })
      machine.handle({ type: "handled", key: "p", next: 3n, open: 1 })
      assert.equal(machine.handle({ type: "pollStarted", open: 2 }).length, atPoll, kind)
      assert.deepEqual(machine.handle({ type: "handled", key: "p", next: 3n, open: 1 }), [])
      const stored = machine.handle({ type: "handled", key: "p", next: 4n, open: 0 })
      assert.deepEqual(stored, kind === "all" ? [{ key: "p", next: 4n }] : [])
    }
  })

  test("what the caller stored ahead is not taken back, and what it stored behind is made up for", () => {
    const machine = new CommitPolicyMachine<string>({ kind: "polling" })
    machine.handle({ type: "gained", key: "p", stored: undefined })
    machine.handle({ type: "handled", key: "p", next: 3n, open: 0 })
    machine.handle({ type: "submitted", key: "p", next: 9n })
    machine.handle({ type: "handled", key: "p", next: 5n, open: 0 })
    assert.deepEqual(machine.handle({ type: "pollStarted", open: 0 }), [])
    machine.handle({ type: "handled", key: "p", next: 10n, open: 0 })
    machine.handle({ type: "submitted", key: "p", next: 2n })
    assert.deepEqual(machine.handle({ type: "pollStarted", open: 0 }), [{ key: "p", next: 10n }])
    machine.handle({ type: "submitted", key: "p", next: undefined })
    assert.deepEqual(machine.handle({ type: "shutdown" }), [])
  })

  test("nothing of a dropped partition is stored", () => {
    const machine = new CommitPolicyMachine<string>({ kind: "polling" })
    machine.handle({ type: "gained", key: "p", stored: undefined })
    machine.handle({ type: "handled", key: "p", next: 3n, open: 0 })
    machine.handle({ type: "dropped", key: "p" })
    machine.handle({ type: "handled", key: "p", next: 4n, open: 0 })
    assert.deepEqual(machine.handle({ type: "shutdown" }), [])
  })
})

describe("a policy that does not exist", () => {
  test("is refused with those that do", () => {
    for (const policy of [{ kind: "interval", intervalMs: 5 }, { kind: "each", intervalMs: 5 }, {}, "each", null]) {
      assert.throws(() => checkCommitPolicy("it", policy as never), /"disabled", "polling", "all", "each"/)
    }
  })
})
