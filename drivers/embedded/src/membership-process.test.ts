import assert from "node:assert/strict"
import { type ChildProcess, fork } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, it, type TestContext } from "node:test"
import type { AssignmentChange, Claim, Membership, Session } from "@millrace/contract"
import { embeddedDriver } from "./driver.ts"
import type { ChildNews, ChildRequest, ChildStart } from "./membership-process.child.ts"

const orders = { stream: "shop", topic: "orders" }
const workers = { kind: "group", name: "workers" } as const
const partitions = 4

/** Longer than this nothing here takes unless it is stuck. */
const patienceMs = 20_000

/** A store in a directory of its own, with the topic and the group of these tests, and a first session. */
async function openShop(
  t: TestContext,
): Promise<{ directory: string; session: Session; open: () => Promise<Session> }> {
  const directory = mkdtempSync(join(tmpdir(), "millrace-groups-"))
  const sessions: Session[] = []
  t.after(async () => {
    await Promise.all(sessions.map((session) => session.close()))
    rmSync(directory, { recursive: true, force: true })
  })
  const open = async (): Promise<Session> => {
    const target = { scheme: "file", hosts: [], path: directory, options: {} }
    const session = await embeddedDriver.connect(target, { timeoutMs: patienceMs })
    sessions.push(session)
    return session
  }
  const session = await open()
  await session.catalog.createStream("shop")
  await session.catalog.createTopic(orders, {
    partitions,
    durability: "written",
    offsetDurability: "written",
    deduplicationWindowMs: 0,
    deduplicateIds: false,
  })
  await session.groups.create("workers", orders)
  return { directory, session, open }
}

/** What a member has and was told, and a wait for it to come to something. */
abstract class Watched {
  readonly told: string[] = []
  readonly held = new Set<number>()
  end: string | undefined
  #check: () => void = () => {}

  /** Resolves when the condition holds, which is looked at after each change. */
  until(what: string, condition: () => boolean): Promise<void> {
    if (condition()) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const patience = setTimeout(
        () => reject(new Error(`${what} did not come: holds ${[...this.held]}, was told ${this.told.join("; ")}`)),
        patienceMs,
      )
      this.#check = () => {
        if (!condition()) return
        clearTimeout(patience)
        this.#check = () => {}
        resolve()
      }
    })
  }

  holds(count: number): Promise<void> {
    return this.until(`a share of ${count}`, () => this.held.size === count)
  }

  protected take(change: { assigned: number[]; revoked: number[]; lost: number[] }): void {
    const { assigned, revoked, lost } = change
    this.told.push(
      [...assigned.map((p) => `+${p}`), ...revoked.map((p) => `-${p}`), ...lost.map((p) => `!${p}`)].join(" "),
    )
    for (const partition of [...revoked, ...lost]) this.held.delete(partition)
    for (const partition of assigned) this.held.add(partition)
    this.stirred()
  }

  protected stirred(): void {
    this.#check()
  }
}

class Member extends Watched {
  readonly claims = new Map<number, Claim>()
  readonly membership: Membership

  constructor(membership: Membership) {
    super()
    this.membership = membership
    void this.#listen()
  }

  static async join(session: Session, options: { memberId?: string; sessionTimeoutMs?: number } = {}): Promise<Member> {
    const defaults = { sessionTimeoutMs: 10_000, rebalanceTimeoutMs: 10_000 }
    return new Member(await session.groups.join("workers", [orders], { ...defaults, ...options }))
  }

  async #listen(): Promise<void> {
    for await (const change of this.membership.changes) {
      await this.membership.release(change.revoked)
      for (const claim of change.assigned) this.claims.set(claim.partition, claim)
      this.take(numbersOf(change))
    }
    this.end = "done"
    this.stirred()
  }
}

function numbersOf({ assigned, revoked, lost }: AssignmentChange): {
  assigned: number[]
  revoked: number[]
  lost: number[]
} {
  const numbers = (claims: readonly Claim[]): number[] => claims.map(({ partition }) => partition)
  return { assigned: numbers(assigned), revoked: numbers(revoked), lost: numbers(lost) }
}

class Child extends Watched {
  readonly process: ChildProcess
  committed: Record<string, string> | undefined
  blocked = false

