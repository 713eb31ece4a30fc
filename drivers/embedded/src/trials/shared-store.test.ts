import assert from "node:assert/strict"
import { symlinkSync } from "node:fs"
import { join } from "node:path"
import test from "node:test"
import { Worker } from "node:worker_threads"
import { checkSound, Ledger } from "./ledger.ts"
import { startChild } from "./trial-child.ts"
import { trialDirectory } from "./trial-directory.ts"
import { atEnd } from "./trial-end.ts"
import { appendTrialBatch, ensureTopic, openSession, readPartition, trialTopic, verify } from "./trial-log.ts"

/** One user of a store, wherever it runs. */
interface User {
  append(first: number): Promise<bigint>
  read(): Promise<number>
  close(): Promise<void>
}

const batch = { count: 7, bytes: 64 }

async function userHere(directory: string, writer: number): Promise<User> {
  const session = await openSession(directory)
  const topic = await ensureTopic(session)
  return {
    append: (first) => appendTrialBatch(session, topic, { writer, first, ...batch }),
    read: async () => checkSound(await readPartition(session, trialTopic)).length,
    close: () => session.close(),
  }
}

type Ask = (command: string, ...values: readonly unknown[]) => Promise<unknown>

async function userElsewhere(ask: Ask, directory: string, writer: number): Promise<User> {
  await ask("open", directory)
  await ask("ensure")
  return {
    append: (first) => ask("append", { writer, first, ...batch }) as Promise<bigint>,
    read: async () => ((await ask("read")) as unknown[]).length,
    close: () => ask("close") as Promise<void>,
  }
}

/** The opener's commands in a thread of this process instead of a process. */
function threadAsk(t: test.TestContext): Ask {
  const extension = import.meta.url.endsWith(".ts") ? "ts" : "js"
  const worker = new Worker(new URL(`./opener.child.${extension}`, import.meta.url))
  atEnd(t, async () => {
    await worker.terminate()
  })
  let asked = 0
  return (command, ...values) =>
    new Promise((resolve, reject) => {
      const id = ++asked
      worker.once("error", reject)
      const answer = (message: { id: number; value: unknown; failure?: { message: string } }): void => {
        if (message.id !== id) return
        worker.off("message", answer)
        worker.off("error", reject)
        if (message.failure === undefined) resolve(message.value)
        else reject(new Error(message.failure.message))
      }
      worker.on("message", answer)
      worker.postMessage({ id, command, values })
    })
}

const arrangements: Record<string, (t: test.TestContext, directory: string) => Promise<User>> = {
  "in one process": (_, directory) => userHere(directory, 2),
  "in two threads": (t, directory) => userElsewhere(threadAsk(t), directory, 2),
  "in two processes": (t, directory) => userElsewhere(startChild(t, "opener").ask, directory, 2),
  "through a symbolic link": (t, directory) => {
    const link = join(trialDirectory(t), "link")
    symlinkSync(directory, link)
    return userHere(link, 2)
  },
  "through a symbolic link in two processes": (t, directory) => {
    const link = join(trialDirectory(t), "link")
    symlinkSync(directory, link)
    return userElsewhere(startChild(t, "opener").ask, link, 2)
  },
}

/** Rounds in which both users write at once. */
const rounds = 8

for (const [where, second] of Object.entries(arrangements)) {
  test(`two opens ${where} work together, and closing one does not disturb the other`, async (t) => {
    const directory = trialDirectory(t)
    const ledger = new Ledger()
    const one = await userHere(directory, 1)
    const two = await second(t, directory)
    const write = async (user: User, writer: number, round: number): Promise<void> => {
      const first = round * batch.count
      ledger.confirm({ writer, base: await user.append(first), first, count: batch.count })
    }
    for (let round = 0; round < rounds; round += 1) {
      await Promise.all([write(one, 1, round), write(two, 2, round)])
      // What one was told is there is there for the other.
      assert.deepEqual(await Promise.all([one.read(), two.read()]), [ledger.records, ledger.records])
    }
    await two.close()
    for (let round = rounds; round < 2 * rounds; round += 1) await write(one, 1, round)
    assert.equal(await one.read(), ledger.records)
    // The lock of the one that stayed still holds: a third open works beside it.
    const three = await userHere(directory, 3)
    await Promise.all([write(one, 1, 2 * rounds), write(three, 3, 0)])
    await one.close()
    await write(three, 3, 1)
    await three.close()
    const session = await openSession(directory)
    ledger.check(await readPartition(session, trialTopic))
    await session.close()
    const report = await verify(directory)
    assert.deepEqual([report.ok, report.problems, Number(report.records)], [true, [], ledger.records])
  })
}
