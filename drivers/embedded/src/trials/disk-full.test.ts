import assert from "node:assert/strict"
import { rmSync } from "node:fs"
import { join } from "node:path"
import test from "node:test"
import { DiskFullError, MillraceError } from "@millrace/contract"
import { Ledger } from "./ledger.ts"
import { meets } from "./needs.ts"
import { fill, smallDisk } from "./small-disk.ts"
import type { LogSession } from "./thread-session.ts"
import { startChild } from "./trial-child.ts"
import { trialDirectory } from "./trial-directory.ts"
import { appendTrialBatch, ensureTopic, openSession, readPartition, trialTopic, verify } from "./trial-log.ts"

const batch = { writer: 1, count: 8, bytes: 8_000 }

/** More than the disk holds. */
const mostBatches = 1_000

/** Appends until the disk is full, and answers the failure and the first record that is not there. */
async function appendUntilFull(session: LogSession, ledger: Ledger, from: number): Promise<[MillraceError, number]> {
  const topic = await ensureTopic(session)
  let first = from
  for (let batches = 0; batches < mostBatches; batches += 1) {
    try {
      ledger.confirm({ ...batch, first, base: await appendTrialBatch(session, topic, { ...batch, first }) })
    } catch (error) {
      assert.ok(error instanceof MillraceError, String(error))
      return [error, first]
    }
    first += batch.count
  }
  throw new Error("the disk did not fill up")
}

test("a full disk refuses appends, keeps what was confirmed, and works again once there is room", async (t) => {
  if (!meets(t, "tmpfs")) return
  const disk = smallDisk(t)
  const free = fill(disk, 10 << 20)
  const store = join(disk, "store")
  const ledger = new Ledger()
  const session = await openSession(store)
  let [error, next] = await appendUntilFull(session, ledger, 0)
  assert.ok(error instanceof DiskFullError, `${error.kind}: ${error.message}`)
  assert.deepEqual([error.retryable, error.outcome], [true, "rejected"])
  assert.ok(error.message.includes(store), error.message)
  assert.ok(ledger.batches > 10, `only ${ledger.batches} batches went to a disk of 10 MiB`)

  // It stays so, for each of many that come at once, and reads go on.
  const topic = await ensureTopic(session)
  const storm = Array.from({ length: 20 }, (_, i) =>
    appendTrialBatch(session, topic, { ...batch, first: next + i * 8 }),
  )
  for (const outcome of await Promise.allSettled(storm)) {
    assert.ok(outcome.status === "rejected" && outcome.reason instanceof DiskFullError)
  }
  ledger.check(await readPartition(session, trialTopic))

  free()
  const confirmed = ledger.batches
  ;[error, next] = await appendUntilFull(session, ledger, next)
  assert.ok(ledger.batches > confirmed, "an append failed though there was room again")
  assert.ok(error instanceof DiskFullError, `${error.kind}: ${error.message}`)
  ledger.check(await readPartition(session, trialTopic))
  await session.close()

  const report = await verify(store)
  assert.deepEqual([report.ok, report.problems, Number(report.records)], [true, [], ledger.records])
  const again = await openSession(store)
  ledger.check(await readPartition(again, trialTopic))
  await again.close()
})

test("a store cannot be made on a full disk, and can once there is room", async (t) => {
  if (!meets(t, "tmpfs")) return
  const disk = smallDisk(t)
  const store = join(disk, "store")
  for (const leave of [0, 4_096, 16_384, 40_960, 81_920]) {
    const free = fill(disk, leave)
    await assert.rejects(
      async () => {
        const session = await openSession(store)
        try {
          await appendUntilFull(session, new Ledger(), 0).then(([error]) => Promise.reject(error))
        } finally {
          await session.close()
        }
      },
      (error) => {
        assert.ok(error instanceof DiskFullError, `with ${leave} bytes free: ${String(error)}`)
        return true
      },
    )
    free()
    rmSync(store, { recursive: true, force: true })
  }
  const free = fill(disk)
  await assert.rejects(openSession(store), DiskFullError)
  free()
  const session = await openSession(store)
  const topic = await ensureTopic(session)
  assert.equal(await appendTrialBatch(session, topic, { ...batch, first: 0 }), 0n)
  await session.close()
})

test("a limit on the size of files is a typed error, and nothing confirmed is lost", async (t) => {
  if (process.platform === "win32") return t.skip("limits on the size of files are a matter of POSIX")
  const directory = trialDirectory(t)
  const limited = startChild(t, "opener", { under: ["bash", "-c", 'ulimit -f 2048; exec "$@"', "bash"] })
  await limited.ask("open", directory)
  await limited.ask("ensure")
  const ledger = new Ledger()
  let failure: (Error & { kind?: string }) | undefined
  for (let first = 0; failure === undefined && first < mostBatches * 8; first += batch.count) {
    try {
      ledger.confirm({ ...batch, first, base: await limited.ask<bigint>("append", { ...batch, first }) })
    } catch (error) {
      failure = error as Error & { kind?: string }
    }
  }
  assert.ok(["storage", "disk-full"].includes(failure?.kind ?? ""), String(failure))
  assert.equal(((await limited.ask("read")) as unknown[]).length, ledger.records)
  await limited.ask("close")
  const session = await openSession(directory)
  ledger.check(await readPartition(session, trialTopic))
  assert.equal(
    await appendTrialBatch(session, await ensureTopic(session), { ...batch, writer: 2, first: 0 }),
    BigInt(ledger.records),
  )
  await session.close()
})
