/** Kafka's own consumer and ours as members of one group. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { serverNeed, sharedServer } from "@millrace/servers"
import { kafkaTopic } from "../names.ts"
import {
  append,
  checkHandled,
  GroupReader,
  type Handled,
  newTopic,
  openSession,
  ownName,
  until,
} from "./group-rig.test-support.ts"
import { JavaMember } from "./java-member.test-support.ts"

const need = await serverNeed("kafka")
const skip = need === undefined ? false : `needs kafka: ${need}`

const cooperative = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
const range = "org.apache.kafka.clients.consumer.RangeAssignor"

describe("a group with members of Kafka's own consumer", { skip }, () => {
  for (const { protocol, assignor, again } of [
    { protocol: "consumer", assignor: "default", again: 0 },
    { protocol: "classic", assignor: cooperative, again: 0 },
    // An eager group takes everything from everybody when it rebalances; nothing is read twice all the same.
    { protocol: "classic", assignor: range, again: 0 },
    { protocol: "classic", assignor: `${range},${cooperative}`, again: 0 },
  ] as const) {
    test(`${protocol}, ${assignor.replaceAll(/[a-z.]+\.([A-Z])/g, "$1")}: each record is read once, and each finds what the other has stored`, async () => {
      const { url } = await sharedServer("kafka")
      const ours = await openSession(url, protocol)
      const log: Handled[] = []
      const group = ownName("group")
      const topic = await newTopic(ours.session, 4)
      const write = async (from: number): Promise<void> => {
        const texts = Array.from({ length: 20 }, (_, nth) => `${from + nth}`)
        await Promise.all([0, 1, 2, 3].map((partition) => append(ours.session, topic, { partition, texts })))
      }
      let java: JavaMember | undefined
      try {
        const member = await GroupReader.join(ours, group, { topic, log })
        await until("all partitions", () => (member.held.size === 4 ? true : undefined))
        await write(0)
        await until("the first records", () => (log.length >= 80 ? true : undefined))
        java = await JavaMember.start({ url, group, topic: kafkaTopic(topic), protocol, assignor }, log)
        const peer = java
        await until("an even share", () => (member.held.size === 2 && peer.held.length === 2 ? true : undefined))
        assert.deepEqual([...member.partitions, ...peer.held].toSorted(), [0, 1, 2, 3])
        // The next to read, as every client of Kafka understands it.
        for (const partition of peer.held) assert.equal(peer.committed.get(partition), "20")
        await write(20)
        await until("the second records", () => (log.length >= 160 ? true : undefined))
        assert.ok(log.some(({ by }) => by === "java"))
        assert.equal(await peer.leave(), 0)
        await until("all partitions again", () => (member.held.size === 4 ? true : undefined))
        await write(40)
        await until("the last records", () => (log.length >= 240 ? true : undefined))
        await member.leave()
        assert.ok(checkHandled(log, { partitions: 4, records: 60 }) <= again)
      } finally {
        java?.kill()
        await ours.close()
      }
    })
  }
})
