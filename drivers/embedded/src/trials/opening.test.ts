import assert from "node:assert/strict"
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import test from "node:test"
import { CorruptionError, type ErrorKind, MillraceError, StorageError } from "@millrace/contract"
import { meets } from "./needs.ts"
import { startChild } from "./trial-child.ts"
import { trialDirectory } from "./trial-directory.ts"
import { appendTrialBatch, ensureTopic, openSession, readPartition } from "./trial-log.ts"

/** Whom the trials become: nobody, on every system. */
const nobody = 65_534

/** The one database file of a store. */
function databaseOf(directory: string): string {
  return join(directory, "millrace.db")
}

async function makeStore(directory: string): Promise<void> {
  const session = await openSession(directory)
  await appendTrialBatch(session, await ensureTopic(session), { writer: 1, first: 0, count: 3, bytes: 40 })
  await session.close()
}

async function refusal(directory: string): Promise<MillraceError> {
  const opened = await openSession(directory).then(
    (session) => session.close().then(() => undefined),
    (error: unknown) => error,
  )
  assert.ok(opened instanceof MillraceError, `opening ${directory} gave ${String(opened)}`)
  return opened
}

test("a directory is made with all of its parents", async (t) => {
  const directory = join(trialDirectory(t), "a", "b", "c")
  await makeStore(directory)
  assert.ok(existsSync(databaseOf(directory)))
})

test("a path that is a file is refused by its name", async (t) => {
  const path = join(trialDirectory(t), "file")
  writeFileSync(path, "text")
  for (const refused of [path, join(path, "below")]) {
    const error = await refusal(refused)
    assert.ok(["invalid", "storage"].includes(error.kind), error.kind)
    assert.match(error.message, /file"?.*director/)
    assert.ok(error.message.includes(path), error.message)
  }
  assert.equal(readFileSync(path, "utf8"), "text")
})

test("a database file that is not ours is refused and left as it is", async (t) => {
  const model = trialDirectory(t)
  await makeStore(model)
  const name = databaseOf(model).slice(model.length + 1)
  const foreign = join(trialDirectory(t), "foreign")
  const database = new DatabaseSync(foreign)
  database.exec("CREATE TABLE theirs (value TEXT); INSERT INTO theirs VALUES ('kept')")
  database.close()
  const contents: Record<string, Uint8Array> = {
    garbage: Buffer.from("this is no database, though it is long enough to be one ".repeat(400)),
    short: Buffer.from("SQLite for"),
    foreign: readFileSync(foreign),
  }
  for (const [what, content] of Object.entries(contents)) {
    const directory = trialDirectory(t)
    writeFileSync(join(directory, name), content)
    const error = await refusal(directory)
    assert.ok(error instanceof CorruptionError, `${what}: ${error.kind}: ${error.message}`)
    assert.ok(error.message.includes(directory), `${what}: ${error.message}`)
    assert.deepEqual(readFileSync(join(directory, name)), Buffer.from(content), what)
  }
})

test("an empty database file is what a crash leaves of the first opening: the store is made", async (t) => {
  const model = trialDirectory(t)
  await makeStore(model)
  const directory = trialDirectory(t)
  writeFileSync(join(directory, databaseOf(model).slice(model.length + 1)), "")
  await makeStore(directory)
  const session = await openSession(directory)
  assert.equal((await readPartition(session, { stream: "trials", topic: "log" })).records.length, 3)
  await session.close()
})

test("a store of a newer format is refused with both versions, and not touched", async (t) => {
  const directory = trialDirectory(t)
  await makeStore(directory)
  const path = databaseOf(directory)
  const database = new DatabaseSync(path)
  const known = Number(database.prepare("PRAGMA user_version").get()?.user_version)
  assert.ok(known > 0, "the store has no format version")
  database.exec(`PRAGMA user_version = ${known + 41}; PRAGMA wal_checkpoint(TRUNCATE)`)
  database.close()
  const before = readFileSync(path)
  const error = await refusal(directory)
  assert.ok(error instanceof StorageError, error.kind)
  assert.match(error.message, new RegExp(`\\b${known + 41}\\b`))
  assert.match(error.message, new RegExp(`\\b${known}\\b`))
  assert.deepEqual(readFileSync(path), before)
})

test("without the rights to write the store is refused, and works again with them", async (t) => {
  if (!meets(t, "root")) return
  const parent = trialDirectory(t)
  chmodSync(parent, 0o755)
  const store = join(parent, "store")
  await makeStore(store)
  const closed = join(parent, "closed")
  mkdirSync(closed, { mode: 0o700 })
  const child = startChild(t, "opener")
  await child.ask("become", nobody)
  const cases: [string, ErrorKind][] = [
    [store, "permission"],
    [join(parent, "new"), "permission"],
    [closed, "permission"],
    [join(closed, "below"), "permission"],
  ]
  for (const [directory, kind] of cases) {
    await assert.rejects(child.ask("open", directory), (error: Error & { kind?: string }) => {
      assert.equal(error.kind, kind, `${directory}: ${error.message}`)
      assert.ok(error.message.includes(directory), error.message)
      return true
    })
  }
  const session = await openSession(store)
  assert.equal((await readPartition(session, { stream: "trials", topic: "log" })).records.length, 3)
  await session.close()
})
