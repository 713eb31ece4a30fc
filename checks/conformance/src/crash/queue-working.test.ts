import assert from "node:assert/strict"
import { test } from "node:test"
import { WorkLedger } from "./queue-working.ts"

function problemsOf(reports: readonly string[], ends: readonly bigint[]): string[] {
  const ledger = new WorkLedger()
  for (const report of reports) ledger.take(report.split(" "))
  return ledger.problems(ends)
}

test("a delivery that was lost with its worker and came again is in order", () => {
  const reports = ["h 0 0 1", "h 0 1 1", "a 0 1 1", "h 0 0 3", "a 0 0 3", "h 1 0 1"]
  assert.deepEqual(problemsOf(reports, [2n, 1n]), [])
})

for (const [what, reports, says] of [
  ["lost", ["h 0 0 1", "a 0 0 1"], /0\/1 came to nobody/],
  ["again behind its ack", ["h 0 0 1", "a 0 0 1", "h 0 1 1", "h 0 0 2"], /0\/0 came again as 2 behind .* 1/],
  ["the same, told in another order", ["h 0 1 1", "h 0 0 2", "h 0 0 1", "a 0 0 1"], /0\/0 came again as 2/],
  ["given to two at once", ["h 0 0 1", "h 0 0 1", "h 0 1 1"], /delivery 1 of 0\/0 went to two/],
  ["acknowledged twice", ["h 0 1 1", "h 0 0 1", "h 0 0 2", "a 0 0 2", "a 0 0 1"], /acknowledged twice/],
] as const) {
  test(`a message that is ${what} is found`, () => {
    assert.match(problemsOf(reports, [2n]).join("\n"), says)
  })
}