  constructor(t: TestContext, start: ChildStart) {
    super()
    const extension = import.meta.url.endsWith(".ts") ? "ts" : "js"
    const script = new URL(`./membership-process.child.${extension}`, import.meta.url)
    this.process = fork(script, [JSON.stringify(start)], {
      execArgv: process.execArgv.filter((argument) => !argument.startsWith("--test")),
    })
    this.process.on("message", (news: ChildNews) => this.#hear(news))
    t.after(async () => {
      if (this.process.exitCode !== null || this.process.signalCode !== null) return
      this.process.kill("SIGKILL")
      await new Promise((resolve) => this.process.once("exit", resolve))
    })
  }

  ask(request: ChildRequest): void {
    this.process.send(request)
  }

  /** What becomes of a commit with each claim that the child ever had, by `<index>:<partition>`. */
  async commit(): Promise<Record<string, string>> {
    this.committed = undefined
    this.ask({ type: "commit" })
    await this.until("the outcome of the commit", () => this.committed !== undefined)
    return this.committed ?? {}
  }

  #hear(news: ChildNews): void {
    if (news.type === "change") this.take(news)
    else if (news.type === "ended") this.end = news.kind
    else if (news.type === "committed") this.committed = news.outcomes
    else this.blocked = true
    this.stirred()
  }
}

