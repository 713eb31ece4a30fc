import assert from "node:assert/strict"
import { mkdtempSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { describe, it } from "node:test"
import { verifyStore } from "../verify.ts"
import { EngineFixture, log } from "./engine.test-support.ts"
import { offsets, QueueFixture } from "./queue-fixture.test-support.ts"
import { storeSchemas } from "./rooms.ts"
import { applicationId, storeFormat } from "./schema.ts"

/** A store as a program of format 1 makes it. */
function formatOne(path: string): DatabaseSync {
  const db = new DatabaseSync(join(path, "millrace.db"))
  db.exec("PRAGMA page_size=4096; PRAGMA journal_mode=WAL")
  db.exec(storeSchemas[0] as string)
  db.exec("INSERT INTO store_value VALUES ('storeId', lower(hex(randomblob(16))))")
  db.exec(`PRAGMA application_id=${applicationId}; PRAGMA user_version=1`)
  return db
}

const tables = (path: string): { readonly format: unknown; readonly names: readonly unknown[] } => {
  const db = new DatabaseSync(join(path, "millrace.db"), { readOnly: true })
  const format = db.prepare("PRAGMA user_version").get()?.user_version
  const names = db.prepare("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name").all()
  db.close()
  return { format, names: names.map(({ name }) => name) }
}

describe("A store of format 1", () => {
  it("is checked as it is, and gets what it lacks when it is opened, without losing anything", () => {
    const path = mkdtempSync(join(tmpdir(), "millrace-test-"))
    const made = formatOne(path)
    made.exec("INSERT INTO stream (name, created) VALUES ('old', 5)")
    made.close()
    assert.deepEqual(verifyStore(path).problems, [])
    using store = new EngineFixture(path)
    using fresh = new EngineFixture()
    assert.deepEqual(tables(path), tables(fresh.path))
    assert.equal(tables(path).format, storeFormat)
    assert.equal(store.call<{ createdMicros: bigint }>("catalog.describeStream", "old").createdMicros, 5n)
    const topic = store.createTopic({}, { stream: "old", topic: "t" })
    store.appendMany(topic, 3)
    assert.deepEqual(offsets(new QueueFixture(store, topic).pull()), [0, 1, 2])
    store.reopen()
    assert.equal(tables(path).format, storeFormat)
    assert.deepEqual(verifyStore(path).problems, [])
  })

  it("stays what it was when the program ends in the middle", () => {
    const path = mkdtempSync(join(tmpdir(), "millrace-test-"))
    const made = formatOne(path)
    // A table that is in the way makes the last step fail.
    made.exec("CREATE TABLE small_state (key BLOB)")
    made.close()
    assert.throws(() => new EngineFixture(path), /small_state/)
    assert.equal(tables(path).format, 1)
    assert.ok(!tables(path).names.includes("work_queue"))
    const again = new DatabaseSync(join(path, "millrace.db"))
    again.exec("DROP TABLE small_state")
    again.close()
    using store = new EngineFixture(path)
    store.createTopic({}, log)
    assert.equal(tables(path).format, storeFormat)
  })
})
