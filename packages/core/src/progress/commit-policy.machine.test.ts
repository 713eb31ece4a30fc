import assert from "node:assert/strict"
import { describe, test } from "node:test"
import fc from "fast-check"
import { CommitPolicyMachine } from "./commit-policy.machine.ts"
import type { CommitPolicy } from "./commit-policy.ts"
import { CommitModel, key, keys, steps } from "./commit-policy-model.test-support.ts"

/** Every policy that stores by itself. */
const automatic: Readonly<Record<string, CommitPolicy>> = {
  polling: { kind: "polling" },
  all: { kind: "all" },
  each: { kind: "each" },
  every: { kind: "every", count: 3 },
  interval: { kind: "interval", intervalMs: 100 },
  intervalOrPolling: { kind: "intervalOrPolling", intervalMs: 100 },
  intervalOrAll: { kind: "intervalOrAll", intervalMs: 100 },
  intervalOrEach: { kind: "intervalOrEach", intervalMs: 100 },
  intervalOrEvery: { kind: "intervalOrEvery", intervalMs: 100, count: 3 },
  auto: { kind: "auto", after: "processing", every: 10_000, intervalMs: 5000 },
  "auto, each message": { kind: "auto", after: "processing", every: "message", intervalMs: false },
  "auto, each page": { kind: "auto", after: "delivery", every: "batch", intervalMs: false },
  "auto, marked": { kind: "auto", after: "marked", every: 4, intervalMs: 50 },
}
const policies: Readonly<Record<string, CommitPolicy>> = {
  ...automatic,
  disabled: { kind: "disabled" },
  onRead: { kind: "onRead" },
}
const hasInterval = (policy: CommitPolicy): boolean => "intervalMs" in policy && policy.intervalMs !== false

