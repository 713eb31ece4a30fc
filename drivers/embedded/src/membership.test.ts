import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { type AssignmentChange, type Claim, DiskFullError, MillraceError, type OffsetOwner } from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { GroupFixture, orders } from "./engine/group-fixture.test-support.ts"
import { FixtureChannel } from "./engine/group-fixture-channel.test-support.ts"
import { EmbeddedGroups } from "./group-coordinator.ts"
import { EmbeddedOffsets } from "./offset-store.ts"

const workers: OffsetOwner = { kind: "group", name: "workers" }
const timeouts = { sessionTimeoutMs: 10_000, rebalanceTimeoutMs: 3000 }

/** A store with one topic and one group, and sessions of made-up processes over it. */
class Shop {
  readonly fixture = new GroupFixture()
  readonly clock = new VirtualClock()
  readonly #channels: FixtureChannel[] = []

  constructor(partitions = 4) {
    this.fixture.makeTopic(orders, partitions)
    this.fixture.call("groups.create", { group: "workers", topic: orders })
  }

  session(
    pid: number,
    clock = this.clock,
  ): { channel: FixtureChannel; groups: EmbeddedGroups; offsets: EmbeddedOffsets } {
    const channel = new FixtureChannel(this.fixture, pid)
    this.#channels.push(channel)
    const groups = new EmbeddedGroups({ channel, clock, random: seededRandom(pid) })
    return { channel, groups, offsets: new EmbeddedOffsets(channel) }
  }

  /** Lets everything happen that happens by itself, the wake-ups too; no time passes. */
  async settle(): Promise<void> {
    for (let round = 0; round < 10; round++) {
      await this.clock.advance(0)
      for (const channel of this.#channels) channel.wake()
    }
  }

  async pass(ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= 250) {
      await this.clock.advance(Math.min(left, 250))
      await this.settle()
    }
  }
}

/** Collects what a membership tells, and answers it as a good consumer would, unless told otherwise. */
class Listener {
  readonly told: string[] = []
  readonly held = new Map<number, Claim>()
  end: string | undefined
  readonly done: Promise<void>

  constructor(
    membership: { changes: AsyncIterable<AssignmentChange>; release(claims: readonly Claim[]): Promise<void> },
    options: { releases?: boolean } = {},
  ) {
    this.done = (async () => {
      try {
        for await (const change of membership.changes) {
          this.told.push(textOf(change))
          for (const claim of [...change.lost, ...change.revoked]) this.held.delete(claim.partition)
          for (const claim of change.assigned) this.held.set(claim.partition, claim)
          if (change.revoked.length > 0 && options.releases !== false) await membership.release(change.revoked)
        }
        this.end = "done"
      } catch (error) {
        this.end = error instanceof MillraceError ? error.kind : String(error)
      }
    })()
  }

  get partitions(): number[] {
    return [...this.held.keys()].sort((a, b) => a - b)
  }
}

function textOf({ assigned, revoked, lost }: AssignmentChange): string {
  const part = (sign: string, claims: readonly Claim[]): string[] =>
    claims.map(({ partition }) => `${sign}${partition}`)
  return [...part("+", assigned), ...part("-", revoked), ...part("!", lost)].join(" ")
}

async function kindOf(work: Promise<unknown>): Promise<string | undefined> {
  try {
    await work
    return undefined
  } catch (error) {
    return error instanceof MillraceError ? error.kind : String(error)
  }
}

