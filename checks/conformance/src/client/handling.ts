/** Chapter: `consumer.run`: order, what is stored, the end, dead letters and their way back. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  CancelledError,
  type Consumer,
  type DeadLetterBlock,
  DecodeError,
  deadLetter,
  deadLetterBlock,
  encryptor,
  type Handler,
  HeaderValue,
  type Message,
  MillraceError,
  type RunOptions,
  redrive,
  type Topic,
} from "millrace"
import { type ClientRig, encode, fillOneByOne, take } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { numbered, text, texts } from "../rig/records.ts"

const keys = { ours: new Uint8Array(32).fill(1) }
const ours = encryptor({ current: "ours", keys })
const foreign = encryptor({ current: "other", keys: { other: new Uint8Array(32).fill(3) } })

export function handlingChapter(rig: ClientRig): void {
  describe("run", () => {
    test("handles each message once, in the order of its key, and stores all of it", async () => {
      const topic = await keyed(rig, 4, 120)
      const consumer = topic.consumer("worker", 0)
      const seen: string[] = []
      const options: RunOptions = { concurrency: 16, order: "key" }
      const run = consumer.run(async (message, context) => {
        await new Promise((resolve) => setImmediate(resolve))
        seen.push(text(message.payload))
        if (seen.length === 120) context.stop()
      }, options)
      await settlesWithin("the run", run)
      assert.deepEqual([...seen].sort(byNumber), numbered("r", 0, 120))
      for (let key = 0; key < 4; key++) {
        const own = seen.filter((one) => numberOf(one) % 4 === key)
        assert.deepEqual(own, [...own].sort(byNumber))
      }
      await consumer.shutdown()
      assert.equal((await storedOf(topic, "worker"))?.stored, 119n)
    })

    for (const kind of ["polling", "each"] as const) {
      test(`policy ${kind}: a failure stops it, nothing from the failed message on is stored, and it comes again (A-11)`, async () => {
        const topic = await keyed(rig, 1, 10)
        const consumer = topic.consumer("worker", 0, { commitPolicy: { kind } })
        const run = consumer.run((message) => {
          if (text(message.payload) === "r5") throw new Error("broken")
        })
        await assert.rejects(settlesWithin("the run", run), (error) => {
          return error instanceof MillraceError && error.kind === "handler" && error.context.offset === 5n
        })
        await consumer.shutdown()
        assert.equal((await storedOf(topic, "worker"))?.stored, 4n)
        const next = topic.consumer("worker", 0)
        assert.deepEqual(texts(await take(next, 2)), ["r5", "r6"])
        await next.shutdown()
      })
    }

    test("policy disabled stores nothing of a handler that fails (A-11)", async () => {
      const topic = await keyed(rig, 1, 3)
      const consumer = topic.consumer("worker", 0, { commitPolicy: { kind: "disabled" } })
      const run = consumer.run(() => Promise.reject(new Error("broken")))
      await assert.rejects(settlesWithin("the run", run), MillraceError)
      await consumer.shutdown()
      assert.equal(await storedOf(topic, "worker"), undefined)
    })

    test("a handler that awaits the shutdown does not hang; its message counts, those behind it do not come (A-04)", async () => {
      const topic = await keyed(rig, 1, 10)
      const consumer = topic.consumer("worker", 0)
      const seen: string[] = []
      const run = consumer.run(async (message) => {
        seen.push(text(message.payload))
        if (seen.length === 4) await consumer.shutdown()
      })
      await settlesWithin("the run", run)
      assert.deepEqual(seen, numbered("r", 0, 4))
      assert.equal((await storedOf(topic, "worker"))?.stored, 3n)
    })

    test("a shutdown waits for what runs; the client's close does too", async () => {
      const client = await rig.connect()
      const topic = await keyed(rig, 1, 2)
      const consumer = rig.through(client, topic).consumer("worker", 0)
      const work = Promise.withResolvers<void>()
      let started = false
      const run = consumer.run(async () => {
        started = true
        await work.promise
      })
      await until("the handler", () => started || undefined)
      const close = client.close()
      work.resolve()
      await settlesWithin("the close", close)
      await settlesWithin("the run", run)
      assert.equal((await storedOf(topic, "worker"))?.stored, 0n)
    })

    test("a handler that awaits the client's close does not hang; its message comes again", async () => {
      const client = await rig.connect()
      const topic = await keyed(rig, 1, 3)
      const consumer = rig.through(client, topic).consumer("worker", 0, { commitPolicy: { kind: "each" } })
      const run = consumer.run(async (message) => {
        if (text(message.payload) === "r1") await client.close()
      })
      await settlesWithin("the run", run)
      assert.equal((await storedOf(topic, "worker"))?.stored, 0n)
    })

    test("a signal ends it with CancelledError, and the consumer reads on", async () => {
      const topic = await keyed(rig, 1, 3)
      const consumer = topic.consumer("worker", 0)
      const stop = new AbortController()
      const run = consumer.run((message) => text(message.payload) === "r0" && stop.abort(), { signal: stop.signal })
      await assert.rejects(settlesWithin("the run", run), CancelledError)
      assert.deepEqual(texts(await take(consumer, 2)), ["r1", "r2"])
      await consumer.shutdown()
    })

    test("tries again after a wait, and counts the attempts", async () => {
      const topic = await keyed(rig, 1, 2)
      const consumer = topic.consumer("worker", 0)
      const attempts: string[] = []
      const run = consumer.run(
        (message, context) => {
          attempts.push(`${text(message.payload)} ${context.attempt}`)
          if (attempts.length < 3) throw new Error("not yet")
          if (text(message.payload) === "r1") context.stop()
        },
        { retry: { attempts: 3, backoffMs: 5 } },
      )
      await settlesWithin("the run", run)
      assert.deepEqual(attempts, ["r0 1", "r0 2", "r0 3", "r1 1"])
      await consumer.shutdown()
    })
  })

  describe("dead letters", () => {
    test("hold the bytes, the place, the error and the attempts; redrive sends them back as they were, once", async () => {
      const topic = await rig.topic()
      const dead = rig.handle()
      await topic.producer().sendBatch([
        encode("good"),
        {
          payload: encode("bad"),
          key: "ann",
          headers: [
            ["n", HeaderValue.int32(7)],
            ["n", "eight"],
          ],
        },
        encode("good too"),
      ])
      const consumer = topic.consumer("worker", 0)
      const [, bad] = await buried(consumer, dead, { retry: { attempts: 2, backoffMs: 1 } })
      await consumer.shutdown()
      assert.equal((await storedOf(topic, "worker"))?.stored, 2n)
      const [letter] = await all(dead)
      assert.equal(text(letter?.payload), "bad")
      assert.equal(text(letter?.key), "ann")
      const block = deadLetterBlock((letter as Message).headers) as DeadLetterBlock
      assert.deepEqual(
        [block.origin, block.partition, block.offset, block.attempts, block.kind, block.error, block.consumer],
        [{ stream: topic.stream, topic: topic.name }, 0, bad?.position.offset, 2, "Error", "bad is bad", "worker"],
      )
      assert.deepEqual(await redrive(dead), { sent: 1, unwanted: 0, empty: 0, foreign: 0 })
      assert.deepEqual(await redrive(dead), { sent: 0, unwanted: 0, empty: 0, foreign: 0 })
      const back = (await all(topic)).at(-1)
      assert.deepEqual([text(back?.payload), text(back?.key)], ["bad", "ann"])
      assert.deepEqual(
        Array.from(back?.headers ?? [], ([name, value]) => [name, value.kind, value.value]),
        [
          ["n", "int32", 7],
          ["n", "string", "eight"],
        ],
      )
    })

    test("are sent where redrive is told, as many as it is told, and only what its filter wants", async () => {
      const topic = await keyed(rig, 1, 0)
      const dead = rig.handle()
      const other = await rig.topic()
      await fillOneByOne(topic, ["bad 0", "bad 1", "bad 2", "bad 3"])
      const consumer = topic.consumer("worker", 0)
      await buried(consumer, dead, {}, 4)
      await consumer.shutdown()
      const wanted = await redrive(dead, { to: other, limit: 2, filter: ({ payload }) => text(payload) !== "bad 0" })
      assert.deepEqual(wanted, { sent: 2, unwanted: 1, empty: 0, foreign: 0 })
      assert.deepEqual(texts(await all(other)), ["bad 1", "bad 2"])
      assert.equal((await redrive(dead, { to: other })).sent, 1)
      assert.equal((await redrive(dead, { to: other, name: "another" })).sent, 4)
      assert.equal((await redrive(dead, { to: other, again: true })).sent, 4)
      await fillOneByOne(dead, ["not a dead letter"])
      assert.deepEqual(await redrive(dead, { to: other }), { sent: 0, unwanted: 0, empty: 0, foreign: 1 })
    })

    test("that were sent before one whose topic is gone are not sent again by the next redrive", async () => {
      const [here, gone] = [await rig.topic(), await rig.topic()]
      const dead = rig.handle()
      for (const topic of [here, gone, here]) {
        await fillOneByOne(topic, ["bad"])
        const consumer = topic.consumer("worker", 0)
        await buried(consumer, dead, {}, 1)
        await consumer.shutdown()
      }
      await gone.delete()
      for (let i = 0; i < 2; i++) {
        await assert.rejects(settlesWithin("redrive", redrive(dead)), { kind: "not-found" })
      }
      assert.equal((await all(here)).length, 3)
      const rest = await redrive(dead, { filter: ({ origin }) => origin.topic === here.name })
      assert.deepEqual(rest, { sent: 1, unwanted: 1, empty: 0, foreign: 0 })
      assert.equal((await all(here)).length, 4)
    })

    test("are not sent by a filter that does not say true or false", async () => {
      const topic = await keyed(rig, 1, 0)
      const dead = rig.handle()
      await fillOneByOne(topic, ["bad"])
      const consumer = topic.consumer("worker", 0)
      await buried(consumer, dead, {}, 1)
      await consumer.shutdown()
      const filter = (async () => false) as never
      await assert.rejects(settlesWithin("redrive", redrive(dead, { filter })), { kind: "invalid" })
      assert.equal((await redrive(dead)).sent, 1)
    })

    test("are sent in their order, more than one send's worth", async () => {
      const topic = await keyed(rig, 1, 0)
      const dead = rig.handle()
      const other = await rig.topic()
      const payloads = numbered("bad ", 0, 130)
      await topic.producer().sendBatch(payloads.map(encode))
      const consumer = topic.consumer("worker", 0)
      await buried(consumer, dead, { concurrency: 50, order: "none" }, 130)
      await consumer.shutdown()
      const order = texts(await all(dead))
      assert.deepEqual([...order].sort(), [...payloads].sort())
      assert.equal((await redrive(dead, { to: other, limit: 110 })).sent, 110)
      assert.equal((await redrive(dead, { to: other })).sent, 20)
      assert.deepEqual(texts(await all(other)), order)
    })

    test("of an encrypted topic tell nothing to who has no key, and come back readable", async () => {
      const topic = await rig.topic()
      const dead = rig.handle()
      await topic.producer({ encryptor: ours }).send(encode("bad secret"))
      const consumer = topic.consumer("worker", 0, { encryptor: ours })
      await buried(consumer, dead, {}, 1)
      await consumer.shutdown()
      const [raw] = await all(dead, false)
      assert.ok(!JSON.stringify(raw).includes("secret") && !text64(raw).includes("secret"))
      assert.equal(deadLetterBlock((raw as Message).headers), undefined)
      const [letter] = await all(dead, ours)
      assert.equal(text(letter?.payload), "bad secret")
      assert.match(deadLetterBlock((letter as Message).headers)?.error ?? "", /bad secret is bad/)
      assert.equal((await redrive(dead, { encryptor: ours })).sent, 1)
      assert.deepEqual(texts(await all(topic, ours)), ["bad secret", "bad secret"])
    })

    test("of what does not decrypt hold the stored bytes, which redrive sends back byte for byte", async () => {
      const topic = await rig.topic()
      const dead = rig.handle()
      await topic.producer({ encryptor: ours }).send(encode("one"))
      await topic.producer({ encryptor: foreign }).send(encode("two"), { key: "k" })
      await topic.producer({ encryptor: ours }).send(encode("three"))
      const consumer = topic.consumer("worker", 0, { encryptor: ours })
      const seen: string[] = []
      const run = consumer.run(
        (message, context) => {
          seen.push(text(message.payload))
          if (seen.length === 2) context.stop()
        },
        { onFailure: deadLetter(dead) },
      )
      await settlesWithin("the run", run)
      await consumer.shutdown()
      assert.deepEqual(seen, ["one", "three"])
      assert.equal((await storedOf(topic, "worker"))?.stored, 2n)
      const [, stored] = await all(topic, false)
      const [letter] = await all(dead, false)
      assert.deepEqual(letter?.payload, stored?.payload)
      const block = deadLetterBlock((letter as Message).headers)
      assert.deepEqual([block?.content, block?.attempts, block?.kind], ["stored", 0, "decode"])
      assert.equal((await redrive(dead, { encryptor: ours })).sent, 1)
      const back = (await all(topic, false)).at(-1)
      assert.deepEqual([back?.payload, text(back?.key)], [stored?.payload, "k"])
      assert.deepEqual(back?.headers.toJSON(), stored?.headers.toJSON())
    })

    test("of what a group's filter stops at hold the stored bytes; without them it can be skipped", async () => {
      const topic = await keyed(rig, 1, 0)
      const dead = rig.handle()
      await fillOneByOne(topic, ['{"n":0}', "{", '{"n":2}'])
      for (const onFailure of [deadLetter(dead), "skip", "stop"] as const) {
        const group = topic.consumerGroup(`g-${typeof onFailure === "string" ? onFailure : onFailure.kind}`)
        await group.filter().configure({ where: { path: "n", op: "gte", value: 0 } })
        const consumer = await group.consumer({ startAt: { kind: "first" } })
        const seen: string[] = []
        const handle: Handler = (message, context) => {
          if (seen.push(text(message.payload)) === 2) context.stop()
        }
        const run = settlesWithin("the run", consumer.run(handle, { onFailure }))
        if (onFailure === "stop") {
          await assert.rejects(run, (error) => error instanceof DecodeError && error.context.offset === 1n)
          await consumer.seek(0, "skip")
          await settlesWithin("the run behind it", consumer.run(handle))
        } else await run
        await consumer.shutdown()
        assert.deepEqual(seen, ['{"n":0}', '{"n":2}'])
      }
      const [letter] = await all(dead)
      assert.equal(text(letter?.payload), "{")
      const block = deadLetterBlock((letter as Message).headers)
      assert.deepEqual([block?.content, block?.offset, block?.kind], ["stored", 1n, "decode"])
    })

    test("are not needed to skip what does not decrypt, or to stop at it", async () => {
      const topic = await rig.topic()
      await topic.producer({ encryptor: foreign }).send(encode("one"))
      await topic.producer({ encryptor: ours }).send(encode("two"))
      const consumer = topic.consumer("worker", 0, { encryptor: ours })
      await assert.rejects(
        settlesWithin(
          "the run",
          consumer.run(() => {}),
        ),
        DecodeError,
      )
      const seen: string[] = []
      const run = consumer.run(
        (message, context) => {
          seen.push(text(message.payload))
          context.stop()
        },
        { onFailure: "skip" },
      )
      await settlesWithin("the run", run)
      assert.deepEqual(seen, ["two"])
      await consumer.shutdown()
      assert.equal((await storedOf(topic, "worker"))?.stored, 1n)
    })
  })
}

/** `count` records r0, r1, … of so many keys, in one partition. */
async function keyed(rig: ClientRig, keys: number, count: number): Promise<Topic> {
  const topic = await rig.topic()
  const records = numbered("r", 0, count).map((one, n) => ({ payload: encode(one), key: `k${n % keys}` }))
  if (count > 0) await topic.producer().sendBatch(records)
  return topic
}

