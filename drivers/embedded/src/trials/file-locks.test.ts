import assert from "node:assert/strict"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import test from "node:test"
import { heldLocks, stopOutsideLocks } from "./file-locks.ts"
import { meets } from "./needs.ts"
import { isStopped, startChild } from "./trial-child.ts"
import { trialDirectory } from "./trial-directory.ts"

test("a write transaction and a read transaction show in the locks of their process, and nothing else does", (t) => {
  if (!meets(t, "locks")) return
  const directory = trialDirectory(t)
  const database = new DatabaseSync(join(directory, "any.db"))
  database.exec("PRAGMA journal_mode = WAL; CREATE TABLE things (value INTEGER)")
  assert.deepEqual(heldLocks(process.pid, directory), [])
  database.exec("BEGIN IMMEDIATE")
  assert.ok(heldLocks(process.pid, directory).includes(120))
  assert.deepEqual(heldLocks(process.ppid, directory), [])
  database.exec("COMMIT; BEGIN; SELECT * FROM things")
  const held = heldLocks(process.pid, directory)
  assert.ok(held.length === 1 && (held[0] as number) >= 123, String(held))
  database.exec("COMMIT")
  assert.deepEqual(heldLocks(process.pid, directory), [])
  database.close()
})

test("a stopped process is stopped in all of its threads until it may go on", async (t) => {
  if (!meets(t, "locks", "stop")) return
  const directory = trialDirectory(t)
  const database = new DatabaseSync(join(directory, "any.db"))
  database.exec("PRAGMA journal_mode = WAL")
  const child = startChild(t, "opener")
  await assert.rejects(child.ask("nothing"), /there is no command nothing, only become/)
  assert.equal(await stopOutsideLocks(child, directory), 0)
  assert.ok(isStopped(child.pid))
  const answer = child.ask("nothing")
  child.signal("SIGCONT")
  await assert.rejects(answer, /there is no command/)
  assert.ok(!isStopped(child.pid))
  database.close()
})