describe("a membership", () => {
  it("tells the first assignment, also when it is empty", async () => {
    const shop = new Shop(1)
    const a = new Listener(await shop.session(1).groups.join("workers", [orders], timeouts))
    const b = new Listener(await shop.session(2).groups.join("workers", [orders], timeouts))
    await shop.settle()
    assert.deepEqual(a.told, ["+0"])
    assert.deepEqual(b.told, [""])
  })

  it("is refused when the group or a topic does not exist", async () => {
    const { groups } = new Shop().session(1)
    assert.equal(await kindOf(groups.join("nobody", [orders], timeouts)), "not-found")
    assert.equal(await kindOf(groups.join("workers", [{ stream: "no", topic: "no" }], timeouts)), "not-found")
  })

  it("hands over what moves, and only that, as soon as it is released", async () => {
    const shop = new Shop()
    const a = new Listener(await shop.session(1).groups.join("workers", [orders], timeouts))
    await shop.settle()
    const kept = [a.held.get(0)?.token, a.held.get(1)?.token]
    const b = new Listener(await shop.session(2).groups.join("workers", [orders], timeouts))
    await shop.settle()
    assert.deepEqual(a.told, ["+0 +1 +2 +3", "-2 -3"])
    assert.deepEqual(b.told, ["", "+2 +3"])
    assert.deepEqual([a.held.get(0)?.token, a.held.get(1)?.token], kept)
  })

  it("is heard of by its heartbeats: one a second, and nothing else when nothing changes", async () => {
    const shop = new Shop()
    const { channel, groups } = shop.session(1)
    new Listener(await groups.join("workers", [orders], timeouts))
    await shop.settle()
    channel.asked.clear()
    await shop.pass(60_000)
    assert.equal(channel.asked.get("groups.beat"), 60)
    assert.equal(channel.asked.get("groups.observe"), undefined)
    assert.equal(channel.asked.get("groups.watch"), undefined)
  })

  it("takes over within a heartbeat when another's process is gone", async () => {
    const shop = new Shop()
    const dead = shop.session(1)
    new Listener(await dead.groups.join("workers", [orders], timeouts))
    const b = new Listener(await shop.session(2).groups.join("workers", [orders], timeouts))
    await shop.settle()
    dead.channel.close()
    shop.fixture.processes.end(1)
    await shop.pass(1000)
    assert.deepEqual(b.partitions, [0, 1, 2, 3])
  })

  it("takes over from one that is silent after its session timeout, not before; that one learns of it and comes back", async () => {
    const shop = new Shop(2)
    const asleep = new VirtualClock()
    const sleeper = shop.session(1, asleep)
    const a = new Listener(await sleeper.groups.join("workers", [orders], timeouts))
    await shop.settle()
    const b = new Listener(await shop.session(2).groups.join("workers", [orders], timeouts))
    await shop.settle()
    assert.deepEqual([a.partitions, b.partitions], [[0], [1]])
    const old = a.held.get(0) as Claim
    sleeper.channel.asleep = true
    await shop.pass(9750)
    assert.deepEqual(b.partitions, [1])
    await shop.pass(1250)
    assert.deepEqual(b.partitions, [0, 1])
    const entry = { ...orders, partition: 0, offset: 5n, lineage: "1.0", claim: old }
    const [refusal] = await sleeper.offsets.store(workers, [entry])
    assert.equal(refusal?.kind, "not-assigned", "the commit of one that was taken for dead")
    sleeper.channel.asleep = false
    await asleep.advance(1000)
    await shop.settle()
    assert.deepEqual(a.told.slice(1, 3), ["-1", "!0"])
    assert.equal(a.partitions.length, 1, "it is a member again")
    assert.notEqual([...a.held.values()][0]?.token, old.token)
    assert.equal([...a.partitions, ...b.partitions].length, 2)
  })

  it("loses what it does not release in time, and its commits are refused", async () => {
    const shop = new Shop(2)
    const slow = shop.session(1)
    const a = new Listener(await slow.groups.join("workers", [orders], timeouts), { releases: false })
    await shop.settle()
    const claim = a.held.get(1) as Claim
    const b = new Listener(await shop.session(2).groups.join("workers", [orders], timeouts))
    await shop.settle()
    assert.deepEqual(a.told.at(-1), "-1")
    const entry = { ...orders, partition: 1, offset: 5n, lineage: "1.0", claim }
    assert.deepEqual(await slow.offsets.store(workers, [entry]), [undefined], "while it drains, it may commit")
    await shop.pass(3000)
    assert.deepEqual(b.partitions, [])
    await shop.pass(2000)
    assert.deepEqual(b.partitions, [1])
    assert.deepEqual(a.told.at(-1), "!1")
    assert.equal((await slow.offsets.store(workers, [entry]))[0]?.kind, "not-assigned")
    assert.deepEqual(a.partitions, [0], "the rest is untouched")
  })

  it("ends with FencedError when another takes its stable id, and the other has its partitions", async () => {
    const shop = new Shop()
    const options = { ...timeouts, memberId: "desk-1" }
    const a = new Listener(await shop.session(1).groups.join("workers", [orders], options))
    await shop.settle()
    const b = new Listener(await shop.session(2).groups.join("workers", [orders], options))
    await shop.settle()
    assert.deepEqual(a.told, ["+0 +1 +2 +3", "!0 !1 !2 !3"])
    assert.equal(a.end, "fenced")
    assert.deepEqual(b.told, ["+0 +1 +2 +3"])
  })

  it("frees its partitions at once when it leaves, and its changes end", async () => {
    const shop = new Shop()
    const membership = await shop.session(1).groups.join("workers", [orders], timeouts)
    const a = new Listener(membership)
    const b = new Listener(await shop.session(2).groups.join("workers", [orders], timeouts))
    await shop.settle()
    await Promise.all([membership.leave(), membership.leave()])
    await shop.settle()
    assert.equal(a.end, "done")
    assert.deepEqual(b.partitions, [0, 1, 2, 3])
    await membership.release([...b.held.values()])
    assert.deepEqual(b.partitions, [0, 1, 2, 3], "a release after leaving changes nothing")
  })

  it("ends with NotFoundError when the group is deleted", async () => {
    const shop = new Shop()
    const session = shop.session(1)
    const a = new Listener(await session.groups.join("workers", [orders], timeouts))
    await shop.settle()
    await session.groups.delete("workers", orders)
    await shop.settle()
    assert.deepEqual(a.told.at(-1), "!0 !1 !2 !3")
    assert.equal(a.end, "not-found")
  })

  it("outlives its topic, and finds it again when it is made anew", async () => {
    const shop = new Shop(2)
    const a = new Listener(await shop.session(1).groups.join("workers", [orders], timeouts))
    await shop.settle()
    shop.fixture.deleteTopic(orders)
    await shop.settle()
    assert.deepEqual(a.told, ["+0 +1", "!0 !1"])
    shop.fixture.makeTopic(orders, 2)
    await shop.pass(1000)
    assert.deepEqual(a.told.slice(2), ["+0 +1"])
  })

  it("gets partitions that are added", async () => {
    const shop = new Shop(1)
    const a = new Listener(await shop.session(1).groups.join("workers", [orders], timeouts))
    await shop.settle()
    shop.fixture.addPartitions(orders, 2)
    await shop.pass(1000)
    assert.deepEqual(a.told, ["+0", "+1 +2"])
  })

  it("goes on through a full disk, and reports a release that failed", async () => {
    const shop = new Shop(2)
    const { channel, groups } = shop.session(1)
    const membership = await groups.join("workers", [orders], timeouts)
    const a = new Listener(membership)
    await shop.settle()
    for (const name of ["groups.beat", "groups.release"]) channel.failures.set(name, new DiskFullError("full"))
    await shop.pass(5000)
    assert.equal(await kindOf(membership.release([a.held.get(1) as Claim])), "disk-full")
    channel.failures.clear()
    await shop.pass(2000)
    assert.equal(a.end, undefined)
    assert.equal(shop.fixture.rows("group_member"), 1)
  })

  it("ends with the channel's error when that is closed under it, and leaves no timer", async () => {
    const shop = new Shop()
    const { channel, groups } = shop.session(1)
    const a = new Listener(await groups.join("workers", [orders], timeouts))
    await shop.settle()
    channel.close()
    await shop.pass(1000)
    assert.equal(a.end, "closed")
    assert.equal(channel.waits, 0)
    assert.equal(shop.clock.timers, 0)
  })
})

