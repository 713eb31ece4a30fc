/** A transaction on a disk that is full: refused as a whole, and of no weight once it is aborted. */
import assert from "node:assert/strict"
import { join } from "node:path"
import test from "node:test"
import { setTimeout as sleep } from "node:timers/promises"
import { DiskFullError, type Session, type TopicDescription, type TransactionHandle } from "@millrace/contract"
import { meets } from "./needs.ts"
import { smallDisk } from "./small-disk.ts"
import { ensureTopic, openSession, readPartition, sealTrialBatch, trialTopic, verify } from "./trial-log.ts"

/** More than the disk holds. */
const mostBatches = 10_000
const mostTries = 200

async function stage(
  session: Session,
  topic: TopicDescription,
  {
    transaction,
    first,
    bytes,
  }: { readonly transaction: TransactionHandle; readonly first: number; readonly bytes: number },
): Promise<void> {
  const batch = sealTrialBatch(session, topic, { writer: 1, first, count: 1, bytes })
  try {
    await session.log.append(batch, { transaction })
  } finally {
    batch.release()
  }
}

/** Asks again while the disk is full: an idle engine makes room every second. */
async function patiently(work: () => Promise<unknown>): Promise<void> {
  for (let tries = 0; ; tries += 1) {
    try {
      await work()
      return
    } catch (error) {
      if (!(error instanceof DiskFullError) || error.outcome !== "rejected" || tries === mostTries) throw error
      await sleep(50)
    }
  }
}

for (const bytes of [8_000, 200_000]) {
  test(`batches of ${bytes} bytes: what cannot be staged is refused, and its transaction gives the room back`, async (t) => {
    if (!meets(t, "tmpfs")) return
    const directory = join(smallDisk(t), "store")
    const session = await openSession(directory)
    const topic = await ensureTopic(session)
    const transactions = await session.transactions.init("id", { timeoutMs: 60_000, keepPrepared: false })
    let transaction = await transactions.begin()
    let staged = 0
    await assert.rejects(
      async () => {
        for (; staged < mostBatches; staged += 1) await stage(session, topic, { transaction, first: staged, bytes })
      },
      (error) => error instanceof DiskFullError && error.outcome === "rejected",
    )
    assert.ok(staged > 10)
    // Aborting writes, too: it may need room that only it can make.
    await patiently(() => transactions.abort(transaction))
    transaction = await transactions.begin()
    // The room comes back in small steps.
    await patiently(() => stage(session, topic, { transaction, first: 0, bytes }))
    await patiently(() => transactions.commit(transaction))
    const { records, error } = await readPartition(session, trialTopic)
    assert.deepEqual([records.length, error], [1, undefined])
    await session.close()
    assert.deepEqual((await verify(directory)).problems, [])
  })
}
