/** Chapter: what work queues keep of a record, to the dead-letter topic and back: payloads, keys, headers, and what does not decrypt. */
import assert from "node:assert/strict"
import { describe } from "node:test"
import {
  type DeadLetterBlock,
  DecodeError,
  deadLetter,
  deadLetterBlock,
  type Exhaustion,
  encryptor,
  type Message,
  type OutgoingRecord,
  type QueueConsumer,
  type QueueMessage,
  type QueueOptions,
} from "millrace"
import { type ClientRig, encode, fillOneByOne } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { text, texts } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import { contentsOf, filledQueue, pulled, pulledOne, queueTest, untilDone } from "../rig/work-queues.ts"

const ours = encryptor({ current: "ours", keys: { ours: new Uint8Array(32).fill(1) } })
const foreign = encryptor({ current: "other", keys: { other: new Uint8Array(32).fill(3) } })

export function queueLettersChapter(rig: ClientRig): void {
  describe("queues: dead letters", { concurrency: true }, () => {
    queueTest(
      rig,
      "a message whose deliveries are used up is stored with what happened, and comes back when it is told",
      async () => {
        const dead = rig.handle()
        const { topic, queue } = await filledQueue(rig, ["good", "bad"], {
          maxDeliver: 2,
          deadLetter: deadLetter(dead),
        })
        await using consumer = await queue.consumer({ prefetch: 0 })
        const ends = endsOf(consumer)
        const told: string[] = []
        const run = consumer.run(
          (message) => {
            if (text(message.payload) === "bad") throw new TypeError("no good")
          },
          { backoffMs: 1, onError: (_, next) => told.push(next) },
        )
        await until("the dead letter", () => ends[0])
        await untilDone(queue)
        assert.deepEqual(told, ["retry", "deadLetter"])
        assert.deepEqual([ends[0]?.deliveries, ends[0]?.deadLetter, ends[0]?.position.offset], [2, true, 1n])
        assert.match(ends[0]?.reason ?? "", /no good/)
        const [letter] = await contentsOf(dead)
        const { origin, partition, offset, attempts, kind, error, content, queue: name } = blockOf(letter)
        assert.deepEqual(
          { origin, partition, offset, attempts, kind, error, content, name },
          {
            origin: { stream: topic.stream, topic: topic.name },
            ...{ partition: 0, offset: 1n, attempts: 2, kind: "TypeError", error: "no good", content: "message" },
            name: "work",
          },
        )
        await consumer.shutdown()
        await settlesWithin("the run", run)
        assert.equal(await queue.redrive(), 1)
        assert.equal(await queue.redrive(), 0)
        await using next = await queue.consumer()
        const back = await pulledOne(next)
        assert.deepEqual([text(back.payload), back.deliveries, back.position.offset], ["bad", 1, 2n])
        assert.deepEqual(texts(await contentsOf(topic)), ["good", "bad", "bad"])
      },
    )

    queueTest(rig, "terminate stores it with its reason before the message leaves the queue", async () => {
      const dead = rig.handle()
      const { queue } = await filledQueue(rig, ["a"], { deadLetter: deadLetter(dead) })
      await using consumer = await queue.consumer()
      const ends = endsOf(consumer)
      const message = await pulledOne(consumer)
      assert.deepEqual(await Promise.all([message.terminate("no such product"), message.ack()]), [true, false])
      assert.deepEqual([ends[0]?.reason, ends[0]?.deadLetter], ["no such product", true])
      const [letter] = await contentsOf(dead)
      assert.deepEqual([blockOf(letter).error, blockOf(letter).attempts], ["no such product", 1])
      await untilDone(queue)
    })

    queueTest(
      rig,
      "so do deliveries that nobody has settled, and failures that say that they are for good",
      async () => {
        const dead = rig.handle()
        const options: QueueOptions = { maxDeliver: 2, ackWaitMs: 300, deadLetter: deadLetter(dead) }
        const { queue } = await filledQueue(rig, ["for good", "held"], options)
        await using consumer = await queue.consumer({ prefetch: 0 })
        const ends = endsOf(consumer)
        const failing = consumer.process(() => Promise.reject(Object.assign(new Error("gone"), { retryable: false })))
        await assert.rejects(settlesWithin("the handling", failing), /gone/)
        assert.deepEqual(texts(await contentsOf(dead)), ["for good"])
        const held: QueueMessage[] = []
        // Somebody has to ask for messages for the end to be noticed.
        await until("the end of what was held", async () => {
          held.push(...(await consumer.pull({ maxWaitMs: 50 })))
          return ends[1]
        })
        assert.ok(held.length <= 2 && held.every(({ deliveries }) => deliveries <= 2), "it was handed out too often")
        assert.deepEqual(texts(await contentsOf(dead)), ["for good", "held"])
        await untilDone(queue)
      },
    )

    queueTest(rig, "without a topic for them it is given up, which is told", async () => {
      const { queue } = await filledQueue(rig, ["a", "b"], { maxDeliver: 1 })
      await using consumer = await queue.consumer({ prefetch: 0 })
      const ends = endsOf(consumer)
      for (const name of ["a", "b"]) {
        await assert.rejects(
          settlesWithin(
            name,
            consumer.process(() => Promise.reject(new Error("broken"))),
          ),
          /broken/,
        )
      }
      assert.deepEqual(
        ends.map(({ deadLetter: stored, deliveries }) => [stored, deliveries]),
        [
          [false, 1],
          [false, 1],
        ],
      )
      await untilDone(queue)
      await refused(() => queue.redrive(), { kind: "invalid", says: ["deadLetter"] })
    })

    queueTest(rig, "queues that share a dead-letter topic send back their own, as their filter says", async () => {
      const [dead, topic] = [rig.handle(), await rig.topic()]
      await fillOneByOne(topic, ["a", "b"])
      const queues = ["one", "other"].map((name) => topic.queue(name, { deadLetter: deadLetter(dead) }))
      for (const queue of queues) {
        await using consumer = await queue.consumer()
        const messages = await pulled(consumer, 2)
        assert.deepEqual(await Promise.all(messages.map((message) => message.terminate("bad"))), [true, true])
      }
      assert.equal((await contentsOf(dead)).length, 4)
      const [one, other] = queues
      assert.equal(await one?.redrive({ filter: ({ payload }) => text(payload) === "b" }), 1)
      assert.equal(await other?.redrive({ limit: 1 }), 1)
      assert.equal(await other?.redrive(), 1)
      assert.deepEqual(
        texts(await contentsOf(topic))
          .slice(2)
          .sort(),
        ["a", "b", "b"],
      )
    })
  })

  describe("queues: fidelity", { concurrency: true }, () => {
    queueTest(rig, "A-17, A-19: tombstones, empty payloads, and headers of one name arrive by every verb", async () => {
      const dead = rig.handle()
      const topic = await rig.topic()
      await topic.producer().sendBatch(oddRecords)
      const sent = (await contentsOf(topic)).map(comparable)
      assert.deepEqual(
        sent.map(({ payload, key }) => [payload, key]),
        [
          [null, "k"],
          ["", null],
          ["x", null],
        ],
      )
      assert.deepEqual(sent[2]?.headers, ["a=1", "b=x", "a=2"])
      await using one = await topic.queue("one").consumer()
      assert.deepEqual((await pulled(one, 3)).map(comparable), sent, "pull")
      await using two = await topic.queue("two").consumer()
      const handled = await settlesWithin("the batch", two.processBatch(3, comparable))
      assert.deepEqual(
        handled.map((result) => (result.status === "fulfilled" ? result.value : result.reason)),
        sent,
        "processBatch",
      )
      const queue = topic.queue("three", { deadLetter: deadLetter(dead) })
      await using three = await queue.consumer()
      for (const message of await pulled(three, 3)) assert.equal(await message.terminate("bad"), true)
      const letters = await contentsOf(dead)
      assert.deepEqual(
        letters.map((letter) => ({ ...comparable(letter), headers: headersOf(blockOf(letter)) })),
        sent,
        "dead letters",
      )
      assert.equal(await queue.redrive(), 3)
      assert.deepEqual((await pulled(three, 3)).map(comparable), sent, "redriven")
      assert.deepEqual((await contentsOf(topic)).slice(3).map(comparable), sent)
    })

    queueTest(
      rig,
      "records that are encrypted are handed out readable, and travel encrypted to the dead-letter topic",
      async () => {
        const dead = rig.handle()
        const topic = await rig.topic()
        await topic.producer({ encryptor: ours }).send(encode("secret"), { key: "k" })
        const queue = topic.queue("work", { deadLetter: deadLetter(dead) })
        await using consumer = await queue.consumer({ encryptor: ours })
        const message = await pulledOne(consumer)
        assert.equal(text(message.payload), "secret")
        assert.equal(await message.terminate("bad"), true)
        const [raw] = await contentsOf(dead, { encryptor: false })
        assert.equal(new TextDecoder().decode(raw?.payload ?? undefined).includes("secret"), false)
        assert.deepEqual(texts(await contentsOf(dead, { encryptor: ours })), ["secret"])
        assert.equal(await queue.redrive({ encryptor: ours }), 1)
        assert.equal(text((await pulledOne(consumer)).payload), "secret")
      },
    )

    queueTest(
      rig,
      "A-31: what does not decrypt is a failed delivery: it stops nothing, and ends as it is stored",
      async () => {
        const dead = rig.handle()
        const topic = await rig.topic()
        for (const [key, payload] of [
          [ours, "a"],
          [foreign, "bad"],
          [ours, "b"],
        ] as const) {
          await topic.producer({ encryptor: key }).send(encode(payload))
        }
        const queue = topic.queue("work", { maxDeliver: 2, deadLetter: deadLetter(dead) })
        await using consumer = await queue.consumer({ encryptor: ours })
        const ends = endsOf(consumer)
        const [seen, errors]: [string[], unknown[]] = [[], []]
        while (ends.length === 0 || seen.length < 2) {
          try {
            for (const message of await consumer.pull({ max: 5, maxWaitMs: 100 })) {
              seen.push(text(message.payload))
              await message.ack()
            }
          } catch (error) {
            errors.push(error)
          }
        }
        assert.deepEqual(seen, ["a", "b"])
        assert.equal(errors.length, 2)
        for (const error of errors) assert.ok(error instanceof DecodeError && error.context.offset === 1n)
        await untilDone(queue)
        const [, stored] = await contentsOf(topic, { encryptor: false })
        const [letter] = await contentsOf(dead, { encryptor: false })
        assert.deepEqual(letter?.payload, stored?.payload)
        assert.deepEqual([blockOf(letter).content, blockOf(letter).attempts], ["stored", 2])
        await using raw = await topic.queue("raw").consumer({ encryptor: false })
        assert.deepEqual((await pulled(raw, 2))[1]?.payload, stored?.payload)
      },
    )
  })
}

