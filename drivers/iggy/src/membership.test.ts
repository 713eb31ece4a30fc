import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { AssignmentChange, Claim, Membership, MillraceError, Session, TopicDescription } from "@millrace/contract"
import { Bench, connectTo, nameOf } from "./session.test-support.ts"

const patience = { sessionTimeoutMs: 2_000, rebalanceTimeoutMs: 5_000 }

/** A member that keeps account of what it was told. */
class Follower {
  readonly membership: Membership
  readonly held: Map<number, Claim> = new Map()
  readonly revoked: Map<number, Claim> = new Map()
  readonly lost: number[] = []
  end: "no" | "left" | MillraceError = "no"

  static async join(session: Session, topic: TopicDescription): Promise<Follower> {
    return new Follower(await session.groups.join("g", [topic], patience))
  }

  constructor(membership: Membership) {
    this.membership = membership
    this.#follow().then(
      () => {
        this.end = "left"
      },
      (error: MillraceError) => {
        this.end = error
      },
    )
  }

  async holds(...partitions: number[]): Promise<void> {
    await until(`[${partitions}], not [${[...this.held.keys()]}]`, () =>
      [...this.held.keys()].toSorted().join() === partitions.join() ? true : undefined,
    )
  }

  async #follow(): Promise<void> {
    for await (const change of this.membership.changes) this.#take(change)
  }

  #take({ assigned, revoked, lost }: AssignmentChange): void {
    for (const { partition } of lost) {
      this.held.delete(partition)
      this.lost.push(partition)
    }
    for (const claim of revoked) this.revoked.set(claim.partition, claim)
    for (const claim of assigned) this.held.set(claim.partition, claim)
  }
}

describe("members", () => {
  test("a newcomer gets what the others have drained and released, and nothing before", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic("t", { partitions: 2 })
    await bench.append(topic, ["a", "b"], 1)
    await bench.session.groups.create("g", topic)
    const first = await Follower.join(bench.session, topic)
    await first.holds(0, 1)
    const second = await Follower.join(bench.session, topic)
    const claim = await until("a revocation", () => first.revoked.get(1))
    assert.equal(first.revoked.size, 1)
    assert.deepEqual([...second.held.keys()], [])
    const entry = { ...nameOf(topic), partition: 1, offset: 2n, lineage: topic.lineage, claim }
    assert.deepEqual(await bench.session.offsets.store({ kind: "group", name: "g" }, [entry]), [undefined])
    await first.membership.release([claim])
    await second.holds(1)
    const [late] = await bench.session.offsets.store({ kind: "group", name: "g" }, [{ ...entry, offset: 1n }])
    assert.equal((late as MillraceError).kind, "not-assigned")
    assert.equal(bench.iggy.topic("s", "t").partitions[1]?.offsets.get("group 0"), 1n)
    assert.deepEqual(first.lost, [])
    await first.membership.leave()
    await second.holds(0, 1)
    await second.membership.leave()
    assert.equal(second.end, "left")
  })

  test("a newcomer that goes away before it joined gives the others back what they released", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic("t", { partitions: 2 })
    await bench.session.groups.create("g", topic)
    const first = await Follower.join(bench.session, topic)
    await first.holds(0, 1)
    const shy = await Follower.join(bench.session, topic)
    const claim = await until("a revocation", () => first.revoked.get(1))
    await shy.membership.leave()
    first.held.delete(1)
    await first.membership.release([claim])
    await first.holds(0, 1)
    assert.notEqual(first.held.get(1)?.token, claim.token)
    await first.membership.leave()
  })

  test("one that the server took out loses all, and joins again", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await bench.session.groups.create("g", topic)
    const member = await Follower.join(bench.session, topic)
    await member.holds(0)
    const before = member.held.get(0)
    bench.iggy.expel("s", "t", "g")
    await until("the loss", () => (member.lost.length > 0 ? true : undefined))
    await member.holds(0)
    assert.notEqual(member.held.get(0)?.token, before?.token)
    await member.membership.leave()
  })

  test("one whose connection is cut loses all, and joins again in its next session", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await bench.session.groups.create("g", topic)
    const member = await Follower.join(bench.session, topic)
    await member.holds(0)
    bench.iggy.server.cut()
    await until("the loss", () => (member.lost.length > 0 ? true : undefined))
    await member.holds(0)
    assert.equal(member.end, "no")
    await member.membership.leave()
  })

  test("when its group is deleted it ends, and says so", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic()
    await bench.session.groups.create("g", topic)
    const member = await Follower.join(bench.session, topic)
    await member.holds(0)
    await bench.session.groups.delete("g", topic)
    const end = await until("the end", () => (member.end === "no" ? undefined : member.end))
    assert.equal((end as MillraceError).kind, "not-found")
    await member.membership.leave()
  })

  test("a session that closes takes its members out, and leaves no connection behind", async () => {
    await using bench = await Bench.open()
    const topic = await bench.topic("t", { partitions: 2 })
    await bench.session.groups.create("g", topic)
    const other = await connectTo(bench.iggy)
    const stays = await Follower.join(bench.session, topic)
    await stays.holds(0, 1)
    const goes = await Follower.join(other, topic)
    const claim = await until("a revocation", () => stays.revoked.get(1))
    stays.held.delete(1)
    await stays.membership.release([claim])
    await goes.holds(1)
    await other.close()
    await stays.holds(0, 1)
    assert.equal(goes.end, "left")
  })
})

async function until<T>(what: string, ask: () => T | undefined): Promise<T> {
  const deadline = performance.now() + 10_000
  for (;;) {
    const answer = ask()
    if (answer !== undefined) return answer
    if (performance.now() > deadline) throw new Error(`waited in vain for ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
