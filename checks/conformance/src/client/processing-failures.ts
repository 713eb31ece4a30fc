/** Chapter: what becomes of messages that `process` cannot handle, and of those whose partitions move while it does. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  type DeadLetterBlock,
  deadLetter,
  deadLetterBlock,
  json,
  type Message,
  MillraceError,
  output,
  type Processor,
  redrive,
} from "millrace"
import { type ClientRig, encode, fill } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { canProcess, contentsOf, contentsText, copying, groupProgress, holds } from "../rig/transacted.ts"

export function processingFailuresChapter(rig: ClientRig): void {
  describe("failures of process", () => {
    test("stop: what was handled before is committed, the message is named, and comes again to the next one", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(), await rig.topic()]
      await fill(input, numbered("r", 0, 6))
      const processor = rig.client.process({ ...copying(input, target), handler: failingAt("r3") })
      await assert.rejects(settlesWithin("the end", processor.done), (error) => {
        return error instanceof MillraceError && error.kind === "handler" && error.context.offset === 3n
      })
      assert.deepEqual(await contentsText(target), numbered("r", 0, 3))
      assert.deepEqual(await groupProgress(input, "workers"), { 0: 2n })
      const next = rig.client.process(copying(input, target))
      await holds(target, 6)
      await next.shutdown()
      assert.deepEqual(await contentsText(target), numbered("r", 0, 6))
    })

    test("retry: so many attempts, counted, while other partitions go on", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(2), await rig.topic()]
      await fill(input, ["bad", "after"], 0)
      await fill(input, numbered("good", 0, 3), 1)
      const attempts: string[] = []
      const told: string[] = []
      const processor = rig.client.process({
        ...copying(input, target),
        retry: { attempts: 4, backoffMs: 1 },
        onError: (_, next) => told.push(next),
        handler: (message, { attempt }) => {
          const payload = message.copy().payload as Uint8Array
          if (text(payload) === "bad") {
            attempts.push(`${attempt}`)
            if (attempt < 4) throw new Error("not yet")
          }
          return payload
        },
      })
      await holds(target, 5)
      await processor.shutdown()
      assert.deepEqual(attempts, ["1", "2", "3", "4"])
      assert.deepEqual(told, ["retry", "retry", "retry"])
      const made = await contentsText(target)
      assert.ok(made.indexOf("bad") < made.indexOf("after"))
      assert.deepEqual([...made].sort(), ["after", "bad", "good0", "good1", "good2"])
    })

    test("skip: it counts as processed, without outputs", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(), await rig.topic()]
      await fill(input, numbered("r", 0, 4))
      const processor = rig.client.process({
        ...copying(input, target),
        onFailure: "skip",
        handler: failingAt("r1"),
      })
      await holds(target, 3)
      await processor.shutdown()
      await processor.done
      assert.deepEqual(await contentsText(target), ["r0", "r2", "r3"])
      assert.deepEqual(await groupProgress(input, "workers"), { 0: 3n })
      assert.deepEqual([processor.statistics.skipped, processor.statistics.messages], [1, 4])
    })

    test("deadLetter: its dead letter is there once, whatever is aborted around it, and redrive brings it back", async () => {
      if (!canProcess(rig)) return
      const [input, target, dead] = [await rig.topic(), await rig.topic(), rig.handle()]
      await fill(input, ["r0", "bad", "r2", "huge", "r4"])
      const { payloadBytes } = rig.client.manifest.limits
      const processor = rig.client.process({
        ...copying(input, target),
        onFailure: deadLetter(dead),
        retry: { attempts: 2, backoffMs: 1 },
        handler: (message) => {
          const payload = message.copy().payload as Uint8Array
          if (text(payload) === "bad") throw new Error("bad is bad")
          return text(payload) === "huge" ? new Uint8Array(payloadBytes + 1) : payload
        },
      })
      await holds(target, 3)
      await holds(input, 5)
      await settlesWithin("the shutdown", processor.shutdown())
      await processor.done
      assert.deepEqual(await contentsText(target), ["r0", "r2", "r4"])
      assert.deepEqual(await groupProgress(input, "workers"), { 0: 4n })
      const letters = await contentsOf(dead)
      assert.deepEqual(
        letters.map(({ payload }) => text(payload)),
        ["bad", "huge"],
      )
      const block = deadLetterBlock((letters[0] as Message).headers) as DeadLetterBlock
      assert.deepEqual(
        [block.origin.topic, block.offset, block.attempts, block.error],
        [input.name, 1n, 2, "bad is bad"],
      )
      assert.equal(processor.statistics.deadLetters, 2)
      assert.equal((await redrive(dead)).sent, 2)
      const next = rig.client.process(copying(input, target))
      await holds(target, 5)
      await next.shutdown()
      assert.deepEqual(await contentsText(target), ["r0", "r2", "r4", "bad", "huge"])
    })

    test("A-31: a record that does not decode goes the same ways, and its bytes are in the dead letter", async () => {
      if (!canProcess(rig)) return
      const typed = json((value) => value as { n: number })
      const [input, target] = [await rig.topic(), await rig.topic()]
      await fill(input, ['{"n":1}', "not json", '{"n":2}'])
      const handler = (message: { kind: string; value?: { n: number } | undefined }) => encode(`${message.value?.n}`)
      const from = { topic: input.json(typed), startAt: { kind: "first" } } as const
      const stopped = rig.client.process({ from: { ...from, group: "stop" }, to: target, handler })
      await assert.rejects(settlesWithin("the end", stopped.done), (error) => {
        return error instanceof MillraceError && error.context.offset === 1n
      })
      assert.deepEqual(await contentsText(target), ["1"])
      const dead = rig.handle()
      const burying = rig.client.process({
        from: { ...from, group: "bury" },
        to: target,
        onFailure: deadLetter(dead),
        handler,
      })
      await holds(target, 3)
      await burying.shutdown()
      assert.deepEqual(await contentsText(target), ["1", "1", "2"])
      assert.deepEqual(await contentsText(dead), ["not json"])
    })

    test("an answer that is no output fails its message, by name, and so does one that has nowhere to go", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(), await rig.topic()]
      const answers: unknown[] = [7, "text", null, { colour: "red" }, [encode("part"), 7], output("text"), {}]
      await fill(input, numbered("r", 0, answers.length + 1))
      const told: string[] = []
      const processor = rig.client.process({
        ...copying(input, target),
        onFailure: "skip",
        onError: (error) => told.push(error.message),
        handler: (message) => {
          const index = Number(message.position.offset)
          return index < answers.length ? (answers[index] as never) : encode("good")
        },
      })
      await holds(target, 1)
      await processor.shutdown()
      assert.deepEqual(await contentsText(target), ["good"], "nothing of an answer that is refused in part")
      assert.equal(told.length, answers.length)
      const nowhere = rig.client.process({
        from: { topic: input, group: "nowhere", startAt: { kind: "first" } },
        handler: () => output(encode("lost")) as never,
      })
      await assert.rejects(settlesWithin("the end", nowhere.done), /topic/)
    })

    test("an output for a partition that is not there is found among others, and fails its message alone", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(), await rig.topic()]
      await fill(input, numbered("r", 0, 4))
      const processor = rig.client.process({
        ...copying(input, target),
        onFailure: "skip",
        handler: (message) => {
          const payload = message.copy().payload as Uint8Array
          return text(payload) === "r1" ? output(payload, { partition: 9 }) : payload
        },
      })
      await holds(target, 3)
      await settlesWithin("the shutdown", processor.shutdown())
      await processor.done
      assert.deepEqual(await contentsText(target), ["r0", "r2", "r3"])
      assert.deepEqual(await groupProgress(input, "workers"), { 0: 3n })
      assert.equal(processor.statistics.skipped, 1)
    })

    test("a topic that is not there, and is not to be created, ends it: nothing of its messages counts", async () => {
      if (!canProcess(rig)) return
      const [input, absent] = [await rig.topic(), rig.handle()]
      await fill(input, ["r0"])
      const options = { ...copying(input, absent), createTopic: false, createStream: false }
      const processor = rig.client.process(options)
      await assert.rejects(settlesWithin("the end", processor.done), (error) => {
        return error instanceof MillraceError && error.kind === "not-found" && error.message.includes(absent.name)
      })
      assert.deepEqual(await groupProgress(input, "workers"), {})
    })

    test("an onError or a listener that throws ends it with what it threw; what was committed stays", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(), await rig.topic()]
      await fill(input, ["r0", "r1"])
      const broken = new Error("the listener is broken")
      const processor = rig.client.process({
        ...copying(input, target),
        onFailure: "skip",
        handler: failingAt("r1"),
        onError: () => {
          throw broken
        },
      })
      await assert.rejects(settlesWithin("the end", processor.done), (error) => {
        return error === broken || (error as Error).cause === broken
      })
      assert.deepEqual(await contentsText(target), ["r0"])
    })
  })

  describe("partitions that move while process works", () => {
    test("every message comes out once, in the order of its partition, while members come and go", async () => {
      if (!canProcess(rig)) return
      const partitions = 4
      const [input, target] = [await rig.topic(partitions), await rig.topic(partitions)]
      const options = {
        ...copying(input, target),
        batchLength: 7,
        handler: async (message: Message) => {
          const { partition, offset } = message.position
          const payload = message.copy().payload as Uint8Array
          if (offset % 5n === 0n) await new Promise((resolve) => setImmediate(resolve))
          return { payload, partition }
        },
      }
      const members: Processor[] = [rig.client.process(options)]
      let sent = 0
      for (let round = 0; round < 4; round++) {
        members.push(rig.client.process(options))
        for (let partition = 0; partition < partitions; partition++) {
          await fill(input, numbered(`${partition}.${round}.`, 10, 40), partition)
        }
        sent += 30 * partitions
        await holds(target, sent - 60)
        if (round % 2 === 1) await settlesWithin("a member's end", members.shift()?.shutdown() as Promise<void>)
      }
      await holds(target, sent)
      await settlesWithin("the end", Promise.all(members.map((member) => member.shutdown())))
      await Promise.all(members.map((member) => member.done))
      const places = (messages: readonly Message[]): string[] =>
        messages.map(({ payload, position }) => `${position.partition}: ${text(payload)}`)
      assert.deepEqual(places(await contentsOf(target)), places(await contentsOf(input)))
    })

    test("a message that waits for its next attempt is not lost when its partition goes", async () => {
      if (!canProcess(rig)) return
      const [input, target] = [await rig.topic(2), await rig.topic()]
      await fill(input, numbered("a", 0, 3), 0)
      await fill(input, numbered("b", 0, 3), 1)
      let failures = 0
      const first = rig.client.process({
        ...copying(input, target),
        // It waits for longer than anything here takes.
        retry: { attempts: 2, backoffMs: 60_000, maxBackoffMs: 60_000 },
        handler: (message) => {
          const payload = message.copy().payload as Uint8Array
          if (text(payload).endsWith("1")) {
            failures++
            throw new Error("not yet")
          }
          return payload
        },
      })
      await until("both to wait", () => (failures === 2 ? true : undefined))
      const second = rig.client.process(copying(input, target))
      // The partition that moves is done by the other one; the one that stays waits.
      await holds(target, 4)
      await settlesWithin("the end of the first", first.shutdown())
      await holds(target, 6)
      await second.shutdown()
      const made = await contentsText(target)
      assert.deepEqual([...made].sort(), ["a0", "a1", "a2", "b0", "b1", "b2"])
    })
  })
}

/** Copies what it is given, and throws for one of them. */
function failingAt(payload: string): (message: Message) => Uint8Array {
  return (message) => {
    const copy = message.copy().payload as Uint8Array
    if (text(copy) === payload) throw new Error(`${payload} is bad`)
    return copy
  }
}
