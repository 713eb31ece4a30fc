/** Chapter: handlers of `run` in trouble and in parallel: what is in order, what is stored, and how a run ends. The rules are those of docs/handlers.md. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type ConsumerOptions, connect, type RunOptions } from "millrace"
import { type ClientRig, fill, takeTexts } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { storedBy } from "../rig/progress.ts"
import { numbered, text } from "../rig/records.ts"
import { checkedRefusal, refused } from "../rig/refusal.ts"

const disabled: ConsumerOptions = { commitPolicy: { kind: "disabled" } }

export function runningChapter(rig: ClientRig): void {
  describe("handlers at the same time", () => {
    for (const order of ["partition", "none"] as const) {
      test(`order ${order}: as many as concurrency says, and what is stored is the prefix without a gap`, async () => {
        const topic = await rig.filled(12)
        const consumer = topic.consumer("worker", 0, { commitPolicy: { kind: "auto", every: "message" } })
        const first = Promise.withResolvers<void>()
        const done: string[] = []
        let [running, most] = [0, 0]
        const run = consumer.run(
          async (message) => {
            most = Math.max(most, ++running)
            if (message.position.offset === 0n) await first.promise
            else await new Promise((resolve) => setImmediate(resolve))
            running--
            done.push(text(message.payload))
          },
          { concurrency: 4, order },
        )
        if (order === "none") {
          await until("all but the first", () => (done.length === 11 ? true : undefined))
          assert.equal(await storedBy(topic, "worker"), undefined, "the first is not handled yet")
        }
        first.resolve()
        await until("all", () => (done.length === 12 ? true : undefined))
        await consumer.shutdown()
        await settlesWithin("the run", run)
        assert.equal(most, order === "none" ? 4 : 1)
        if (order === "partition") assert.deepEqual(done, numbered("r", 0, 12))
        assert.equal(await storedBy(topic, "worker"), 11n)
      })
    }

    test("order partition: partitions go on side by side, each in its order", async (t) => {
      const { groups } = rig.client.manifest
      if (!groups.supported) return t.skip(groups.reason)
      const topic = await rig.topic(3)
      for (const partition of [0, 1, 2]) await fill(topic, numbered("r", 0, 6), partition)
      const group = topic.consumerGroup("side-by-side")
      const consumer = await group.consumer({ commitPolicy: { kind: "each" } })
      const gate = Promise.withResolvers<void>()
      const begun = new Set<number>()
      const seen = new Map<number, string[]>([0, 1, 2].map((partition) => [partition, []]))
      const run = consumer.run(
        async (message) => {
          const { partition } = message.position
          begun.add(partition)
          if (begun.size === 3) gate.resolve()
          await gate.promise
          seen.get(partition)?.push(text(message.payload))
        },
        { concurrency: 3 },
      )
      await until("all to be handled", () =>
        [...seen.values()].every(({ length }) => length === 6) ? true : undefined,
      )
      await consumer.shutdown()
      await settlesWithin("the run", run)
      for (const texts of seen.values()) assert.deepEqual(texts, numbered("r", 0, 6))
      assert.deepEqual(
        (await group.describe()).lag.map(({ lag }) => lag),
        [0n, 0n, 0n],
      )
    })

    test("maxAhead bounds what a slow message leaves behind it", async () => {
      const topic = await rig.filled(20)
      const consumer = topic.consumer("worker", 0)
      const slow = Promise.withResolvers<void>()
      const done: bigint[] = []
      const run = consumer.run(
        async (message) => {
          if (message.position.offset === 0n) await slow.promise
          done.push(message.position.offset)
        },
        { concurrency: 4, order: "none", maxAhead: 5 },
      )
      await until("some to be handled", () => (done.length >= 4 ? true : undefined))
      for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
      assert.ok(
        done.every((offset) => offset <= 5n),
        `${done.join(", ")} were handled ahead of 0`,
      )
      slow.resolve()
      await until("all", () => (done.length === 20 ? true : undefined))
      await consumer.shutdown()
      await settlesWithin("the run", run)
    })

    test("while it runs nobody else takes messages, and a second run is refused", async () => {
      const topic = await rig.filled(2)
      const consumer = topic.consumer("worker", 0)
      let handled = 0
      const run = consumer.run(() => {
        handled++
      })
      await until("both", () => (handled === 2 ? true : undefined))
      for (const call of [
        () => consumer.next(),
        () => consumer.nextWithin(10),
        () => consumer.receiveRented(),
        () => consumer.batches()[Symbol.asyncIterator]().next(),
        () => consumer.run(() => {}),
      ]) {
        await refused(call, { kind: "invalid", says: ["run"] })
      }
      await consumer.shutdown()
      await settlesWithin("the run", run)
    })
  })

  describe("handlers in trouble", () => {
    for (const thrown of [undefined, null, "a text", 7, { code: 5 }]) {
      test(`a handler that throws ${JSON.stringify(thrown)} fails its message, with that as the cause`, async () => {
        const topic = await rig.filled(3)
        const consumer = topic.consumer("worker", 0)
        const run = consumer.run((message) => {
          if (message.position.offset === 1n) throw thrown
        })
        const error = await refused(() => settlesWithin("the run", run), { kind: "handler", says: ["0", "1"] })
        assert.equal(error.context.offset, 1n)
        assert.deepEqual(error.cause, thrown)
        assert.deepEqual(await takeTexts(consumer, 2), ["r1", "r2"], "it was not handled, so that it comes again")
        await consumer.shutdown()
      })
    }

    test("onFailure skip counts a failed message as handled, and onError is told of each attempt and of what comes next", async () => {
      const topic = await rig.filled(4)
      const consumer = topic.consumer("worker", 0)
      const told: string[] = []
      const handled: string[] = []
      const options: RunOptions = {
        retry: { attempts: 2, backoffMs: 1 },
        onFailure: "skip",
        onError(error, next) {
          told.push(`${checkedRefusal(error, "handler").context.offset} ${next}`)
        },
      }
      const run = consumer.run(async (message) => {
        if (message.position.offset === 1n) throw new Error("broken")
        handled.push(text(message.payload))
      }, options)
      await until("the others", () => (handled.length === 3 ? true : undefined))
      await consumer.shutdown()
      await settlesWithin("the run", run)
      assert.deepEqual(told, ["1 retry", "1 skip"])
      assert.equal(await storedBy(topic, "worker"), 3n)
    })

    test("an onError that throws stops the run with that; nothing from the failed message on is stored", async () => {
      const topic = await rig.filled(4)
      const consumer = topic.consumer("worker", 0)
      const run = consumer.run(
        (message) => {
          if (message.position.offset === 2n) throw new Error("broken")
        },
        {
          onFailure: "skip",
          onError() {
            throw new Error("enough")
          },
        },
      )
      await assert.rejects(settlesWithin("the run", run), /enough/)
      await consumer.shutdown()
      assert.equal(await storedBy(topic, "worker"), 1n)
    })

    test("a handler that never settles: the run ends at its drain time, the shutdown at its own; the message comes again", async () => {
      const topic = await rig.filled(3)
      const consumer = topic.consumer("worker", 0)
      const signals: AbortSignal[] = []
      const run = consumer.run(
        (message, context) => {
          if (message.position.offset !== 1n) return undefined
          signals.push(context.signal)
          context.stop()
          return new Promise(() => {})
        },
        { drainTimeoutMs: 50 },
      )
      await refused(() => settlesWithin("the run", run), "timeout")
      assert.equal(signals[0]?.aborted, true, "the handler was told")
      await settlesWithin(
        "the shutdown",
        consumer.shutdown({ timeoutMs: 2_000 }).catch(() => {}),
      )
      assert.equal(await storedBy(topic, "worker"), 0n)
      const again = topic.consumer("worker", 0)
      assert.deepEqual(await takeTexts(again, 2), ["r1", "r2"])
      await again.shutdown()
    })

    test("a handler that never settles does not hold up the client's close for good", async () => {
      // Not one of the rig's: it would be closed again at the end, with the same failure.
      const client = await connect(rig.url)
      const topic = await rig.filled(2)
      const consumer = rig.through(client, topic).consumer("worker", 0)
      let begun = false
      const run = consumer.run(() => {
        begun = true
        return new Promise(() => {})
      })
      const ended = run.catch((error: unknown) => error)
      await until("the handler", () => (begun ? true : undefined))
      await settlesWithin(
        "the close",
        client.close({ timeoutMs: 300 }).catch(() => {}),
      )
      await settlesWithin("the run", ended)
      assert.equal(await storedBy(topic, "worker"), undefined)
    })

    test("context.stop hands the rest to whoever reads on, in order", async () => {
      const topic = await rig.filled(6)
      const consumer = topic.consumer("worker", 0, { commitPolicy: { kind: "each" } })
      const run = consumer.run((message, context) => {
        if (message.position.offset === 2n) context.stop()
      })
      await settlesWithin("the run", run)
      await until("the last to be stored", async () => ((await storedBy(topic, "worker")) === 2n ? true : undefined))
      assert.deepEqual(await takeTexts(consumer, 3), ["r3", "r4", "r5"])
      await consumer.shutdown()
    })

    test("policy disabled: only what the handler commits is stored", async () => {
      const topic = await rig.filled(5)
      const consumer = topic.consumer("worker", 0, disabled)
      const run = consumer.run(async (message, context) => {
        if (message.position.offset === 2n) await consumer.commit(message)
        if (message.position.offset === 4n) context.stop()
      })
      await settlesWithin("the run", run)
      await consumer.shutdown()
      assert.equal(await storedBy(topic, "worker"), 2n)
    })

    test("bad options and a handler that is none are refused by name, and the consumer reads on", async () => {
      const topic = await rig.filled(1)
      const consumer = topic.consumer("worker", 0)
      const calls: [unknown, readonly string[]][] = [
        [{ concurrency: 0 }, ["concurrency", "0"]],
        [{ concurrency: 1.5 }, ["concurrency", "1.5"]],
        [{ order: "random" }, ["order", "random", "key"]],
        [{ retry: { attempts: 0 } }, ["attempts", "0"]],
        [{ retry: { tries: 3 } }, ["tries", "attempts"]],
        [{ onFailure: "ignore" }, ["onFailure", "ignore", "deadLetter"]],
        [{ onFailure: topic }, ["onFailure", "deadLetter"]],
        [{ nosuch: 1 }, ["nosuch", "concurrency"]],
      ]
      for (const [options, says] of calls) {
        await refused(() => consumer.run(() => {}, options as RunOptions), { kind: "invalid", says })
      }
      await refused(() => consumer.run(undefined as never), { kind: "invalid", says: ["run", "function"] })
      assert.deepEqual(await takeTexts(consumer, 1), ["r0"])
      await consumer.shutdown()
    })
  })
}
