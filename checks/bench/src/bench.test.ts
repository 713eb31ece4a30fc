import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { test } from "node:test"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import type { Row } from "./row.ts"
import { sibling } from "./sibling.ts"

const main = fileURLToPath(sibling(import.meta.url, "main"))
const bench = (...args: string[]): Promise<{ stdout: string; stderr: string }> =>
  promisify(execFile)(process.execPath, [main, ...args], { timeout: 60_000 })

test("a quick run prints a table and writes its rows as JSON", async (t) => {
  const directory = mkdtempSync(join(tmpdir(), "millrace-bench-"))
  t.after(() => rmSync(directory, { recursive: true, force: true }))
  const json = join(directory, "rows.json")

  const { stdout } = await bench("embedded", "--quick", "--only", "append-100b,latency-process", "--json", json)

  const rows = JSON.parse(readFileSync(json, "utf8")) as Row[]
  assert.deepEqual(
    rows.map((row) => row.id),
    ["append-100b", "latency-process"],
  )
  for (const row of rows) {
    assert.deepEqual(
      Object.keys(row).slice(0, 11).sort(),
      [
        "id",
        "unit",
        "better",
        "ours",
        "reference",
        "referenceName",
        "ratio",
        "peers",
        "cpuMicrosPerRecord",
        "spread",
        "targets",
      ].sort(),
    )
    assert.ok(row.ours > 0 && row.reference > 0, `${row.id}: figures above 0`)
    assert.equal(row.ratio, row.ours / row.reference)
    assert.ok(Object.values(row.peers).every(Number.isFinite), `${row.id}: every peer is a number`)
    assert.ok(row.spread.ours.min <= row.ours && row.ours <= row.spread.ours.max)
    assert.ok(stdout.includes(row.id), `${row.id} is in the table`)
  }
  assert.ok((rows[0]?.cpuMicrosPerRecord ?? 0) > 0)
  assert.equal(rows[1]?.better, "lower")
  assert.match(stdout, /below 1 is better/)
})

test("the producer layer is measured alone, and its rows are printed as tables too", async () => {
  const { stdout } = await bench("producer", "--quick", "--only", "layer-keys,layer-promise", "--markdown")
  assert.match(stdout, /^\| id \| ours \| reference \| ratio \(spread\) \| goal \| CPU µs a record \|$/m)
  assert.match(stdout, /^\| layer-keys \| .*records\/s at least 3,000,000: /m)
  assert.match(stdout, /^\| layer-promise \| .*Promise\.all at least 2,000,000: /m)
})

test("the producer suite has every id of its table", async () => {
  await assert.rejects(bench("producer", "--only", "none"), (error: { stderr: string }) => {
    assert.match(
      error.stderr,
      /the ids are background-100b, confirm-100b, send-1, layer-keys, layer-promise, outage, spool-100b/,
    )
    return true
  })
})

test("the consumer layer is measured alone", async () => {
  const { stdout } = await bench("consumer", "--quick", "--only", "layer,consume-100b")
  assert.match(stdout, /^layer +[\d,]+ messages\/s /m)
  assert.match(stdout, /^consume-100b +[\d,]+ messages\/s /m)
})

test("the consumer suite has every id of its table", async () => {
  await assert.rejects(bench("consumer", "--only", "none"), (error: { stderr: string }) => {
    assert.match(error.stderr, /the ids are consume-100b, run-64, layer, rebalance, takeover, memory-10m, idle-100/)
    return true
  })
})

test("an unknown id is refused with the known ones, and nothing is left on the disk", async () => {
  await assert.rejects(bench("embedded", "--only", "append"), (error: { code: number; stderr: string }) => {
    assert.equal(error.code, 1)
    assert.match(
      error.stderr,
      /"append" is unknown: the ids are append-1k-32, append-1k-1, append-100b, send-1, scan-100b/,
    )
    return true
  })
  const data = fileURLToPath(new URL("../../../.data/", import.meta.url))
  assert.deepEqual(
    readdirSync(data).filter((name) => name.startsWith("bench-")),
    [],
  )
})
