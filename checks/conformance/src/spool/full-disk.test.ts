/** A spool on a disk that is really full: a small file system in memory, which only root may mount. */
import assert from "node:assert/strict"
import { spawnSync } from "node:child_process"
import { closeSync, mkdtempSync, openSync, rmdirSync, rmSync, statfsSync, writeSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type TestContext, test } from "node:test"
import { type Client, connect, DiskFullError, MillraceError } from "millrace"
import { numberOf, payloadOf } from "./spool-record.ts"

const topic = "records"

/** More than the disk holds. */
const mostSends = 400_000
const groupSize = 1_000

test("a spool on a full disk refuses sends, loses nothing, ends in time, and goes on when there is room", async (t) => {
  const disk = smallDisk(t)
  if (disk === undefined) return
  const log = mkdtempSync(join(tmpdir(), "millrace-log-"))
  const client = await connect(`file:${log}`, { stream: "spooled" })
  const spool = join(disk, "spool")
  const accepted: number[] = []
  try {
    const topicOf = client.topic(topic)
    const first = topicOf.producer({ background: { spool, failureMode: "failImmediately" } })
    await first.init()
    let free = fill(disk, 4 << 20)
    let next = await sendUntilFull(first, accepted, 0)
    // Whatever has become of the journal meanwhile: the end is in time, and says what stays.
    await first.shutdown({ timeoutMs: 500 }).catch((error) => {
      assert.ok(error instanceof MillraceError, String(error))
    })
    free()
    free = fill(disk, 0)
    const onFull = topicOf.producer({ background: { spool, failureMode: "failImmediately" } })
    await assert.rejects(onFull.send(payloadOf(next)), (error: MillraceError) => {
      assert.ok(error instanceof DiskFullError, `${error.kind}: ${error.message}`)
      return error.retryable && error.outcome === "rejected"
    })
    await onFull.shutdown({ timeoutMs: 500 }).catch((error) => {
      assert.ok(error instanceof MillraceError, String(error))
    })
    free()
    const last = topicOf.producer({ background: { spool, failureMode: "failImmediately" } })
    await last.send(payloadOf(next))
    accepted.push(next++)
    await last.flush()
    assert.deepEqual(last.spool?.depth(), { records: 0, bytes: 0, refused: 0, possiblyDoubled: 0 })
    await last.shutdown()
    assert.deepEqual(await readAll(client), accepted)
    t.diagnostic(`${accepted.length} accepted`)
  } finally {
    await client.close()
    rmSync(log, { recursive: true, force: true })
  }
})

/** Sends groups until one is refused, and answers the first number that was not accepted. */
async function sendUntilFull(
  producer: ReturnType<ReturnType<Client["topic"]>["producer"]>,
  accepted: number[],
  from: number,
): Promise<number> {
  for (let number = from; number < mostSends; number += groupSize) {
    const group = Array.from({ length: groupSize }, (_, i) => payloadOf(number + i))
    try {
      await producer.sendBatch(group)
    } catch (error) {
      assert.ok(error instanceof DiskFullError, String(error))
      assert.deepEqual([error.retryable, error.outcome], [true, "rejected"])
      return number
    }
    for (let i = 0; i < groupSize; i++) accepted.push(number + i)
  }
  throw new Error("the disk did not fill up")
}

async function readAll(client: Client): Promise<number[]> {
  const handle = client.topic(topic)
  const [marks] = await handle.watermarks()
  const found: number[] = []
  await using reader = handle.consumer(undefined, 0, { startAt: { kind: "first" } })
  for await (const { payload, position } of reader) {
    found.push(numberOf(payload))
    if (position.offset + 1n >= (marks?.end ?? 0n)) break
  }
  return found
}

/** A file system in memory of 16 MiB, unmounted after the test; or the test is skipped. */
function smallDisk(t: TestContext): string | undefined {
  if (process.platform !== "linux" || process.getuid?.() !== 0) {
    t.skip("needs tmpfs: only root may mount a small disk, on Linux")
    return undefined
  }
  const directory = mkdtempSync(join(tmpdir(), "millrace-disk-"))
  const mounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=16m", "tmpfs", directory])
  if (mounted.status !== 0) {
    rmdirSync(directory)
    t.skip(`needs tmpfs: mounting failed: ${mounted.stderr}`)
    return undefined
  }
  t.after(() => {
    const unmounted = spawnSync("umount", [directory])
    if (unmounted.status !== 0) spawnSync("umount", ["-l", directory])
    rmdirSync(directory)
  })
  return directory
}

/** Fills a disk to the last page but `leave` bytes; the answer frees it again. */
function fill(directory: string, leave: number): () => void {
  const path = join(directory, "filler")
  const file = openSync(path, "w")
  const { bavail, bsize } = statfsSync(directory)
  const chunk = new Uint8Array(4_096)
  try {
    for (let left = bavail * bsize - leave; left > 0; left -= chunk.length) writeSync(file, chunk)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error
  } finally {
    closeSync(file)
  }
  return () => rmSync(path)
}
