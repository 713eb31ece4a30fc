import assert from "node:assert/strict"
import { fork } from "node:child_process"
import { once } from "node:events"
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { extname, join } from "node:path"
import { type TestContext, test } from "node:test"
import { fileURLToPath } from "node:url"
import { InvalidError, PermissionError } from "@millrace/contract"
import { connect } from "./connect.ts"
import { lockSpool } from "./spool-lock.ts"

function directory(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "millrace-lock-"))
  t.after(() => rmSync(path, { recursive: true, force: true }))
  return path
}

test("a second user of a spool is refused by name, and let in when the first has gone", (t) => {
  const path = join(directory(t), "spool")
  const first = lockSpool(path)
  assert.throws(
    () => lockSpool(path),
    (error: InvalidError) => {
      assert.ok(error instanceof InvalidError)
      assert.match(error.message, /in use by another producer of this process/)
      assert.ok(error.message.includes(path))
      assert.equal(error.context.pid, process.pid)
      return true
    },
  )
  first.release()
  first.release()
  lockSpool(path).release()
})

test("another process is named, and its lock goes with it when it is killed", async (t) => {
  const path = join(directory(t), "spool")
  const script = fileURLToPath(new URL(`./spool-lock.child${extname(fileURLToPath(import.meta.url))}`, import.meta.url))
  const child = fork(script, [path], { stdio: ["ignore", "ignore", "inherit", "ipc"] })
  await once(child, "message")
  assert.throws(() => lockSpool(path), new RegExp(`in use by process ${child.pid} on `))
  child.kill("SIGKILL")
  await once(child, "exit")
  lockSpool(path).release()
})

test("a directory that is a file, or may not be written to, is refused", (t) => {
  const path = directory(t)
  const file = join(path, "file")
  writeFileSync(file, "")
  assert.throws(() => lockSpool(file), InvalidError)
  const forbidden = join(path, "forbidden")
  mkdirSync(forbidden, { mode: 0o500 })
  asNobody(path, () => {
    assert.throws(() => lockSpool(join(forbidden, "spool")), PermissionError)
    assert.throws(
      () => lockSpool(forbidden),
      (error: PermissionError) => {
        assert.ok(error instanceof PermissionError, String(error))
        return error.message.includes(forbidden)
      },
    )
  })
})

/** Root may write everywhere, so for root somebody else tries. */
function asNobody(path: string, work: () => void): void {
  const isRoot = process.geteuid?.() === 0
  if (isRoot) {
    chmodSync(path, 0o755)
    process.seteuid?.(65_534)
  }
  try {
    work()
  } finally {
    if (isRoot) process.seteuid?.(0)
  }
}

test("a spool that is a log already is refused, and two producers do not share one", async (t) => {
  const path = directory(t)
  const client = await connect(`file:${join(path, "log")}`, { stream: "s" })
  try {
    const topic = client.topic("t")
    await topic.ensure()
    const same = topic.producer({ background: { spool: join(path, "log") } })
    await assert.rejects(same.init(), /holds a log \(with a stream "s"\) that is no spool/)
    await same.shutdown()
    const first = topic.producer({ background: { spool: join(path, "spool") } })
    await first.init()
    const second = topic.producer({ background: { spool: join(path, "spool") } })
    await assert.rejects(second.send(new Uint8Array(1)), /one producer at a time/)
    await second.shutdown()
    await first.send(new TextEncoder().encode("a"))
    await first.shutdown()
    const third = topic.producer({ background: { spool: join(path, "spool") } })
    await third.send(new TextEncoder().encode("b"))
    await third.shutdown()
    assert.equal((await topic.watermarks())[0]?.end, 2n)
  } finally {
    await client.close()
  }
})
