import assert from "node:assert/strict"
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { after, test } from "node:test"
import { keepOutstanding } from "../outstanding.ts"
import { joined, payloads } from "../payload.ts"
import { openBareFile } from "./bare-file.ts"
import { bareWrites } from "./bare-write.ts"
import { encodeInto } from "./encoding.ts"
import { scanFile } from "./file-scan.ts"
import { openSqliteTable } from "./sqlite-table.ts"

const directory = mkdtempSync(join(tmpdir(), "millrace-reference-"))
after(() => rmSync(directory, { recursive: true, force: true }))

test("the bare file holds every append once, and an append settles only when its bytes are in the file", async () => {
  const path = join(directory, "bare")
  const chunk = joined(payloads(10, 100))
  const file = await openBareFile(path, chunk)
  await file.append()
  assert.equal(statSync(path).size, chunk.length)
  let settled = 1
  await keepOutstanding(200, 32, async () => {
    await file.append()
    settled++
    assert.ok(statSync(path).size >= settled * chunk.length)
  })
  await file.close()
  assert.deepEqual(readFileSync(path), Buffer.concat(new Array(201).fill(chunk)))
})

test("a bare file that cannot be created fails instead of hanging", async () => {
  await assert.rejects(openBareFile(join(directory, "missing", "bare"), joined(payloads(1, 1))), /ENOENT/)
})

test("the plain table holds every record", () => {
  const path = join(directory, "table.db")
  const table = openSqliteTable(path)
  table.fill(payloads(7, 50), 2500)
  table.close()
  const database = new DatabaseSync(path, { readOnly: true })
  const found = database.prepare("SELECT count(*) AS records, sum(length(payload)) AS bytes FROM record").get()
  database.close()
  assert.deepEqual({ ...found }, { records: 2500, bytes: 125_000 })
})

test("the scan sees every byte, the writes are counted, the encoding has its length in front of each payload", async () => {
  const path = join(directory, "scan")
  assert.equal(bareWrites(path, new Uint8Array(3_000), 1_000).length, 1_000)
  assert.equal(await scanFile(path), 3_000_000)
  assert.equal(encodeInto(payloads(5, 100), 2), 5 * 104)
})
