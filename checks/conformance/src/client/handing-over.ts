/** Chapter: what happens to what is in hand when partitions go to another member, and to the partitions that stay. The rules are those of docs/groups.md. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { GroupConsumerOptions, HandlerContext, Message, Topic } from "millrace"
import { type ClientRig, encode, fill, take } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { numbered } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"

export function handingOverChapter(rig: ClientRig): void {
  describe("partitions that move", () => {
    test("those that stay are not interrupted: never revoked, nothing of them comes twice or late", async (t) => {
      const { groups } = rig.client.manifest
      if (!groups.supported) return t.skip(groups.reason)
      const topic = await rig.topic(4)
      const group = topic.consumerGroup("steady")
      const first = await group.consumer({ commitPolicy: { kind: "each" } })
      const told: string[] = []
      first.on({
        assigned: (places) => told.push(...places.map(({ partition }) => `assigned ${partition}`)),
        revoked: (places) => told.push(...places.map(({ partition }) => `revoked ${partition}`)),
        lost: (places) => told.push(...places.map(({ partition }) => `lost ${partition}`)),
      })
      await until("all four", () => (told.length === 4 ? true : undefined))
      const seen = new Map<number, bigint[]>([0, 1, 2, 3].map((partition) => [partition, []]))
      const reading = (async () => {
        for await (const message of first) seen.get(message.position.partition)?.push(message.position.offset)
      })()
      let sending = true
      let sent = 0
      const sender = (async () => {
        await using producer = topic.producer()
        for (; sending; sent++) {
          for (let partition = 0; partition < 4; partition++) await producer.send(encode(`${sent}`), { partition })
        }
      })()
      await until("something of all", () => ([...seen.values()].every(({ length }) => length > 3) ? true : undefined))
      const second = await group.consumer({ commitPolicy: { kind: "each" } })
      const other = (async () => {
        for await (const message of second) seen.get(message.position.partition)?.push(message.position.offset)
      })()
      await until("two to move", () => (told.length >= 6 ? true : undefined))
      sending = false
      await sender
      await until("everything", () =>
        [...seen.values()].every((offsets) => new Set(offsets).size === sent) ? true : undefined,
      )
      const moved = told.slice(4)
      assert.equal(moved.length, 2, moved.join(", "))
      assert.ok(moved.every((one) => one.startsWith("revoked")))
      const inOrder = Array.from({ length: sent }, (_, offset) => BigInt(offset))
      for (const [partition, offsets] of seen) assert.deepEqual(offsets, inOrder, `partition ${partition}`)
      await Promise.all([first.shutdown(), second.shutdown()])
      await settlesWithin("the loops", Promise.all([reading, other]))
    })

    test("onRevoke finish: a handler in hand has its time, its message is stored, and does not come again", async (t) => {
      const { groups } = rig.client.manifest
      if (!groups.supported) return t.skip(groups.reason)
      const { topic, first, contexts, gate, asked, moved } = await inHand(rig, {
        onRevoke: "finish",
        revokeTimeoutMs: 5_000,
      })
      const second = await topic.consumerGroup("hand").consumer({ commitPolicy: { kind: "disabled" } })
      const next = second.next()
      await until("the revocation", () => (asked.length > 0 ? true : undefined))
      await new Promise((resolve) => setTimeout(resolve, 100))
      assert.deepEqual(moved, [], "it waits for the handlers")
      assert.ok([...contexts.values()].every(({ signal }) => !signal.aborted))
      gate.resolve()
      const { value } = await settlesWithin("the partition's next message", next)
      assert.equal((value as Message).position.offset, 1n)
      assert.deepEqual(moved, [(value as Message).position.partition])
      await Promise.all([first.consumer.shutdown(), second.shutdown()])
      await settlesWithin("the run", first.run)
    })

    test("onRevoke finish: a handler that takes longer than revokeTimeoutMs is cut off, and its message comes again", async (t) => {
      const { groups } = rig.client.manifest
      if (!groups.supported) return t.skip(groups.reason)
      await cutOff(rig, { onRevoke: "finish", revokeTimeoutMs: 150 })
    })

    test("onRevoke fence: a handler in hand is cut off at once, its commit is refused, and its message comes again", async (t) => {
      const { groups } = rig.client.manifest
      if (!groups.supported) return t.skip(groups.reason)
      await cutOff(rig, { onRevoke: "fence" })
    })

    test("a member whose listeners of revoking never answer loses the partition all the same", async (t) => {
      const { groups } = rig.client.manifest
      if (!groups.supported) return t.skip(groups.reason)
      const topic = await rig.topic(2)
      for (const partition of [0, 1]) await fill(topic, numbered("r", 0, 3), partition)
      const group = topic.consumerGroup("deaf")
      const first = await group.consumer({
        commitPolicy: { kind: "each" },
        revokeTimeoutMs: 100,
        rebalanceTimeoutMs: 2_000,
      })
      first.on({ revoking: () => new Promise(() => {}) })
      await take(first, 1)
      const second = await group.consumer({ commitPolicy: { kind: "each" }, rebalanceTimeoutMs: 2_000 })
      assert.equal((await take(second, 1)).length, 1)
      await Promise.all([first.shutdown().catch(() => {}), second.shutdown()])
    })
  })
}

/** A member of two partitions whose handlers hold message 0 of each until the gate opens. */
async function inHand(rig: ClientRig, options: GroupConsumerOptions) {
  const topic: Topic = await rig.topic(2)
  for (const partition of [0, 1]) await fill(topic, numbered("r", 0, 3), partition)
  const consumer = await topic.consumerGroup("hand").consumer({ commitPolicy: { kind: "each" }, ...options })
  const moved: number[] = []
  const asked: number[] = []
  consumer.on({
    revoking: ({ partitions }) => void asked.push(...partitions.map(({ partition }) => partition)),
    revoked: (places) => void moved.push(...places.map(({ partition }) => partition)),
  })
  const gate = Promise.withResolvers<void>()
  const contexts = new Map<number, HandlerContext>()
  const messages = new Map<number, Message>()
  const run = consumer.run(
    async (message, context) => {
      const { partition, offset } = message.position
      if (offset > 0n) return
      contexts.set(partition, context)
      messages.set(partition, message)
      await gate.promise
    },
    { concurrency: 2 },
  )
  await until("both handlers", () => (contexts.size === 2 ? true : undefined))
  return { topic, first: { consumer, run }, contexts, messages, gate, asked, moved }
}

async function cutOff(rig: ClientRig, options: GroupConsumerOptions): Promise<void> {
  const { topic, first, contexts, messages, gate, moved } = await inHand(rig, options)
  const second = await topic.consumerGroup("hand").consumer({ commitPolicy: { kind: "disabled" } })
  const [again] = await take(second, 1)
  const partition = again?.position.partition ?? -1
  assert.equal(again?.position.offset, 0n)
  assert.deepEqual(moved, [partition])
  assert.equal(contexts.get(partition)?.signal.aborted, true)
  assert.equal(contexts.get(1 - partition)?.signal.aborted, false)
  await refused(() => first.consumer.commit(messages.get(partition)), { kind: "not-assigned", says: [`${partition}`] })
  gate.resolve()
  await until("what stays to be handled", async () => {
    const { lag } = await topic.consumerGroup("hand").describe()
    return lag[1 - partition]?.lag === 0n ? true : undefined
  })
  const { lag } = await topic.consumerGroup("hand").describe()
  assert.equal(lag[partition]?.storedOffset, undefined, "a late handler changes nothing")
  await Promise.all([first.consumer.shutdown(), second.shutdown()])
  await settlesWithin("the run", first.run)
}
