/** Chapter: progress of a consumer that is stored by a transaction, with the records that were made of its messages. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type Consumer, connect, type Message } from "millrace"
import { type ClientRig, encode, fill, take } from "../rig/client-rig.ts"
import { until } from "../rig/deadline.ts"
import { storedBy } from "../rig/progress.ts"
import { numbered } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import { contentsText, readyProducer } from "../rig/transacted.ts"

const disabled = { commitPolicy: { kind: "disabled" } } as const

export function transactingOffsetsChapter(rig: ClientRig): void {
  const holdsOffsets = (): boolean => {
    const { transactions } = rig.client.manifest
    return transactions.supported && transactions.offsets.supported
  }

  describe("offsets in transactions", () => {
    test("are stored with the commit, up to the last of the messages, and not before; an abort stores nothing", async () => {
      if (!holdsOffsets()) return
      const [input, output] = [await rig.filled(6), await rig.topic()]
      const producer = await readyProducer(rig)
      const consumer = input.consumer("worker", 0, disabled)
      const messages = await kept(consumer, 6)
      const first = await producer.begin()
      await first.send(output, encode("of r2"))
      await first.sendOffsets(consumer, messages.slice(0, 3))
      assert.equal(await storedBy(input, "worker"), undefined)
      await first.commit()
      assert.equal(await storedBy(input, "worker"), 2n)
      assert.equal(consumer.lastStoredOffset(), 2n)
      const second = await producer.begin()
      await second.send(output, encode("never"))
      await second.sendOffsets(consumer, messages.slice(3))
      await second.abort()
      assert.equal(await storedBy(input, "worker"), 2n)
      const third = await producer.begin()
      await third.sendOffsets(consumer, messages.slice(3))
      await third.sendOffsets(consumer, messages.slice(3, 4))
      await third.commit()
      assert.equal(await storedBy(input, "worker"), 3n, "the later call counts")
      assert.deepEqual(await contentsText(output), ["of r2"])
      await Promise.all([consumer.shutdown(), producer.shutdown()])
      const next = input.consumer("worker", 0, disabled)
      assert.equal((await kept(next, 1))[0]?.position.offset, 4n)
      await next.shutdown()
    })

    test("take checkpoints of any partition, and none", async () => {
      if (!holdsOffsets() || !rig.client.manifest.groups.supported) return
      const input = await rig.topic(2)
      await fill(input, numbered("a", 0, 3), 0)
      await fill(input, numbered("b", 0, 2), 1)
      const producer = await readyProducer(rig)
      const consumer = await input.consumerGroup("workers").consumer(disabled)
      const messages = await kept(consumer, 5)
      await producer.within(async (transaction) => {
        await transaction.sendOffsets(consumer, [])
        await transaction.sendOffsets(consumer, messages)
      })
      assert.deepEqual([await storedAt(consumer, 0), await storedAt(consumer, 1)], [2n, 1n])
      await Promise.all([consumer.shutdown(), producer.shutdown()])
    })

    test("of a consumer that stores by itself, of another client, or of none are refused, and spoil nothing", async () => {
      if (!holdsOffsets()) return
      const input = await rig.filled(2)
      const client = await connect(rig.url)
      const producer = await readyProducer(rig)
      const own = input.consumer("worker", 0, disabled)
      const selfish = input.consumer("selfish", 0)
      const foreign =
        rig.under.isolated === undefined ? rig.through(client, input).consumer("foreign", 0, disabled) : undefined
      const [message] = (await kept(own, 1)) as [Message]
      const transaction = await producer.begin()
      const refusals: [string, () => Promise<void>][] = [
        ["commitPolicy", () => transaction.sendOffsets(selfish, [message])],
        ["consumer", () => transaction.sendOffsets(7 as unknown as Consumer, [message])],
        ["array", () => transaction.sendOffsets(own, message as unknown as Message[])],
        ["#0|message|checkpoint", () => transaction.sendOffsets(own, [7 as unknown as Message])],
      ]
      if (foreign !== undefined) refusals.push(["client", () => transaction.sendOffsets(foreign, [message])])
      for (const [says, call] of refusals) await refused(call, { kind: "invalid", says: [new RegExp(says)] })
      await transaction.sendOffsets(own, [message])
      await transaction.commit()
      assert.equal(await storedBy(input, "worker"), 0n)
      await Promise.all([own.shutdown(), selfish.shutdown(), producer.shutdown()])
      await client.close()
    })

    test("of a partition that is another member's by now are refused, and the transaction can only be aborted", async () => {
      if (!holdsOffsets() || !rig.client.manifest.groups.supported) return
      const input = await rig.topic(2)
      await fill(input, numbered("a", 0, 2), 0)
      await fill(input, numbered("b", 0, 2), 1)
      const output = await rig.topic()
      const producer = await readyProducer(rig)
      const group = input.consumerGroup("workers")
      const first = await group.consumer(disabled)
      const messages = await kept(first, 4)
      const lost: number[] = []
      first.on({ revoked: (places) => void lost.push(...places.map(({ partition }) => partition)) })
      const transaction = await producer.begin()
      await transaction.send(output, encode("never"))
      const second = await group.consumer(disabled)
      await until("a partition to move", () => lost[0])
      await refused(() => transaction.sendOffsets(first, messages), "not-assigned")
      const moved = messages.filter(({ position }) => position.partition === lost[0])
      const told = await transaction.sendOffsets(first, moved).then(undefined, (error) => error)
      assert.ok(["not-assigned", "transaction-aborted"].includes(told?.kind), `${told}`)
      await transaction.abort()
      const stayed = messages.filter(({ position }) => position.partition !== lost[0])
      await producer.within((next) => next.sendOffsets(first, stayed))
      assert.deepEqual(await contentsText(output), [])
      await Promise.all([first.shutdown(), second.shutdown(), producer.shutdown()])
    })

    test("whose partition moves between them and the commit are refused with it: nothing of the transaction is there", async () => {
      if (!holdsOffsets() || !rig.client.manifest.groups.supported) return
      const input = await rig.topic(2)
      await fill(input, ["a0"], 0)
      await fill(input, ["b0"], 1)
      const output = await rig.topic()
      const producer = await readyProducer(rig)
      const group = input.consumerGroup("workers")
      const first = await group.consumer(disabled)
      const messages = await kept(first, 2)
      let moved = false
      first.on({
        revoked: () => {
          moved = true
        },
      })
      const transaction = await producer.begin()
      await transaction.send(output, encode("never"))
      await transaction.sendOffsets(first, messages)
      const second = await group.consumer(disabled)
      await until("a partition to move", () => moved || undefined)
      await until("the other member to hold it", async () => {
        const { members } = await group.describe()
        return members.length === 2 && members.every(({ partitions }) => partitions.length === 1) ? true : undefined
      })
      const told = await transaction.commit().then(undefined, (error) => error)
      assert.ok(["not-assigned", "transaction-aborted"].includes(told?.kind), `${told}`)
      await transaction.abort()
      assert.deepEqual(await contentsText(output), [])
      assert.deepEqual(
        [await storedEither(0, first, second), await storedEither(1, first, second)],
        [undefined, undefined],
      )
      await Promise.all([first.shutdown(), second.shutdown(), producer.shutdown()])
    })

    test("of a history that was purged are refused", async () => {
      if (!holdsOffsets() || rig.client.manifest.catalog.purge !== "restarts") return
      const input = await rig.filled(3)
      const producer = await readyProducer(rig)
      const consumer = input.consumer("worker", 0, disabled)
      const messages = await kept(consumer, 2)
      const transaction = await producer.begin()
      await input.purge()
      const told = await transaction
        .sendOffsets(consumer, messages)
        .then(() => transaction.commit())
        .then(undefined, (error) => error)
      assert.ok(["history-changed", "transaction-aborted"].includes(told?.kind), `${told}`)
      await transaction.abort()
      assert.equal(await storedBy(input, "worker"), undefined)
      await Promise.all([consumer.shutdown(), producer.shutdown()])
    })
  })
}

/** Messages that are still to be used when later ones were read. */
async function kept(consumer: Consumer, count: number): Promise<Message[]> {
  return (await take(consumer, count)).map((message) => message.copy())
}

async function storedAt(consumer: Consumer, partition: number): Promise<bigint | undefined> {
  return (await consumer.storedOffset(partition))?.stored
}

/** Of a partition that one of two members holds. */
async function storedEither(partition: number, one: Consumer, other: Consumer): Promise<bigint | undefined> {
  return await storedAt(one, partition).catch(() => storedAt(other, partition))
}