describe("commit policies, whatever happens", () => {
  for (const [name, policy] of Object.entries(policies)) {
    test(`${name}: what is stored never passes an unhandled message, never repeats, never goes back, and is of an own partition`, () => {
      fc.assert(
        fc.property(steps, (all) => {
          const model = new CommitModel(policy)
          for (const one of all) model.run(one)
          if (!(name in automatic)) assert.equal(model.commands, 0, "stores nothing by itself")
        }),
      )
    })
  }

  for (const [name, policy] of Object.entries(automatic)) {
    test(`${name}: a clean end stores everything that was handled, also what failed to be stored before`, () => {
      fc.assert(
        fc.property(steps, (all) => {
          const model = new CommitModel(policy)
          for (const one of all) model.run(one)
          model.take(model.machine.handle({ type: "shutdown" }))
          assert.ok(!model.behind(), `stored ${model.stored}, handled ${model.handled}`)
        }),
      )
    })

    test(`${name}: a partition that is handed over takes its handled prefix along`, () => {
      fc.assert(
        fc.property(steps, key, (all, released) => {
          const model = new CommitModel(policy)
          for (const one of all) model.run(one)
          model.run({ do: "release", key: released })
          assert.ok(!model.owned[released] || model.stored[released] === model.due[released])
        }),
      )
    })
  }

  for (const [name, policy] of Object.entries(automatic).filter(([, policy]) => hasInterval(policy))) {
    test(`${name}: when the interval is over, everything handled is stored, and nothing waits any more`, () => {
      fc.assert(
        fc.property(steps, (all) => {
          const model = new CommitModel(policy)
          for (const one of all) {
            model.run(one)
            assert.equal(model.machine.waiting, model.behind(), "whether a timer is needed")
          }
          model.run({ do: "tick" })
          assert.ok(!model.behind())
        }),
      )
    })
  }

  for (const [name, policy, count] of [
    ["every", { kind: "every", count: 3 }, 3],
    ["intervalOrEvery", { kind: "intervalOrEvery", intervalMs: 100, count: 3 }, 3],
    ["auto, every 4", { kind: "auto", after: "processing", every: 4, intervalMs: false }, 4],
    ["auto, each message", { kind: "auto", after: "processing", every: "message", intervalMs: false }, 1],
  ] as const) {
    test(`${name}: as soon as ${count} messages of any partitions are handled since the last store, and not before`, () => {
      fc.assert(
        fc.property(fc.array(key, { maxLength: 40 }), (order) => {
          const model = new CommitModel(policy)
          let since = 0
          for (const one of order) {
            assert.equal(model.machine.window, count - since, "how many may be handed out unseen")
            const before = model.commands
            model.run({ do: "deliver", key: one })
            model.run({ do: "handleOne", key: one })
            since = (since + 1) % count
            assert.equal(model.commands > before, since === 0)
            assert.equal(model.behind(), since !== 0)
          }
        }),
      )
    })
  }

  for (const name of ["all", "intervalOrAll", "auto, each page"]) {
    test(`${name}: stores when a page is whole, also while later ones are in work`, () => {
      fc.assert(
        fc.property(
          fc.array(fc.array(key, { minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 8 }),
          (pages) => {
            const model = new CommitModel(policies[name] as CommitPolicy)
            const ends: bigint[][] = []
            for (const page of pages) {
              for (const one of page) model.run({ do: "deliver", key: one })
              ends.push([...model.delivered])
              model.run({ do: "poll" })
            }
            // Pages are worked on in their order, but behind the reading of all of them.
            const [first] = ends as [bigint[]]
            for (const one of keys.filter((one) => (first[one] as bigint) > 0n)) {
              assert.equal(model.commands, 0, "the first page is not whole yet")
              model.handle(one, first[one] as bigint)
            }
            assert.deepEqual(model.stored, first)
            for (const one of keys) model.run({ do: "handleAll", key: one })
            assert.ok(!model.behind())
          },
        ),
      )
    })
  }
})

describe("disabled", () => {
  test("stores what is marked, as far as it has no gap, each time it grows", () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(key, fc.integer({ min: 1, max: 3 })), { maxLength: 30 }), (marks) => {
        const model = new CommitModel({ kind: "disabled" })
        for (const [one, count] of marks) {
          for (let n = 0; n < count; n++) model.run({ do: "deliver", key: one })
          model.take(model.machine.handle({ type: "marked", key: one }))
          model.run({ do: "handleAll", key: one })
          assert.equal(model.stored[one], model.handled[one])
        }
      }),
    )
  })

  test("stores nothing of what was handled and never marked, and what was marked and failed goes again", () => {
    const machine = new CommitPolicyMachine<string>({ kind: "disabled" })
    for (const one of ["a", "b"]) machine.handle({ type: "gained", key: one, stored: undefined })
    assert.deepEqual(machine.handle({ type: "handled", key: "a", next: 5n, count: 5 }), [])
    machine.handle({ type: "marked", key: "b" })
    assert.deepEqual(machine.handle({ type: "handled", key: "b", next: 2n, count: 2 }), [{ key: "b", next: 2n }])
    machine.handle({ type: "storeFailed", key: "b" })
    machine.handle({ type: "storeFailed", key: "a" })
    assert.deepEqual(machine.handle({ type: "released", key: "a" }), [])
    assert.deepEqual(machine.handle({ type: "shutdown" }), [{ key: "b", next: 2n }])
  })
})

