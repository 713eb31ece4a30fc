/** Chapter: groups: who reads what, handing over, and commits that only the owner can make. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Claim, Position, Session, TopicDescription } from "@millrace/contract"
import { until } from "../rig/deadline.ts"
import { Member } from "../rig/member.ts"
import { numbered } from "../rig/records.ts"
import { checkedRefusal, refused } from "../rig/refusal.ts"
import { at, type Rig } from "../rig/rig.ts"

export function groupsChapter(rig: Rig): void {
  const without = rig.manifest.groups.supported ? undefined : rig.manifest.groups.reason

  describe("groups", { skip: without ?? false }, () => {
    test("a group is made, described and deleted", async () => {
      const { topic, group } = await ready(rig)
      const { groups } = rig.session
      const described = await groups.describe(group, topic)
      assert.equal(described.group, group)
      assert.deepEqual(described.members, [])
      if (rig.manifest.catalog.groups === "names") {
        await groups.create(group, topic)
        assert.deepEqual((await groups.describe(rig.name("unused"), topic)).members, [])
        return
      }
      await refused(() => groups.create(group, topic), { kind: "already-exists", says: [group] })
      await groups.delete(group, topic)
      await refused(() => groups.describe(group, topic), { kind: "not-found", says: [group] })
      await refused(() => groups.delete(group, topic), { kind: "not-found", says: [group] })
    })

    test("a member cannot join a group or a topic that does not exist", async () => {
      const { topic, group } = await ready(rig)
      const join = { sessionTimeoutMs: 5_000, rebalanceTimeoutMs: 5_000 }
      const missing = { stream: topic.stream, topic: "missing" }
      await refused(() => rig.session.groups.join(group, [missing], join), { kind: "not-found", says: ["missing"] })
      if (rig.manifest.catalog.groups === "names") return
      await refused(() => rig.session.groups.join("missing-group", [topic], join), {
        kind: "not-found",
        says: ["missing-group"],
      })
      await refused(() => rig.session.groups.create(group, missing), { kind: "not-found", says: ["missing"] })
    })

    test("a member that is alone gets every partition", async () => {
      const { topic, group } = await ready(rig, 4)
      const member = await Member.join(rig.session, group, [topic])
      await member.holds([0, 1, 2, 3])
      const described = await rig.session.groups.describe(group, topic)
      assert.equal(described.members.length, 1)
      assert.equal(described.members[0]?.memberId, member.membership.memberId)
      assert.deepEqual(described.members[0]?.partitions.map((entry) => entry.partition).toSorted(), [0, 1, 2, 3])
      assert.deepEqual(member.claim(2).stream, topic.stream)
      assert.deepEqual(member.claim(2).topic, topic.topic)
      await member.leave()
      assert.equal(member.ended, "left")
    })

    test("members share the partitions evenly, each partition with one of them", async () => {
      const { topic, group } = await ready(rig, 5)
      const members = [await Member.join(rig.session, group, [topic]), await Member.join(rig.session, group, [topic])]
      await balanced(members, 5)
      members.push(await Member.join(rig.session, group, [topic]))
      await balanced(members, 5)
      await Promise.all(members.map((member) => member.leave()))
    })

    test("a second member takes only what moves: what stays is never interrupted", async () => {
      const { topic, group } = await ready(rig, 4)
      const first = await Member.join(rig.session, group, [topic])
      await first.holds([0, 1, 2, 3])
      const before = new Map(first.held)
      const second = await Member.join(rig.session, group, [topic])
      await balanced([first, second], 4)
      for (const partition of first.partitions) {
        assert.equal(first.held.get(partition), before.get(partition), `the claim of partition ${partition} changed`)
      }
      await first.leave()
      await second.leave()
    })

    test("a partition goes to the next member only when its owner has released it", async () => {
      const { topic, group } = await ready(rig, 1)
      const first = await Member.join(rig.session, group, [topic], { releases: "by hand" })
      await first.holds([0])
      const second = await Member.join(rig.session, group, [topic], { releases: "by hand" })
      const keeper = first
      const [loser, gainer] = [keeper, second]
      // One partition, two members: whoever has it keeps it. Its leaving hands it over.
      assert.deepEqual(gainer.partitions, [])
      await loser.leave()
      await gainer.holds([0])
      await gainer.leave()
    })

    test("revoke comes before assign: until the release the old owner commits and the new one has nothing", async () => {
      const { topic, group } = await ready(rig, 2)
      const first = await Member.join(rig.session, group, [topic], { releases: "by hand" })
      await first.holds([0, 1])
      // A partition of which something was handled is one that is worked on: it is not taken away without notice.
      for (const partition of [0, 1]) assert.equal(await first.commit(group, topic, partition, 2n), undefined)
      const second = await Member.join(rig.session, group, [topic])
      const [moving] = await until("a revocation", () =>
        first.asked.size > 0 ? ([[...first.asked.values()][0]] as const) : undefined,
      )
      assert.ok(moving !== undefined)
      assert.deepEqual(second.partitions, [], "the new member has the partition before it was released")
      assert.equal(await first.commit(group, topic, moving.partition, 4n), undefined)
      await first.release([moving])
      await second.holds([moving.partition])
      assert.equal(await stored(rig, group, topic, moving.partition), 4n)
      checkedRefusal(await first.commit(group, topic, moving.partition, 9n, moving), {
        kind: "not-assigned",
        says: [String(moving.partition)],
        outcome: "rejected",
      })
      assert.equal(await stored(rig, group, topic, moving.partition), 4n, "a refused commit changed what is stored")
      assert.equal(await second.commit(group, topic, moving.partition, 5n), undefined)
      await first.leave()
      await second.leave()
    })

    test("a member that does not hand over in time loses the partition", async () => {
      const { topic, group } = await ready(rig, 2)
      const slow = await Member.join(rig.session, group, [topic], { releases: "by hand", rebalanceTimeoutMs: 400 })
      await slow.holds([0, 1])
      for (const partition of [0, 1]) assert.equal(await slow.commit(group, topic, partition, 2n), undefined)
      const next = await Member.join(rig.session, group, [topic], { rebalanceTimeoutMs: 400 })
      const moving = await until("a revocation", () => [...slow.asked.values()][0])
      const speaksOf = (claims: readonly Claim[]): true | undefined =>
        claims.some(({ partition }) => partition === moving.partition) || undefined
      // Who was late may be put out of the group and come back, and then the two are dealt anew.
      await until("the other member to be given it", () => speaksOf(next.changes.flatMap(({ assigned }) => assigned)))
      await until("the old owner to be told", () => speaksOf(slow.changes.flatMap(({ lost }) => lost)))
      checkedRefusal(await slow.commit(group, topic, moving.partition, 9n, moving), "not-assigned")
      await slow.leave()
      await next.leave()
    })

    test("what a member leaves behind goes to the others, with what it committed", async () => {
      const { topic, group } = await ready(rig, 4)
      const first = await Member.join(rig.session, group, [topic])
      const second = await Member.join(rig.session, group, [topic])
      await balanced([first, second], 4)
      const partition = first.partitions[0] as number
      const claim = first.claim(partition)
      assert.equal(await first.commit(group, topic, partition, 6n), undefined)
      await first.leave()
      await second.holds([0, 1, 2, 3])
      checkedRefusal(await first.commit(group, topic, partition, 8n, claim), "not-assigned")
      assert.equal(await stored(rig, group, topic, partition), 6n)
      await second.leave()
    })

    test("every change of who reads what raises the generation", async () => {
      const { topic, group } = await ready(rig, 2)
      const generation = async (): Promise<number> => (await rig.session.groups.describe(group, topic)).generation
      const empty = await generation()
      const first = await Member.join(rig.session, group, [topic])
      await first.holds([0, 1])
      const alone = await generation()
      assert.ok(alone > empty)
      const second = await Member.join(rig.session, group, [topic])
      await balanced([first, second], 2)
      const both = await generation()
      assert.ok(both > alone)
      await second.leave()
      await first.holds([0, 1])
      assert.ok((await generation()) > both)
      await first.leave()
    })

    test("a member that comes back under its name takes its place, and the older one is told", async (t) => {
      const capability = rig.manifest.staticMembers
      if (!capability.supported) return t.skip(capability.reason)
      const { topic, group } = await ready(rig, 3)
      const first = await Member.join(rig.session, group, [topic], { memberId: "static-1" })
      const other = await Member.join(rig.session, group, [topic], { memberId: "static-2" })
      await balanced([first, other], 3)
      const partitions = first.partitions
      const claim = first.claim(partitions[0] as number)
      const again = await Member.join(rig.session, group, [topic], { memberId: "static-1" })
      await again.holds(partitions)
      const end = await until("the older member to end", () => (first.ended === "no" ? undefined : first.ended))
      checkedRefusal(end, { kind: "fenced", says: ["static-1"] })
      checkedRefusal(await first.commit(group, topic, claim.partition, 3n, claim), "not-assigned")
      assert.equal(await again.commit(group, topic, claim.partition, 4n), undefined)
      await again.leave()
      await other.leave()
    })

    test("partitions that are added are given out", async (t) => {
      const capability = rig.manifest.catalog.addPartitions
      if (!capability.supported) return t.skip(capability.reason)
      const { topic, group } = await ready(rig, 1)
      const member = await Member.join(rig.session, group, [topic])
      await member.holds([0])
      await rig.session.catalog.addPartitions(topic, 2)
      await member.holds([0, 1, 2])
      await member.leave()
    })

    test("a member that asks for two topics gets partitions of both", async () => {
      const { topic, group } = await ready(rig, 1)
      const other = await rig.topic()
      await rig.session.groups.create(group, other)
      const membership = await rig.session.groups.join(group, [topic, other], {
        sessionTimeoutMs: 10_000,
        rebalanceTimeoutMs: 10_000,
      })
      const topics = new Set<string>()
      for await (const change of membership.changes) {
        for (const claim of change.assigned) topics.add(claim.topic)
        if (topics.size === 2) break
      }
      assert.deepEqual([...topics].toSorted(), [topic.topic, other.topic].toSorted())
      await membership.leave()
    })

    test("when a topic is deleted, its claims are lost", async () => {
      const { topic, group } = await ready(rig, 2)
      const member = await Member.join(rig.session, group, [topic])
      await member.holds([0, 1])
      await rig.session.catalog.deleteTopic(topic)
      await until("the claims to be lost", () => (member.held.size === 0 || member.ended !== "no" ? true : undefined))
      await member.leave()
    })

    test("a group that is a name is forgotten only without members, with its offsets", async (t) => {
      if (rig.manifest.catalog.groups === "objects") return t.skip("groups are objects on this backend")
      const { topic, group } = await ready(rig, 1)
      const member = await Member.join(rig.session, group, [topic])
      await member.holds([0])
      assert.equal(await member.commit(group, topic, 0, 5n), undefined)
      await refused(() => rig.session.groups.delete(group, topic), { kind: "invalid", says: [group, "1 member"] })
      assert.equal(await stored(rig, group, topic, 0), 5n)
      await member.leave()
      await rig.session.groups.delete(group, topic)
      assert.equal(await stored(rig, group, topic, 0), undefined)
    })

    test("when a group is deleted, its members lose their claims and its offsets are forgotten", async (t) => {
      if (rig.manifest.catalog.groups === "names") return t.skip("groups are names on this backend")
      const { topic, group } = await ready(rig, 1)
      const member = await Member.join(rig.session, group, [topic])
      await member.holds([0])
      const claim = member.claim(0)
      assert.equal(await member.commit(group, topic, 0, 5n), undefined)
      await rig.session.groups.delete(group, topic)
      const late = await member.commit(group, topic, 0, 6n, claim)
      assert.ok(late !== undefined, "a member of a deleted group committed")
      await until("the claim to be lost", () => (member.held.size === 0 || member.ended !== "no" ? true : undefined))
      await rig.session.groups.create(group, topic)
      assert.equal(await stored(rig, group, topic, 0), undefined)
      await member.leave()
    })

    test("groups and topics keep their progress apart", async () => {
      const { topic, group } = await ready(rig, 1)
      const other = rig.name("group")
      await rig.session.groups.create(other, topic)
      const [one, two] = [
        await Member.join(rig.session, group, [topic]),
        await Member.join(rig.session, other, [topic]),
      ]
      await one.holds([0])
      await two.holds([0])
      assert.equal(await one.commit(group, topic, 0, 3n), undefined)
      assert.equal(await stored(rig, other, topic, 0), undefined)
      checkedRefusal(await one.commit(other, topic, 0, 7n), "not-assigned")
      assert.equal(await stored(rig, other, topic, 0), undefined)
      await one.leave()
      await two.leave()
    })

    test("a member never sees a partition twice while members come and go", async () => {
      const { topic, group } = await ready(rig, 6)
      const members: Member[] = []
      for (let round = 0; round < 6; round++) {
        if (round % 3 === 2) await members.shift()?.leave()
        else members.push(await Member.join(rig.session, group, [topic]))
      }
      await balanced(members, 6)
      for (const member of members) assert.equal(member.ended, "no")
      await Promise.all(members.map((member) => member.leave()))
    })
  })

  describe("groups over two sessions", { skip: without ?? rig.under.isolated ?? false }, () => {
    test("members of two sessions share the partitions, and a closed session leaves", async () => {
      const { topic, group } = await ready(rig, 4)
      const session = await rig.connect()
      const [here, there] = [await Member.join(rig.session, group, [topic]), await Member.join(session, group, [topic])]
      await balanced([here, there], 4)
      await session.close()
      await here.holds([0, 1, 2, 3])
      await here.leave()
    })

    test("the other session's late commit is refused", async () => {
      const { topic, group } = await ready(rig, 1)
      const session: Session = await rig.connect()
      const there = await Member.join(session, group, [topic])
      await there.holds([0])
      const claim = there.claim(0)
      assert.equal(await there.commit(group, topic, 0, 2n), undefined)
      await there.leave()
      const here = await Member.join(rig.session, group, [topic])
      await here.holds([0])
      checkedRefusal(await there.commit(group, topic, 0, 9n, claim), "not-assigned")
      assert.equal(await stored(rig, group, topic, 0), 2n)
      await here.leave()
      await session.close()
    })
  })
}

async function ready(rig: Rig, partitions = 1): Promise<{ topic: TopicDescription; group: string }> {
  const topic = await rig.topic({ partitions })
  // Offsets are stored under claims: some backends take only those of records that they hold.
  for (let partition = 0; partition < partitions; partition++) await rig.append(topic, partition, numbered("r", 0, 50))
  const group = rig.name("group")
  await rig.session.groups.create(group, topic)
  return { topic, group }
}

/** Waits until the members hold every partition once, and none holds more than one above another. */
async function balanced(members: readonly Member[], partitions: number): Promise<void> {
  const holdings = (): string => members.map((member) => `[${member.partitions.join(" ")}]`).join(" ")
  await until("the partitions to be shared evenly", () => {
    const all = members.flatMap((member) => member.partitions)
    const counts = members.map((member) => member.held.size)
    const even = Math.max(...counts) - Math.min(...counts) <= 1
    return all.length === partitions && even && members.every((member) => member.asked.size === 0) ? true : undefined
  }).catch((error: Error) => {
    throw new Error(`${error.message}; they hold ${holdings()}`)
  })
  const all = members.flatMap((member) => member.partitions)
  assert.equal(new Set(all).size, partitions, `a partition is held twice: ${holdings()}`)
}

async function stored(
  rig: Rig,
  group: string,
  topic: TopicDescription,
  partition: number,
): Promise<bigint | undefined> {
  const [place] = await rig.session.offsets.load({ kind: "group", name: group }, [at(topic, partition)])
  if (place instanceof Error) throw place
  return (place as Position | undefined)?.offset
}
