/** Chapter: clients, streams and topics as handles: what they make, list and describe, and what closing does. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type ClientRig, encode, fill } from "../rig/client-rig.ts"
import { settlesWithin } from "../rig/deadline.ts"
import { refused } from "../rig/refusal.ts"

export function handlesChapter(rig: ClientRig): void {
  describe("handles", () => {
    test("ensure makes stream and topic, and changes nothing that exists", async () => {
      const topic = rig.handle()
      const first = await topic.ensure(3)
      const again = await topic.ensure(5)
      assert.deepEqual(again, first)
      assert.equal((await topic.watermarks()).length, 3)
      assert.deepEqual(await topic.describe(), first)
    })

    test("many calls of ensure at once all succeed, with one topic", async () => {
      const topic = rig.handle()
      const infos = await Promise.all(Array.from({ length: 10 }, () => topic.ensure(2)))
      for (const info of infos) assert.deepEqual(info, infos[0])
    })

    test("streams and topics are listed", async () => {
      const stream = rig.client.stream(rig.name("listed"))
      await stream.ensure()
      await stream.ensure()
      await stream.topic("one").ensure(1)
      await stream.topic("two").ensure(2)
      const topics: string[] = []
      for await (const info of stream.topics()) topics.push(info.topic)
      assert.deepEqual(topics.toSorted(), ["one", "two"])
      const streams: string[] = []
      for await (const info of rig.client.streams()) streams.push(info.stream)
      assert.ok(streams.includes(stream.name))
      assert.equal((await stream.describe()).stream, stream.name)
    })

    test("a stream can be purged and deleted", async () => {
      const topic = await rig.topic()
      await fill(topic, ["a", "b"])
      const stream = rig.client.stream(topic.stream)
      await stream.purge()
      const [marks] = await topic.watermarks()
      assert.equal((marks?.end ?? 0n) - (marks?.first ?? 0n), 0n)
      await stream.delete()
      await refused(() => topic.describe(), "not-found")
    })

    test("a topic grows, is trimmed, purged and deleted", async () => {
      const topic = await rig.topic(1)
      for (const payload of ["a", "b", "c"]) await fill(topic, [payload])
      await topic.addPartitions(2)
      assert.equal((await topic.watermarks()).length, 3)
      if (rig.client.manifest.catalog.trim.supported) {
        await topic.trim(0, 2n)
        assert.equal((await topic.watermarks())[0]?.first, 2n)
      } else await refused(() => topic.trim(0, 2n), "unsupported")
      await topic.purge()
      const [marks] = await topic.watermarks()
      assert.equal((marks?.end ?? 0n) - (marks?.first ?? 0n), 0n)
      await topic.delete()
      await refused(() => topic.watermarks(), { kind: "not-found", says: [topic.name] })
      await refused(() => topic.delete(), "not-found")
    })

    test("topic() leads to the default stream, and says what is missing without one", async () => {
      const client = await rig.connect("same", { stream: rig.name("default") })
      const topic = client.topic("t")
      await topic.ensure(1)
      assert.ok(topic.stream.startsWith("default"))
      await client.close()
      if (rig.client.manifest.catalog.streams !== "objects") return
      await refused(() => rig.client.topic("t"), { kind: "invalid", says: [/stream/] })
    })

    test("the manifest of the session is shown", () => {
      assert.equal(typeof rig.client.manifest.backend, "string")
      assert.ok(rig.client.manifest.limits.payloadBytes > 0)
    })

    test("close drains producers, ends consumers, and later calls are refused as closed", async () => {
      const client = await rig.connect("fresh")
      const topic = await rig.topic(1, {}, client)
      const producer = topic.producer()
      const consumer = topic.consumer("reader", 0)
      const waiting = Promise.allSettled([consumer.next(), consumer.next()])
      const sends = Array.from({ length: 30 }, () => producer.send(encode("r")))
      const closing = client.close()
      const outcomes = await settlesWithin("sends at close", Promise.allSettled(sends))
      await settlesWithin("close", closing)
      assert.ok(
        outcomes.every((outcome) => outcome.status === "fulfilled"),
        "close drains what was sent",
      )
      await settlesWithin("a consumer's calls at close", waiting)
      await settlesWithin("a second close", client.close())
      await refused(() => topic.describe(), "closed")
      await refused(() => topic.ensure(1), "closed")
      await refused(() => producer.send(encode("late")), "closed")
      await refused(() => topic.publish().payload(encode("late")).send(), "closed")
      await refused(() => consumer.nextWithin(10), "closed")
      await refused(() => topic.consumerGroup("g").consumer(), "closed")
    })

    test("await using closes the client", async () => {
      let topic: ReturnType<ClientRig["handle"]>
      {
        await using client = await rig.connect("fresh")
        topic = rig.handle(client)
        await topic.ensure(1)
      }
      await refused(() => topic.describe(), "closed")
    })
  })
}