describe("the moments of storing", () => {
  const moments: Readonly<
    Record<string, Readonly<Record<"handled" | "poll" | "tick" | "released" | "shutdown", number>>>
  > = {
    disabled: { handled: 0, poll: 0, tick: 0, released: 0, shutdown: 0 },
    onRead: { handled: 0, poll: 0, tick: 0, released: 0, shutdown: 0 },
    interval: { handled: 0, poll: 0, tick: 1, released: 1, shutdown: 1 },
    polling: { handled: 0, poll: 1, tick: 0, released: 1, shutdown: 1 },
    intervalOrPolling: { handled: 0, poll: 1, tick: 1, released: 1, shutdown: 1 },
    all: { handled: 0, poll: 1, tick: 0, released: 1, shutdown: 1 },
    intervalOrAll: { handled: 0, poll: 1, tick: 1, released: 1, shutdown: 1 },
    each: { handled: 1, poll: 0, tick: 0, released: 0, shutdown: 0 },
    intervalOrEach: { handled: 1, poll: 0, tick: 0, released: 0, shutdown: 0 },
    // Two of three.
    every: { handled: 0, poll: 0, tick: 0, released: 1, shutdown: 1 },
    intervalOrEvery: { handled: 0, poll: 0, tick: 1, released: 1, shutdown: 1 },
    auto: { handled: 0, poll: 0, tick: 1, released: 1, shutdown: 1 },
    "auto, each message": { handled: 1, poll: 0, tick: 0, released: 0, shutdown: 0 },
    "auto, each page": { handled: 0, poll: 1, tick: 0, released: 1, shutdown: 1 },
    "auto, marked": { handled: 0, poll: 0, tick: 1, released: 1, shutdown: 1 },
  }
  for (const [name, policy] of Object.entries(policies)) {
    test(`of ${name}`, () => {
      const fresh = (): { machine: CommitPolicyMachine<string>; handled: number } => {
        const machine = new CommitPolicyMachine<string>(policy)
        machine.handle({ type: "gained", key: "p", stored: 4n })
        return { machine, handled: machine.handle({ type: "handled", key: "p", next: 6n, count: 2 }).length }
      }
      assert.deepEqual(
        {
          handled: fresh().handled,
          poll: fresh().machine.handle({ type: "pollStarted", handed: [] }).length,
          tick: fresh().machine.handle({ type: "tick" }).length,
          released: fresh().machine.handle({ type: "released", key: "p" }).length,
          shutdown: fresh().machine.handle({ type: "shutdown" }).length,
        },
        moments[name],
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
      machine.handle({ type: "handled", key: "p", next: 3n, count: 3 })
      const handed = [{ key: "p", next: 4n }]
      assert.equal(machine.handle({ type: "pollStarted", handed }).length, atPoll, kind)
      assert.deepEqual(machine.handle({ type: "handled", key: "p", next: 3n, count: 0 }), [])
      const stored = machine.handle({ type: "handled", key: "p", next: 4n, count: 1 })
      assert.deepEqual(stored, kind === "all" ? [{ key: "p", next: 4n }] : [])
    }
  })

  test("all does not wait for a partition that is gone, or is read elsewhere", () => {
    for (const type of ["dropped", "moved"] as const) {
      const machine = new CommitPolicyMachine<string>({ kind: "all" })
      for (const one of ["p", "q"]) machine.handle({ type: "gained", key: one, stored: undefined })
      machine.handle({ type: "handled", key: "p", next: 3n, count: 3 })
      machine.handle({ type: "pollStarted", handed: [{ key: "q", next: 4n }] })
      assert.deepEqual(machine.handle({ type, key: "q" }), [{ key: "p", next: 3n }])
    }
  })

  test("what the caller stored ahead is not taken back, and what it stored behind is made up for", () => {
    const machine = new CommitPolicyMachine<string>({ kind: "polling" })
    machine.handle({ type: "gained", key: "p", stored: undefined })
    machine.handle({ type: "handled", key: "p", next: 3n, count: 3 })
    machine.handle({ type: "submitted", key: "p", next: 9n })
    machine.handle({ type: "handled", key: "p", next: 5n, count: 2 })
    assert.deepEqual(machine.handle({ type: "pollStarted", handed: [] }), [])
    machine.handle({ type: "handled", key: "p", next: 10n, count: 5 })
    machine.handle({ type: "submitted", key: "p", next: 2n })
    assert.deepEqual(machine.handle({ type: "pollStarted", handed: [] }), [{ key: "p", next: 10n }])
  })

  test("what the caller places, forward or back, stands until more than it is handled", () => {
    for (const policy of Object.values(automatic)) {
      const machine = new CommitPolicyMachine<string>(policy)
      machine.handle({ type: "gained", key: "p", stored: 4n })
      machine.handle({ type: "handled", key: "p", next: 6n, count: 2 })
      for (const next of [2n, 9n, undefined]) {
        machine.handle({ type: "placed", key: "p", next })
        assert.equal(machine.waiting, false)
        assert.deepEqual(machine.handle({ type: "shutdown" }), [])
      }
      machine.handle({ type: "placed", key: "p", next: 2n })
      const commands = [
        ...machine.handle({ type: "handled", key: "p", next: 3n, count: 1 }),
        ...machine.handle({ type: "shutdown" }),
      ]
      assert.deepEqual(commands, [{ key: "p", next: 3n }])
    }
  })

  test("offset 0 is progress like any other", () => {
    for (const policy of Object.values(automatic)) {
      const machine = new CommitPolicyMachine<string>(policy)
      machine.handle({ type: "gained", key: "p", stored: undefined })
      const commands = [
        ...machine.handle({ type: "handled", key: "p", next: 1n, count: 1 }),
        ...machine.handle({ type: "shutdown" }),
      ]
      assert.deepEqual(commands, [{ key: "p", next: 1n }])
    }
  })
})
