/** Groups on a real Kafka, by both protocols. */
import assert from "node:assert/strict"
import { after, describe, test } from "node:test"
import { serverNeed, sharedServer } from "@millrace/servers"
import {
  append,
  checkHandled,
  GroupReader,
  type GroupSession,
  type Handled,
  newTopic,
  openSession,
  ownName,
  until,
} from "./group-rig.test-support.ts"

const need = await serverNeed("kafka")
const skip = need === undefined ? false : `needs kafka: ${need}`

for (const protocol of ["consumer", "classic"] as const) {
  describe(`groups by the ${protocol} protocol`, { skip }, () => {
    const open: GroupSession[] = []
    const session = async (): Promise<GroupSession> => {
      const { url } = await sharedServer("kafka")
      const opened = await openSession(url, protocol)
      open.push(opened)
      return opened
    }
    after(() => Promise.all(open.map((one) => one.close())))

    test("16 partitions, members come and go: each record is handled once, in order, and never before its position is known", async () => {
      const [one, two] = [await session(), await session()]
      const topic = await newTopic(one.session, 16)
      const group = ownName("group")
      const log: Handled[] = []
      const records = 120
      const write = async (): Promise<void> => {
        for (let batch = 0; batch < records / 10; batch++) {
          const texts = Array.from({ length: 10 }, (_, nth) => `${batch * 10 + nth}`)
          await Promise.all(
            Array.from({ length: 16 }, (_, partition) => append(one.session, topic, { partition, texts })),
          )
        }
      }
      const first = await GroupReader.join(one, group, { topic, log })
      await until("the first member to have all", () => (first.held.size === 16 ? true : undefined))
      const writing = write()
      const second = await GroupReader.join(two, group, { topic, log })
      await until("the second to have its part", () => (second.held.size === 8 ? true : undefined))
      const third = await GroupReader.join(two, group, { topic, log })
      await until("the third to have its part", () => (third.held.size >= 5 ? true : undefined))
      await first.leave()
      await until("the rest to be shared", () => (second.held.size + third.held.size === 16 ? true : undefined))
      await writing
      await until("everything to be handled", () => (log.length >= 16 * records ? true : undefined))
      await second.leave()
      await until("the last to have all", () => (third.held.size === 16 ? true : undefined))
      await third.leave()
      assert.equal(checkHandled(log, { partitions: 16, records }), 0, "records were handled twice without a failure")
      for (const member of [first, second, third]) assert.equal(member.ended, "left")
    })

    test("a member whose owner is busy for longer than the session timeout keeps its partitions and commits", async () => {
      const one = await session()
      const topic = await newTopic(one.session, 2)
      const group = ownName("group")
      const membership = await one.groups.join(group, [topic], { sessionTimeoutMs: 1500, rebalanceTimeoutMs: 1500 })
      const first = (await membership.changes[Symbol.asyncIterator]().next()).value
      const began = performance.now()
      // The session timeout of the broker's own choice is 3 s.
      await until("the time to pass", async () => {
        const { members } = await one.groups.describe(group, topic)
        assert.equal(members.length, 1, "the member was thrown out")
        return performance.now() - began > 4000 ? true : undefined
      })
      const claim = first.assigned[0]
      const entry = { ...claim, offset: 3n, lineage: topic.lineage, claim }
      assert.deepEqual(await one.session.offsets.store({ kind: "group", name: group }, [entry]), [undefined])
      await membership.leave()
    })

    test("the offset of a partition that a member has is deleted under its claim, and nobody else's can be", async () => {
      const one = await session()
      const topic = await newTopic(one.session, 1)
      const group = ownName("group")
      const owner = { kind: "group", name: group } as const
      const membership = await one.groups.join(group, [topic], { sessionTimeoutMs: 6000, rebalanceTimeoutMs: 6000 })
      const changes = membership.changes[Symbol.asyncIterator]()
      const claim = (await changes.next()).value.assigned[0]
      const { offsets } = one.session
      const place = { stream: topic.stream, topic: topic.topic, partition: 0 }
      assert.deepEqual(await offsets.store(owner, [{ ...claim, offset: 7n, lineage: topic.lineage, claim }]), [
        undefined,
      ])
      const [refused] = await offsets.delete(owner, [place])
      assert.equal(refused?.kind, "not-assigned")
      assert.deepEqual(await offsets.delete(owner, [{ ...place, claim }]), [undefined])
      assert.deepEqual(await offsets.load(owner, [place]), [undefined])
      await membership.leave()
    })
  })
}