describe("the groups of a session", () => {
  it("are left when it closes: others take over, nothing is left behind", async () => {
    const shop = new Shop()
    const { channel, groups } = shop.session(1)
    const a = new Listener(await groups.join("workers", [orders], timeouts))
    const b = new Listener(await shop.session(2).groups.join("workers", [orders], timeouts))
    await shop.settle()
    await groups.close()
    await shop.settle()
    assert.equal(a.end, "done")
    assert.deepEqual(b.partitions, [0, 1, 2, 3])
    assert.equal(channel.waits, 0)
    assert.equal(shop.clock.timers, 1, "only the other's heartbeat")
    assert.equal(await kindOf(groups.join("workers", [orders], timeouts)), "closed")
  })

  it("are left too when the close comes while one is joining", async () => {
    const shop = new Shop()
    const { groups } = shop.session(1)
    const joining = kindOf(groups.join("workers", [orders], timeouts))
    await groups.close()
    assert.equal(shop.fixture.rows("group_member"), 0)
    assert.equal(await joining, "closed")
    assert.equal(shop.clock.timers, 0)
  })

  it("are made, described and deleted; errors keep their class across the thread", async () => {
    const shop = new Shop(2)
    const { groups } = shop.session(1)
    assert.equal(await kindOf(groups.create("workers", orders)), "already-exists")
    await groups.create("others", orders)
    await groups.join("others", [orders], { ...timeouts, memberId: "m" })
    assert.deepEqual(await groups.describe("others", orders), {
      group: "others",
      generation: 2,
      members: [
        {
          memberId: "m",
          partitions: [
            { ...orders, partition: 0 },
            { ...orders, partition: 1 },
          ],
        },
      ],
    })
    await groups.delete("others", orders)
    assert.equal(await kindOf(groups.describe("others", orders)), "not-found")
  })
})
