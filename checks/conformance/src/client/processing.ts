/** Chapter: `client.process`: what comes out of what goes in, once; and what is read, stored and told beside it. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { CancelledError, encryptor, FencedError, json, output, type Processor, type Topic } from "millrace"
import { type ClientRig, encode, fill, nothingComes, take } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { numbered, text, texts } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import {
  canProcess,
  contentsOf,
  contentsText,
  copying,
  groupProgress,
  holds,
  readyProducer,
} from "../rig/transacted.ts"

const first = { kind: "first" } as const
const keys = { ours: new Uint8Array(32).fill(1) }
const ours = encryptor({ current: "ours", keys })

export function processingChapter(rig: ClientRig): void {
  describe("process", () => {
    test("makes one, several or no records of each message, at once or later, in order; its progress is what it has handled", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(), await rig.topic()]
      await fill(input, numbered("r", 0, 8))
      const processor = rig.client.process({
        from: { topic: input, group: "workers", startAt: first },
        to: target,
        handler: (message) => {
          const name = text(message.payload)
          const copy = message.copy().payload as Uint8Array
          if (name === "r1") return undefined
          if (name === "r2") return [encode("r2a"), { payload: encode("r2b") }, output(encode("r2c"))]
          if (name === "r3") return Promise.resolve([])
          if (name === "r4") return new Promise((resolve) => setImmediate(resolve, copy))
          return copy
        },
      })
      await settlesWithin("it to read", processor.ready)
      await holds(target, 8)
      assert.deepEqual(await contentsText(target), ["r0", "r2a", "r2b", "r2c", "r4", "r5", "r6", "r7"])
      await settlesWithin("the shutdown", processor.shutdown())
      await processor.done
      const { messages, outputs, batches, aborted } = processor.statistics
      assert.deepEqual([messages, outputs, aborted, batches > 0], [8, 8, 0, true])
      assert.deepEqual(await groupProgress(input, "workers"), { 0: 7n })
    })

    test("sends to several topics, with keys, partitions, headers and tombstones; values of typed topics in and out", async () => {
      if (!canProcess(rig)) return
      const [input, plain, values] = [await rig.topic(), await rig.topic(3), await rig.topic()]
      const number = json((value) => value as { n: number })
      const typed = values.json(number)
      for (let n = 0; n < 3; n++)
        await input
          .json(number)
          .producer()
          .send({ n }, { key: `k${n}` })
      await fill(input, ["not json"])
      await input.producer().send(null, { key: "k0" })
      const failures: string[] = []
      const processor = rig.client.process({
        from: { topic: input.json(number), group: "workers", startAt: first },
        to: typed,
        onFailure: "skip",
        onError: (error, next) => failures.push(`${error.kind} ${next}`),
        handler: (message) => {
          if (message.kind === "tombstone") return output(null, { key: "gone" })
          const { n } = message.value
          return [{ n: n * 10 }, output(encode(`${n}`), { topic: plain, partition: n, headers: [["of", "n"]] })]
        },
      })
      await holds(plain, 3)
      await holds(values, 4)
      await processor.shutdown()
      assert.deepEqual(failures, ["decode skip"])
      assert.equal(processor.statistics.skipped, 1)
      const made = await contentsOf(values)
      assert.deepEqual(
        made.map(({ payload }) => payload && text(payload)),
        ['{"n":0}', '{"n":10}', '{"n":20}', null],
      )
      assert.equal(text(made[3]?.key), "gone")
      assert.deepEqual(
        (await contentsOf(plain)).map(({ payload, position, headers }) => [
          text(payload),
          position.partition,
          headers.get("of")?.value,
        ]),
        [
          ["0", 0, "n"],
          ["1", 1, "n"],
          ["2", 2, "n"],
        ],
      )
      assert.deepEqual(await groupProgress(input, "workers"), { 0: 4n })
    })

    test("decrypts what it reads and encrypts what it makes, as it is told", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(), await rig.topic()]
      await input.producer({ encryptor: ours }).send(encode("secret"))
      const processor = rig.client.process({
        ...copying(input, target),
        from: { topic: input, group: "workers", startAt: first, encryptor: ours },
        encryptor: ours,
      })
      await holds(target, 1)
      await processor.shutdown()
      const [clear] = await contentsOf(target, { encryptor: ours })
      assert.equal(text(clear?.payload), "secret")
      const [sealed] = await contentsOf(target, { encryptor: false })
      assert.ok(!Buffer.from(sealed?.payload ?? []).includes("secret"))
    })

    test("goes on where it was when it is started again: each message comes out once", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(2), await rig.topic()]
      for (let round = 0; round < 3; round++) {
        const processor = rig.client.process({ ...copying(input, target), batchLength: 3 })
        await fill(input, numbered(`a${round}.`, 0, 7), 0)
        await fill(input, numbered(`b${round}.`, 0, 7), 1)
        // Shut down wherever it is.
        await holds(target, 14 * round + 3)
        await settlesWithin("the shutdown", processor.shutdown())
        await processor.done
        const progress = await groupProgress(input, "workers")
        const handled = Object.values(progress).reduce((sum, offset) => sum + Number(offset) + 1, 0)
        assert.equal((await contentsOf(target)).length, handled, "outputs are as many as the group has handled")
      }
      const last = rig.client.process(copying(input, target))
      await holds(target, 42)
      await last.shutdown()
      const made = await contentsText(target)
      assert.deepEqual([...made].sort(), await sorted(input))
      for (const lane of ["a", "b"]) {
        const own = made.filter((one) => one.startsWith(lane))
        assert.deepEqual(own, [...own].sort(), "in the order of its partition")
      }
    })

    test("is seen by readers of other groups when it is committed, and its input may be a transaction's", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(), await rig.topic()]
      const processor = rig.client.process(copying(input, target))
      await processor.ready
      const reader = await target.consumerGroup("others").consumer({ startAt: first })
      const producer = await readyProducer(rig)
      const open = await producer.begin()
      await open.send(input, encode("aborted"))
      await nothingComes(reader)
      await open.abort()
      await producer.within((transaction) => transaction.sendBatch(input, ["one", "two"].map(encode)))
      assert.deepEqual(texts(await take(reader, 2)), ["one", "two"])
      await Promise.all([reader.shutdown(), producer.shutdown(), processor.shutdown()])
      assert.deepEqual(await contentsText(target), ["one", "two"])
    })

    test("can read from the topic that it writes to", async () => {
      if (!canProcess(rig)) return
      const topic = await rig.topic()
      await fill(topic, ["3"])
      const processor = rig.client.process({
        ...copying(topic, topic),
        handler: (message) => {
          const n = Number(text(message.payload))
          return n === 0 ? undefined : encode(`${n - 1}`)
        },
      })
      await holds(topic, 4)
      await processor.shutdown()
      assert.deepEqual(await contentsText(topic), ["3", "2", "1", "0"])
    })
  })

  describe("the end of process", () => {
    test("a shutdown in the middle of a batch commits what was handled, and no handler begins after it", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(), await rig.topic()]
      await fill(input, numbered("r", 0, 10))
      const work = Promise.withResolvers<void>()
      const handled: string[] = []
      const processor = rig.client.process({
        ...copying(input, target),
        handler: async (message) => {
          const payload = message.copy().payload as Uint8Array
          handled.push(text(payload))
          if (handled.length === 4) await work.promise
          return payload
        },
      })
      await until("the fourth handler", () => (handled.length === 4 ? true : undefined))
      const shutdown = processor.shutdown()
      const again = processor.shutdown()
      work.resolve()
      await settlesWithin("the shutdown", Promise.all([shutdown, again]))
      await processor.done
      assert.deepEqual(handled, numbered("r", 0, 4))
      assert.deepEqual(await contentsText(target), numbered("r", 0, 4))
      assert.deepEqual(await groupProgress(input, "workers"), { 0: 3n })
    })

    test("the client's close does the same", async () => {
      if (!canProcess(rig) || rig.under.isolated !== undefined) return
      const client = await rig.connect()
      const [input, target] = [await rig.topic(), await rig.topic()]
      await fill(input, numbered("r", 0, 6))
      const work = Promise.withResolvers<void>()
      let started = false
      const processor = client.process({
        ...copying(rig.through(client, input), rig.through(client, target)),
        handler: async (message) => {
          const payload = message.copy().payload as Uint8Array
          started = true
          if (text(payload) === "r2") await work.promise
          return payload
        },
      })
      await until("a handler", () => started || undefined)
      const close = client.close()
      work.resolve()
      await settlesWithin("the close", close)
      await settlesWithin("the processor", processor.done)
      const made = await contentsText(target)
      assert.deepEqual(made, numbered("r", 0, made.length))
      const progress = await groupProgress(input, "workers")
      assert.deepEqual(progress, made.length === 0 ? {} : { 0: BigInt(made.length - 1) })
    })

    test("a handler may ask for it, by its context or by the processor's shutdown", async () => {
      if (!canProcess(rig)) return
      for (const how of ["stop", "shutdown"] as const) {
        const [input, target] = [await rig.topic(), await rig.topic()]
        await fill(input, numbered("r", 0, 6))
        const processor: Processor = rig.client.process({
          ...copying(input, target),
          handler: async (message, context) => {
            const payload = message.copy().payload as Uint8Array
            if (text(payload) === "r2") {
              if (how === "stop") context.stop()
              else await processor.shutdown()
            }
            return payload
          },
        })
        await settlesWithin(how, processor.done)
        assert.deepEqual(await contentsText(target), numbered("r", 0, 3))
      }
    })

    test("a handler that awaits the client's close does not hang, and nothing is there twice or lost", async () => {
      if (!canProcess(rig) || rig.under.isolated !== undefined) return
      const client = await rig.connect()
      const [input, target] = [await rig.topic(), await rig.topic()]
      await fill(input, numbered("r", 0, 6))
      const processor = client.process({
        ...copying(rig.through(client, input), rig.through(client, target)),
        handler: async (message) => {
          const payload = message.copy().payload as Uint8Array
          if (text(payload) === "r2") await client.close()
          return payload
        },
      })
      await settlesWithin(
        "the processor",
        processor.done.catch(() => {}),
      )
      await client.close()
      const rest = rig.client.process(copying(input, target))
      await holds(target, 6)
      await rest.shutdown()
      assert.deepEqual(await contentsText(target), numbered("r", 0, 6))
    })

    test("a signal ends it with CancelledError, and one that has fired already lets it not begin", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(), await rig.topic()]
      await fill(input, ["r0"])
      const stop = new AbortController()
      const processor = rig.client.process({ ...copying(input, target), signal: stop.signal })
      await holds(target, 1)
      stop.abort()
      await assert.rejects(settlesWithin("the end", processor.done), CancelledError)
      const late = rig.client.process({ ...copying(input, target), signal: stop.signal })
      await assert.rejects(settlesWithin("the late one", late.ready), CancelledError)
      await assert.rejects(late.done, CancelledError)
      await processor.shutdown()
    })

    test("an older processor of the same transactional id ends with FencedError; the newer one does all of it", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(2), await rig.topic()]
      const transactionalId = rig.name("transactions")
      const older = rig.client.process({ ...copying(input, target), transactionalId })
      await older.ready
      const newer = rig.client.process({ ...copying(input, target), transactionalId })
      await newer.ready
      await until("either to hold a partition", async () => {
        const { members } = await input.consumerGroup("workers").describe()
        return members.length === 2 && members.every(({ partitions }) => partitions.length === 1) ? true : undefined
      })
      await fill(input, numbered("a", 0, 5), 0)
      await fill(input, numbered("b", 0, 5), 1)
      await assert.rejects(settlesWithin("the older one", older.done), FencedError)
      await holds(target, 10)
      await newer.shutdown()
      assert.deepEqual((await contentsText(target)).sort(), await sorted(input))
    })

    test("options that make no sense are refused by name", async () => {
      if (!canProcess(rig)) return
      const topic = await rig.topic()
      const base = copying(topic, topic)
      for (const [options, says] of [
        [{ handler: 7 }, "handler"],
        [{ from: { topic } }, "group"],
        [{ from: { topic, group: "g", commitPolicy: { kind: "each" } } }, "commitPolicy"],
        [{ batchLength: 0 }, "batchLength"],
        [{ batchBytes: 0 }, "batchBytes"],
        [{ maxTransactionMs: -1 }, "maxTransactionMs"],
        [{ timeoutMs: 0 }, "timeoutMs"],
        [{ onFailure: "explode" }, "onFailure"],
        [{ retry: { attempts: 0 } }, "attempts"],
        [{ colour: "red" }, "colour"],
      ] as const) {
        await refused(() => rig.client.process({ ...base, ...(options as object) } as never), {
          kind: "invalid",
          says: [says],
        })
      }
    })
  })
}

async function sorted(topic: Topic): Promise<string[]> {
  return (await contentsText(topic)).sort()
}
