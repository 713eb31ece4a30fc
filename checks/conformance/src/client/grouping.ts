/** Chapter: consumer groups through the public API. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Consumer, Message } from "millrace"
import { type ClientRig, fill, nothingComes, take, takeTexts } from "../rig/client-rig.ts"
import { patienceMs, until } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

export function groupingChapter(rig: ClientRig): void {
  describe("consumer groups", () => {
    test("a group goes on where it stood, whoever reads", async () => {
      const topic = await rig.topic()
      await fill(topic, numbered("r", 0, 6))
      const group = topic.consumerGroup("workers")
      const first = await group.consumer({ commitPolicy: { kind: "each" } })
      assert.deepEqual(await takeTexts(first, 3), numbered("r", 0, 3))
      await first.shutdown()
      const second = await group.consumer()
      assert.deepEqual(await takeTexts(second, 3), numbered("r", 3, 6))
      await second.shutdown()
    })

    test("groups read for themselves, and apart from consumers of the same name", async () => {
      const topic = await rig.topic()
      await fill(topic, ["r0"])
      const consumers = [
        await topic.consumerGroup("one").consumer({ commitPolicy: { kind: "each" } }),
        await topic.consumerGroup("two").consumer(),
        topic.consumer("one", 0),
      ]
      for (const consumer of consumers) assert.deepEqual(await takeTexts(consumer, 1), ["r0"])
      await Promise.all(consumers.map((consumer) => consumer.shutdown()))
    })

    test("members share the partitions: each record goes to one of them, in the order of its partition", async () => {
      const topic = await rig.topic(4)
      const group = topic.consumerGroup("workers")
      const [one, other] = [await group.consumer(), await group.consumer()]
      const described = await until("both members to hold two partitions", async () => {
        const info = await group.describe()
        return info.members.every((member) => member.partitions.length === 2) ? info : undefined
      })
      assert.equal(described.members.length, 2)
      for (let partition = 0; partition < 4; partition++) await fill(topic, numbered(`${partition}:`, 0, 10), partition)
      const [left, right] = await Promise.all([take(one, 20), take(other, 20)])
      const partitionsOf = (messages: readonly Message[]): number[] => [
        ...new Set(messages.map((message) => message.position.partition)),
      ]
      assert.deepEqual([...partitionsOf(left), ...partitionsOf(right)].toSorted(), [0, 1, 2, 3])
      for (let partition = 0; partition < 4; partition++) {
        const part = [...left, ...right].filter((message) => message.position.partition === partition)
        assert.deepEqual(
          part.map((message) => text(message.payload)),
          numbered(`${partition}:`, 0, 10),
        )
      }
      await Promise.all([one.shutdown(), other.shutdown()])
    })

    test("what a member leaves goes on with another, behind the last commit", async () => {
      const topic = await rig.topic(2)
      await fill(topic, numbered("a", 0, 5), 0)
      await fill(topic, numbered("b", 0, 5), 1)
      const group = topic.consumerGroup("workers")
      const [one, other] = [
        await group.consumer({ commitPolicy: { kind: "each" } }),
        await group.consumer({ commitPolicy: { kind: "each" } }),
      ]
      const seen = new Map<string, number>()
      const count = (message: Message): void => {
        const payload = text(message.payload)
        seen.set(payload, (seen.get(payload) ?? 0) + 1)
      }
      for (const message of await take(one, 2)) count(message)
      await one.shutdown()
      while (seen.size < 10) count(await other.nextWithin(patienceMs))
      assert.ok(
        [...seen.values()].every((times) => times === 1),
        "handled and committed, yet delivered again",
      )
      await other.shutdown()
    })

    test("what moves is told to a listener, and no more once it is disposed", async () => {
      const topic = await rig.topic(2)
      const group = topic.consumerGroup("workers")
      const first = await group.consumer()
      const told: string[] = []
      const tell = (what: string) => (places: readonly { readonly partition: number }[]) => {
        for (const { partition } of places) told.push(`${what} ${partition}`)
      }
      const listener = first.on({ assigned: tell("assigned"), revoked: tell("revoked"), lost: tell("lost") })
      assert.deepEqual(told.splice(0).sort(), ["assigned 0", "assigned 1"], "what it holds already is told at once")
      const second = await group.consumer()
      const [moved] = await until("a partition to be told as revoked", () => (told.length > 0 ? told : undefined))
      assert.match(moved ?? "", /^revoked [01]$/)
      await second.shutdown()
      await until("it to come back", () => (told.length > 1 ? true : undefined))
      assert.equal(told[1], moved?.replace("revoked", "assigned"))
      listener[Symbol.dispose]()
      const third = await group.consumer()
      await until("the third to hold one", async () => {
        const { members } = await group.describe()
        return members.every((member) => member.partitions.length === 1) ? true : undefined
      })
      assert.equal(told.length, 2)
      await Promise.all([first.shutdown(), third.shutdown()])
    })

    test("a group is described and deleted; without one a consumer that may not create it is refused", async () => {
      const topic = await rig.topic()
      const group = topic.consumerGroup(rig.name("workers"))
      const named = rig.client.manifest.catalog.groups === "names"
      if (!named) {
        await refused(() => group.describe(), { kind: "not-found", says: [group.name] })
        await refused(() => group.consumer({ createGroup: false }), { kind: "not-found", says: [group.name] })
      }
      const consumer = await group.consumer({ createGroup: !named })
      assert.equal((await group.describe()).members.length, 1)
      await consumer.shutdown()
      await group.delete()
      if (named) assert.deepEqual((await group.describe()).members, [])
      else await refused(() => group.describe(), "not-found")
    })

    test("autoJoinGroup false is refused with the reason", async () => {
      const topic = await rig.topic()
      await refused(() => topic.consumerGroup("workers").consumer({ autoJoinGroup: false }), {
        kind: "invalid",
        says: ["autoJoinGroup"],
      })
    })

    test("storeOffset moves a partition that is held; one that is not is refused", async () => {
      const topic = await rig.topic()
      await fill(topic, numbered("r", 0, 6))
      const group = topic.consumerGroup("workers")
      const consumer = await group.consumer({ commitPolicy: { kind: "disabled" } })
      await take(consumer, 1)
      await consumer.storeOffset(3n, 0)
      assert.equal((await consumer.storedOffset(0))?.stored, 3n)
      await consumer.shutdown()
      const again = await group.consumer()
      assert.deepEqual(await takeTexts(again, 2), ["r4", "r5"])
      await nothingComes(again)
      await again.shutdown()
    })

    test("two clients share a group, and a closed client hands its partitions over", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await rig.topic(2)
      const client = await rig.connect()
      const here: Consumer = await topic.consumerGroup("workers").consumer()
      await rig.through(client, topic).consumerGroup("workers").consumer()
      await until("the members to share", async () => {
        const info = await topic.consumerGroup("workers").describe()
        return info.members.length === 2 && info.members.every((one) => one.partitions.length === 1) ? true : undefined
      })
      await client.close()
      await fill(topic, ["a"], 0)
      await fill(topic, ["b"], 1)
      assert.deepEqual((await takeTexts(here, 2)).toSorted(), ["a", "b"])
      await here.shutdown()
    })
  })
}
