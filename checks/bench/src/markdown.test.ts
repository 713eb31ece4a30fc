import assert from "node:assert/strict"
import { test } from "node:test"
import { formatTables } from "./markdown.ts"
import { type Row, target } from "./row.ts"

const row: Row = {
  id: "layer-keys",
  unit: "records/s",
  better: "higher",
  ours: 2_500_000,
  reference: 10_000_000,
  referenceName: "a loop | nothing else",
  ratio: 0.25,
  peers: { "records/s in batches": 4_000_000 },
  cpuMicrosPerRecord: 0.4321,
  spread: { ours: { min: 2_400_000, max: 2_600_000 }, reference: { min: 1, max: 1 }, ratio: { min: 0.2, max: 0.3 } },
  targets: [target("records/s", 2_500_000, "at least", 3_000_000), target("CPU", 0.4321, "at most", 1)],
  method: "100 B",
}

test("rows become a table with goals met and missed, the other figures another, and each method is told", () => {
  assert.equal(
    formatTables([row]),
    [
      "| id | ours | reference | ratio (spread) | goal | CPU µs a record |",
      "| --- | --- | --- | --- | --- | --- |",
      "| layer-keys | 2,500,000 records/s (2,400,000 to 2,600,000) | 10,000,000, a loop \\| nothing else | 0.25 (0.2 to 0.3) | records/s at least 3,000,000: 2,500,000, missed; CPU at most 1: 0.432 | 0.432 |",
      "",
      "| id | figure | value |",
      "| --- | --- | --- |",
      "| layer-keys | records/s in batches | 4,000,000 |",
      "",
      "- **layer-keys**: 100 B.",
    ].join("\n"),
  )
})