/** Runs a handler that fails for every payload that begins with "bad", until `last` records were seen. Answers them. */
async function buried(consumer: Consumer, dead: Topic, options: RunOptions, last = 3): Promise<Message[]> {
  const seen = new Map<bigint, Message>()
  const letters = Promise.withResolvers<void>()
  const run = consumer.run(
    (message) => {
      seen.set(message.position.offset, message)
      const payload = text(message.payload)
      if (seen.size === last) letters.resolve()
      if (payload.startsWith("bad")) throw new Error(`${payload} is bad`)
    },
    { onFailure: deadLetter(dead), ...options },
  )
  await settlesWithin("the handlers", letters.promise)
  await consumer.shutdown()
  await settlesWithin("the run", run)
  return [...seen.values()]
}

async function all(topic: Topic, how?: ReturnType<typeof encryptor> | false): Promise<Message[]> {
  await using cursor = await topic.replay(how === undefined ? {} : { encryptor: how })
  const messages: Message[] = []
  for await (const result of cursor.stream()) {
    if (result.kind === "error") throw result.error
    if (result.kind === "record") messages.push(result.message)
  }
  return messages
}

async function storedOf(topic: Topic, name: string): ReturnType<Consumer["storedOffset"]> {
  const consumer = topic.consumer(name, 0)
  try {
    return await consumer.storedOffset()
  } finally {
    await consumer.shutdown()
  }
}

function text64(message: Message | undefined): string {
  return Buffer.from(message?.payload ?? []).toString("latin1")
}

function numberOf(one: string): number {
  return Number(one.slice(1))
}

function byNumber(one: string, other: string): number {
  return numberOf(one) - numberOf(other)
}