describe("groups over the embedded log", () => {
  it("share partitions between two sessions of one process, and only what moves is touched", async (t) => {
    const { session, open } = await openShop(t)
    const a = await Member.join(session)
    await a.holds(4)
    const before = new Map(a.claims)
    const other = await open()
    const started = performance.now()
    const b = await Member.join(other)
    await b.holds(2)
    t.diagnostic(`hand-over between sessions of one process: ${(performance.now() - started).toFixed(1)} ms`)
    assert.deepEqual(a.told, ["+0 +1 +2 +3", "-2 -3"])
    const { lineage } = await session.catalog.describeTopic(orders)
    const commit = (claim: Claim | undefined): Promise<unknown[]> =>
      session.offsets.store(workers, [
        { ...orders, partition: claim?.partition ?? 0, offset: 1n, lineage, ...(claim === undefined ? {} : { claim }) },
      ])
    assert.deepEqual(await commit(before.get(0)), [undefined], "what stays was never interrupted")
    assert.equal(((await commit(before.get(2)))[0] as { kind: string }).kind, "not-assigned")
    await b.membership.leave()
    await a.holds(4)
    assert.equal(b.end, "done")
  })

  it("pass on to others when a session closes", async (t) => {
    const { session, open } = await openShop(t)
    const a = await Member.join(session)
    const b = await Member.join(await open())
    await b.holds(2)
    await session.close()
    await b.holds(4)
    assert.equal(a.end, "done")
  })

  it("share partitions between processes, and take over within a heartbeat from one that is killed", async (t) => {
    const { directory, session } = await openShop(t)
    const child = new Child(t, { directory, sessionTimeoutMs: 60_000 })
    await child.holds(4)
    const started = performance.now()
    const member = await Member.join(session, { sessionTimeoutMs: 60_000 })
    await member.holds(2)
    t.diagnostic(`hand-over between processes: ${(performance.now() - started).toFixed(1)} ms`)
    const killed = performance.now()
    child.process.kill("SIGKILL")
    await member.holds(4)
    const takenOver = performance.now() - killed
    t.diagnostic(`take-over after SIGKILL: ${takenOver.toFixed(0)} ms`)
    assert.ok(takenOver < 5000, `take-over took ${takenOver} ms, far more than a heartbeat`)
  })

  it("take over from a stopped process after its session timeout; its commits are refused, and it comes back", async (t) => {
    const { directory, session } = await openShop(t)
    const child = new Child(t, { directory, sessionTimeoutMs: 3000 })
    await child.holds(4)
    const member = await Member.join(session, { sessionTimeoutMs: 3000 })
    await member.holds(2)
    await child.holds(2)
    assert.deepEqual(await child.commit(), {
      "0:0": "stored",
      "1:1": "stored",
      "2:2": "not-assigned",
      "3:3": "not-assigned",
    })
    const stopped = performance.now()
    child.process.kill("SIGSTOP")
    await member.holds(4)
    const takenOver = performance.now() - stopped
    t.diagnostic(`take-over from a stopped process with a session timeout of 3000 ms: ${takenOver.toFixed(0)} ms`)
    assert.ok(takenOver > 1500, `taken for dead after ${takenOver} ms, long before its session timeout`)
    child.process.kill("SIGCONT")
    await child.until(
      "the loss and a new share",
      () => child.told.some((text) => text.includes("!")) && child.held.size === 2,
    )
    const outcomes = Object.values(await child.commit())
    assert.deepEqual(outcomes.slice(0, 4), Array(4).fill("not-assigned"), "every claim from before the stop is void")
    assert.deepEqual(outcomes.slice(4), ["stored", "stored"])
  })

  it("leave a member alone whose event loop is blocked for less than its session timeout", async (t) => {
    const { directory, session } = await openShop(t)
    const child = new Child(t, { directory, sessionTimeoutMs: 6000 })
    await child.holds(4)
    const member = await Member.join(session, { sessionTimeoutMs: 6000 })
    await member.holds(2)
    await child.holds(2)
    child.ask({ type: "block", ms: 2000 })
    await child.until("the end of the block", () => child.blocked)
    assert.deepEqual(member.told, ["", "+2 +3"])
    assert.deepEqual(Object.values(await child.commit()).slice(0, 2), ["stored", "stored"])
  })

  it("let a process with a stable id take the place of another one, which ends with FencedError", async (t) => {
    const { directory, session } = await openShop(t)
    const first = new Child(t, { directory, memberId: "desk-1", sessionTimeoutMs: 10_000 })
    await first.holds(4)
    const member = await Member.join(session)
    await member.holds(2)
    const second = new Child(t, { directory, memberId: "desk-1", sessionTimeoutMs: 10_000 })
    await second.holds(2)
    await first.until("the end of the first", () => first.end !== undefined)
    assert.equal(first.end, "fenced")
    assert.deepEqual([...first.held], [])
    assert.deepEqual([...second.held], [0, 1])
    assert.deepEqual(member.told, ["", "+2 +3"], "nobody else is touched")
  })

  it("free the partitions of a process that leaves at once", async (t) => {
    const { directory, session } = await openShop(t)
    const child = new Child(t, { directory, sessionTimeoutMs: 60_000 })
    await child.holds(4)
    const member = await Member.join(session, { sessionTimeoutMs: 60_000 })
    await member.holds(2)
    const started = performance.now()
    child.ask({ type: "leave" })
    await member.holds(4)
    t.diagnostic(`take-over after a leave: ${(performance.now() - started).toFixed(1)} ms`)
    await child.until("its end", () => child.end === "done")
  })

  it("notice partitions that are added and a topic that is made anew", async (t) => {
    const { session } = await openShop(t)
    const member = await Member.join(session)
    await member.holds(4)
    await session.catalog.addPartitions(orders, 2)
    await member.holds(6)
    const spec = await session.catalog.describeTopic(orders)
    await session.catalog.deleteTopic(orders)
    await member.holds(0)
    await session.catalog.createTopic(orders, { ...spec, partitions: 2 })
    await member.holds(2)
    assert.deepEqual(
      (await session.groups.describe("workers", orders)).members.map((m) => m.partitions.length),
      [2],
    )
  })

  it("forget offsets with a purge, and refuse those of the history before", async (t) => {
    const { session } = await openShop(t)
    const member = await Member.join(session)
    await member.holds(4)
    const { lineage } = await session.catalog.describeTopic(orders)
    const claim = member.claims.get(0) as Claim
    const entry = { ...orders, partition: 0, offset: 7n, lineage, claim }
    assert.deepEqual(await session.offsets.store(workers, [entry]), [undefined])
    await session.catalog.purgeTopic(orders)
    assert.deepEqual(await session.offsets.load(workers, [{ ...orders, partition: 0 }]), [undefined])
    const [refusal] = await session.offsets.store(workers, [entry])
    assert.equal(refusal?.kind, "history-changed")
    const now = (await session.catalog.describeTopic(orders)).lineage
    assert.deepEqual(await session.offsets.store(workers, [{ ...entry, lineage: now, offset: 0n }]), [undefined])
  })
})