/** Null and empty are two payloads; a name may have several headers. */
const oddRecords: readonly OutgoingRecord[] = [
  { payload: null, key: "k" },
  { payload: new Uint8Array(0) },
  {
    payload: encode("x"),
    headers: [
      ["a", "1"],
      ["b", "x"],
      ["a", "2"],
    ],
  },
]

interface Comparable {
  readonly payload: string | null
  readonly key: string | null
  readonly headers: readonly string[]
}

function comparable(message: Message): Comparable {
  const { payload, key } = message
  return {
    payload: payload === null ? null : text(payload),
    key: key === null ? null : text(key),
    headers: headersOf(message),
  }
}

function headersOf({ headers }: Pick<Message | DeadLetterBlock, "headers">): string[] {
  return Array.from(headers, ([name, value]) => `${name}=${value.value}`)
}

function blockOf(letter: Message | undefined): DeadLetterBlock {
  const block = letter === undefined ? undefined : deadLetterBlock(letter.headers)
  assert.ok(block !== undefined, "there is no dead letter")
  return block
}

/** What the consumer tells of messages that come no more. */
function endsOf(consumer: QueueConsumer): Exhaustion[] {
  const ends: Exhaustion[] = []
  consumer.on({ exhausted: (end) => ends.push(end) })
  return ends
}
