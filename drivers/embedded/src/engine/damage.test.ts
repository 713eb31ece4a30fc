import assert from "node:assert/strict"
import { readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { describe, it } from "node:test"
import { CorruptionError, StorageError } from "@millrace/contract"
import { verifyStore } from "../verify.ts"
import { EngineFixture, log } from "./engine.test-support.ts"
import { storeFormat } from "./schema.ts"

function segmentOf(store: EngineFixture): string {
  const [name] = readdirSync(join(store.path, "segments"))
  return join(store.path, "segments", name as string)
}

/** Changes rows as a fault of the disk would: behind the back of the program. */
function tamper(store: EngineFixture, sql: string): void {
  store.reopen(() => {
    const db = new DatabaseSync(join(store.path, "millrace.db"))
    db.exec(sql)
    db.close()
  })
}

describe("damage", () => {
  it("to any byte of a batch in a segment is found, and nothing of it is given out", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 1, { bytes: 10 })
    store.appendMany(topic, 7, { bytes: 10_000 })
    const file = segmentOf(store)
    const whole = readFileSync(file)
    for (let at = 0; at < whole.length; at += 1999) {
      const changed = Buffer.from(whole)
      changed[at] = (changed[at] as number) ^ 1
      writeFileSync(file, changed)
      assert.equal(store.read(topic, 0n).nextOffset, 1n)
      assert.throws(
        () => store.read(topic, 1n),
        (error: CorruptionError) => error instanceof CorruptionError && error.context.offset === 1n,
      )
      assert.equal(verifyStore(store.path).ok, false)
    }
    writeFileSync(file, whole)
    assert.equal(store.lengths(topic).length, 8)
    assert.deepEqual(verifyStore(store.path).problems, [])
  })

  it("that cuts a segment short or removes it is found, and never a gap", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 7, { bytes: 10_000 })
    store.appendMany(topic, 7, { bytes: 10_000 })
    store.appendMany(topic, 2)
    const file = segmentOf(store)
    truncateSync(file, 100_000)
    assert.equal(store.read(topic, 0n).nextOffset, 7n)
    assert.throws(() => store.read(topic, 7n), CorruptionError)
    assert.equal(store.read(topic, 14n).nextOffset, 16n)
    assert.equal(verifyStore(store.path).ok, false)
    store.reopen(() => rmSync(file))
    store.read(topic, 0n)
    assert.equal(verifyStore(store.path).ok, false)
  })

  it("to rows is found: missing, moved, swapped, with other offsets or times", () => {
    for (const sql of [
      "DELETE FROM batch WHERE base = 2",
      "DELETE FROM batch WHERE base = 4",
      "UPDATE batch SET base = base + 1 WHERE base = 2",
      "UPDATE batch SET time = time + 1 WHERE base = 2",
      "UPDATE batch SET count = count + 1, base = base WHERE base = 2",
      "UPDATE batch SET body = (SELECT body FROM batch WHERE base = 0) WHERE base = 2",
      "UPDATE log_state SET next = next + 1 WHERE producer = 0",
    ]) {
      using store = new EngineFixture()
      const topic = store.createTopic()
      for (let i = 0; i < 3; i++) store.appendMany(topic, 2)
      tamper(store, sql)
      const seen: bigint[] = []
      assert.throws(
        () => {
          for (let offset = 0n; offset < 6n; ) {
            const { batches, nextOffset } = store.read(topic, offset)
            for (const batch of batches) seen.push(batch.firstOffset)
            assert.ok(nextOffset > offset, "the reader does not move on")
            offset = nextOffset
          }
          if (sql.includes("log_state")) store.read(topic, 6n)
        },
        { kind: "corruption" },
        sql,
      )
      assert.deepEqual(seen, [0n, 2n, 4n].slice(0, seen.length))
      assert.equal(verifyStore(store.path).ok, false, sql)
    }
  })

  it("of one batch is told with the place where reading goes on, whatever its own row says", () => {
    for (const sql of [
      "UPDATE batch SET checksum = checksum + 1 WHERE base = 2",
      "UPDATE batch SET count = count + 1 WHERE base = 2",
      "UPDATE batch SET checksum = checksum + 1 WHERE base = 4",
    ]) {
      using store = new EngineFixture()
      const topic = store.createTopic()
      for (let i = 0; i < 3; i++) store.appendMany(topic, 2)
      tamper(store, sql)
      const base = sql.endsWith("4") ? 4n : 2n
      assert.throws(
        () => store.read(topic, base),
        (error: Error & { context?: { offset?: bigint; nextOffset?: bigint } }) => {
          assert.deepEqual([error.context?.offset, error.context?.nextOffset], [base, base + 2n], sql)
          return true
        },
      )
      if (sql === "UPDATE batch SET checksum = checksum + 1 WHERE base = 2")
        assert.equal(store.read(topic, 4n).batches[0]?.firstOffset, 4n)
    }
  })

  it("to counters is found by the check", () => {
    for (const sql of [
      "UPDATE log_state SET written = written + 1 WHERE producer = 0",
      "UPDATE log_state SET first_batch = 1 WHERE producer = 0",
      "UPDATE store_value SET value = 1 WHERE name = 'nextPartition'",
      "UPDATE segment SET live = live - 5",
      "UPDATE batch_summary SET base = 9 WHERE base = 0",
      "DELETE FROM log_state WHERE producer = 0",
      "INSERT INTO record_id VALUES (77, 1, x'00', 1)",
      "UPDATE topic_partition SET partition = 3",
    ]) {
      using store = new EngineFixture()
      const topic = store.createTopic()
      store.appendMany(topic, 2)
      store.appendMany(topic, 7, { bytes: 10_000 })
      tamper(store, sql)
      const report = verifyStore(store.path)
      assert.equal(report.ok, false, sql)
      assert.ok(report.problems.length > 0 && report.problemCount >= report.problems.length)
    }
  })
})

describe("a store that is not what it should be", () => {
  it("is refused when its format is newer, naming both versions", () => {
    using store = new EngineFixture()
    store.createTopic()
    const reopen = (): void => tamper(store, `PRAGMA user_version = ${storeFormat + 1}`)
    assert.throws(reopen, (error: Error) => {
      assert.ok(error instanceof StorageError)
      const both = `has format ${storeFormat + 1}, and this version of Millrace reads formats up to ${storeFormat}:`
      assert.ok(error.message.includes(both), error.message)
      return true
    })
    tamperClosed(store, `PRAGMA user_version = ${storeFormat}`)
    store.reopen()
    assert.equal(store.call<unknown[]>("catalog.listTopics", log.stream).length, 1)
  })

  it("is refused when its database was cut to nothing", () => {
    using store = new EngineFixture()
    store.createTopic()
    const database = join(store.path, "millrace.db")
    const whole = { value: Buffer.alloc(0) }
    assert.throws(
      () =>
        store.reopen(() => {
          whole.value = readFileSync(database)
          truncateSync(database, 0)
        }),
      { kind: "corruption" },
    )
    writeFileSync(database, whole.value)
    store.reopen()
  })
})

function tamperClosed(store: EngineFixture, sql: string): void {
  const db = new DatabaseSync(join(store.path, "millrace.db"))
  db.exec(sql)
  db.close()
}
