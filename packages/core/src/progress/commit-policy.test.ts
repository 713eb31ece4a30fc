import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { acknowledgementOf, type CommitPolicy, checkCommitPolicy } from "./commit-policy.ts"

/** One of each kind, with all that it needs. */
const policies: readonly CommitPolicy[] = [
  { kind: "disabled" },
  { kind: "interval", intervalMs: 0.5 },
  { kind: "polling" },
  { kind: "intervalOrPolling", intervalMs: 100 },
  { kind: "all" },
  { kind: "intervalOrAll", intervalMs: 100 },
  { kind: "each" },
  { kind: "intervalOrEach", intervalMs: 100 },
  { kind: "every", count: 1 },
  { kind: "intervalOrEvery", intervalMs: 2 ** 31 - 1, count: 2 ** 31 - 1 },
  { kind: "auto", after: "marked", every: "batch", intervalMs: false },
  { kind: "onRead" },
]

describe("the check of a policy", () => {
  const check = (policy: unknown): CommitPolicy => checkCommitPolicy("it", policy as CommitPolicy)

  test("takes each kind with its fields", () => {
    for (const policy of policies) assert.deepEqual(check(policy), policy)
  })

  test("fills in what auto leaves out: every 10,000 or 5 s, after processing", () => {
    const defaults = { kind: "auto", after: "processing", every: 10_000, intervalMs: 5000 }
    assert.deepEqual(check({ kind: "auto" }), defaults)
    assert.deepEqual(check({ kind: "auto", after: "marked" }), { ...defaults, after: "marked" })
    assert.deepEqual(check({ kind: "auto", every: false }), { ...defaults, every: false })
    assert.deepEqual(check({ kind: "auto", every: 7, intervalMs: false }), { ...defaults, every: 7, intervalMs: false })
  })

  test("refuses a kind that there is not, with all that there are", () => {
    for (const policy of [{}, { kind: "often" }, { kind: "toString" }, "each", null, 3]) {
      assert.throws(
        () => check(policy),
        /^InvalidError: it: .*"disabled", "interval", "polling", "intervalOrPolling", "all", "intervalOrAll", "each", "intervalOrEach", "every", "intervalOrEvery", "auto", "onRead"/,
      )
    }
  })

  test("refuses a field that is not the kind's, by name", () => {
    assert.throws(() => check({ kind: "each", intervalMs: 5 }), /commitPolicy "each": unknown option "intervalMs"/)
    assert.throws(
      () => check({ kind: "interval", intervalMs: 5, count: 5 }),
      /commitPolicy "interval": unknown option "count"/,
    )
    assert.throws(
      () => check({ kind: "every", count: 5, after: "delivery" }),
      /commitPolicy "every": unknown option "after"/,
    )
    assert.throws(() => check({ kind: "auto", count: 5 }), /commitPolicy "auto": unknown option "count"/)
    assert.throws(() => check({ kind: "onRead", every: 5 }), /commitPolicy "onRead": unknown option "every"/)
  })

  test("refuses a count or an interval that is missing, zero, or no such number", () => {
    for (const kind of ["interval", "intervalOrPolling", "intervalOrAll", "intervalOrEach"]) {
      assert.throws(() => check({ kind }), /intervalMs is missing/)
      for (const intervalMs of [0, -1, Number.NaN, Number.POSITIVE_INFINITY, "5", 2 ** 31, 5n, null]) {
        assert.throws(
          () => check({ kind, intervalMs }),
          /"intervalMs" is .*; it must be a number of milliseconds above 0/,
        )
      }
    }
    for (const policy of [{ kind: "every" }, { kind: "intervalOrEvery", intervalMs: 5 }]) {
      assert.throws(() => check(policy), /count is missing/)
      for (const count of [0, -1, 1.5, Number.NaN, "5", 2 ** 31, 5n, null]) {
        assert.throws(() => check({ ...policy, count }), /"count" is .*; it must be a whole number from 1/)
      }
    }
    assert.throws(() => check({ kind: "intervalOrEvery", count: 5 }), /intervalMs is missing/)
  })

  test("refuses an auto policy that would never store, or with fields that are none", () => {
    assert.throws(() => check({ kind: "auto", every: false, intervalMs: false }), /every and intervalMs are both off/)
    assert.throws(() => check({ kind: "auto", after: "later" }), /"processing", "delivery", "marked"/)
    for (const every of [0, -3, 2.5, "page", true, null, 5n])
      assert.throws(() => check({ kind: "auto", every }), /"every" is /)
    for (const intervalMs of [0, -3, "soon", true, null])
      assert.throws(() => check({ kind: "auto", intervalMs }), /"intervalMs" is /)
  })
})

describe("what a policy takes for handled", () => {
  test("is what the caller asked past, but for marks, deliveries and reads", () => {
    for (const policy of policies) {
      const { counts, letsGo } = acknowledgementOf(policy)
      const expected = { disabled: "marks", auto: "marks", onRead: "delivery" } as Readonly<Record<string, string>>
      assert.equal(counts, expected[policy.kind] ?? "asking", policy.kind)
      assert.equal(letsGo, policy.kind === "disabled", policy.kind)
    }
    for (const [after, counts] of [
      ["processing", "asking"],
      ["delivery", "delivery"],
      ["marked", "marks"],
    ] as const) {
      assert.equal(acknowledgementOf({ kind: "auto", after }).counts, counts)
    }
  })
})
