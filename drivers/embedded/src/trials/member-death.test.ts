import assert from "node:assert/strict"
import test from "node:test"
import { setTimeout as sleep } from "node:timers/promises"
import { stopOutsideLocks } from "./file-locks.ts"
import type { MemberChange } from "./member.child.ts"
import { meets } from "./needs.ts"
import { startChild, type TrialChild } from "./trial-child.ts"
import { trialDirectory } from "./trial-directory.ts"
import { until } from "./until.ts"

const partitions = 4
const sessionTimeoutMs = 2_000

/** Above this a test machine is too slow to say anything about times. */
const slackMs = 3_000

interface Member {
  readonly child: TrialChild
  readonly owned: Set<number>
  readonly changes: readonly MemberChange[]
}

async function startMember(t: test.TestContext, directory: string): Promise<Member> {
  const owned = new Set<number>()
  const changes: MemberChange[] = []
  const child = startChild(t, "member", {
    onTell: (event) => {
      if (!("assigned" in (event as object))) throw new Error(`the membership ended: ${JSON.stringify(event)}`)
      const change = event as MemberChange
      changes.push(change)
      for (const partition of [...change.revoked, ...change.lost]) owned.delete(partition)
      for (const partition of change.assigned) owned.add(partition)
    },
  })
  await child.ask("open", directory, partitions)
  await child.ask("join", sessionTimeoutMs)
  return { child, owned, changes }
}

async function startPair(t: test.TestContext): Promise<{ directory: string; one: Member; two: Member }> {
  const directory = trialDirectory(t)
  const one = await startMember(t, directory)
  const two = await startMember(t, directory)
  await until(() => one.owned.size === 2 && two.owned.size === 2, "the partitions to be shared out")
  return { directory, one, two }
}

test("a member whose event loop is blocked for less than its session timeout stays a member; one that is killed is dead at once", async (t) => {
  const { one, two } = await startPair(t)
  const before = two.changes.length
  const kept = [...one.owned]
  await one.child.ask("blockLoop", sessionTimeoutMs * 0.6)
  await sleep(sessionTimeoutMs * 0.3)
  assert.equal(two.changes.length, before, "the other was given something")
  for (const partition of kept) assert.equal(await one.child.ask("commit", partition, 0n), undefined)

  one.child.signal("SIGKILL")
  await one.child.exited
  const killed = performance.now()
  await until(() => two.owned.size === partitions, "the other to take over")
  const tookMs = performance.now() - killed
  t.diagnostic(`taken over after ${tookMs.toFixed(0)} ms`)
  if (process.platform === "linux") assert.ok(tookMs < sessionTimeoutMs, `it took ${tookMs} ms`)
})

test("a stopped member is taken for dead after its session timeout, not before, and its late commits are refused", async (t) => {
  if (!meets(t, "locks", "stop")) return
  const { directory, one, two } = await startPair(t)
  const lost = [...one.owned]
  await stopOutsideLocks(one.child, directory)
  const stopped = performance.now()
  await until(() => two.owned.size === partitions, "the other to take over", sessionTimeoutMs + 2 * slackMs)
  const tookMs = performance.now() - stopped
  t.diagnostic(`taken over after ${tookMs.toFixed(0)} ms with a session timeout of ${sessionTimeoutMs} ms`)
  // The last heartbeat may have been one interval, a fifth of the timeout, before it was stopped.
  assert.ok(tookMs > sessionTimeoutMs * 0.75, `taken for dead after ${tookMs} ms already`)
  assert.ok(tookMs < sessionTimeoutMs + slackMs, `taken for dead only after ${tookMs} ms`)

  const late = lost.map((partition) => one.child.ask("commit", partition, 7n))
  one.child.signal("SIGCONT")
  assert.deepEqual(await Promise.all(late), ["not-assigned", "not-assigned"])
  await until(() => one.changes.some((change) => change.lost.length > 0), "the member to learn what it lost")
  await until(() => one.owned.size === 2 && two.owned.size === 2, "it to be a member again")
})
