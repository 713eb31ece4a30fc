import assert from "node:assert/strict"
import { test } from "node:test"
import { formatReport } from "./report.ts"
import { type Row, target } from "./row.ts"

const flat = { min: 1, max: 1 }
const row: Row = {
  id: "send-1",
  unit: "ms, p50",
  better: "lower",
  ours: 0.123456,
  reference: 0.1,
  referenceName: "write + fdatasync",
  ratio: 1.23456,
  peers: { "records/s awaited": 6551.4 },
  cpuMicrosPerRecord: null,
  spread: { ours: flat, reference: flat, ratio: flat },
  targets: [target("× write + fdatasync", 1.23456, "at most", 1.3), target("records/s", 199_999, "at least", 200_000)],
  method: "100 B",
}

test("a row shows its figures, says which way is better, and which targets it met and missed", () => {
  const text = formatReport([row])
  assert.match(text, /send-1 +0\.123 ms, p50 +0\.1 ms, p50 \(write \+ fdatasync\) +1\.23 \(below 1 is better\)/)
  assert.match(text, /met +× write \+ fdatasync: 1\.23 \(at most 1\.3\)/)
  assert.match(text, /MISSED records\/s: 199,999 \(at least 200,000\)/)
  assert.match(text, /peer +records\/s awaited: 6,551/)
})

test("a target is held at its limit as its rule says", () => {
  assert.equal(target("x", 1, "at least", 1).met, true)
  assert.equal(target("x", 1, "at most", 1).met, true)
  assert.equal(target("x", 1, "below", 1).met, false)
  assert.equal(target("x", Number.NaN, "at least", 1).met, false)
})
