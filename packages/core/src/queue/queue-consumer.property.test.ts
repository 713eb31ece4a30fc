/** Consumers over a queue whose requests and answers get lost, with handlers that fail and are slow: nothing is lost. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { ConnectionError } from "@millrace/contract"
import { seededRandom } from "@millrace/runtime"
import fc from "fast-check"
import { QueueRig, textOf } from "./fake-queue.test-support.ts"
import type { QueueConsumer } from "./queue-consumer.ts"
import type { QueueMessage } from "./queue-message.ts"

type Verb = "process" | "processBatch" | "run" | "iterate" | "pull"

interface Course {
  readonly seed: number
  readonly verbs: readonly Verb[]
  readonly ackPolicy: "explicit" | "all"
  readonly failing: number
  readonly slow: number
  readonly losing: number
  readonly messages: number
}

const course: fc.Arbitrary<Course> = fc.record({
  seed: fc.integer(),
  verbs: fc.array(fc.constantFrom<Verb>("process", "processBatch", "run", "iterate", "pull"), {
    minLength: 1,
    maxLength: 3,
  }),
  ackPolicy: fc.constantFrom("explicit", "all"),
  failing: fc.integer({ min: 0, max: 3 }),
  slow: fc.integer({ min: 0, max: 3 }),
  losing: fc.integer({ min: 0, max: 3 }),
  messages: fc.integer({ min: 1, max: 40 }),
})

/** Works until it is shut down. Failures of requests are the course's. */
async function work(
  consumer: QueueConsumer,
  verb: Verb,
  handler: (message: QueueMessage) => Promise<void>,
): Promise<void> {
  const settle = async (message: QueueMessage): Promise<void> => {
    try {
      await handler(message)
      await message.ack()
    } catch {
      await message.nak().catch(() => {})
    }
  }
  for (;;) {
    try {
      if (verb === "process") await consumer.process(handler)
      else if (verb === "processBatch") await consumer.processBatch(7, handler)
      else if (verb === "run")
        return await consumer.run(handler, consumer.spec.ackPolicy === "all" ? {} : { concurrency: 3 })
      else if (verb === "pull") for (const message of await consumer.pull({ max: 5 })) await settle(message)
      else {
        for await (const message of consumer) await settle(message)
        return
      }
    } catch (error) {
      if ((error as { kind?: string }).kind === "closed") return
    }
  }
}

test("each message is handled to its end before it leaves the queue, whatever fails, and nothing is left behind", async () => {
  await fc.assert(
    fc.asyncProperty(course, async ({ seed, verbs, ackPolicy, failing, slow, losing, messages }) => {
      const rig = new QueueRig()
      const random = seededRandom(seed)
      const chance = (of10: number): boolean => random.uint32() % 10 < of10
      // Acks of several takers cover each other's messages: one at a time, and one that knows what comes behind a failure.
      const ordered = verbs.filter((verb) => verb !== "pull" && verb !== "iterate").slice(0, 1)
      const members = ackPolicy === "all" ? ordered : verbs
      fc.pre(members.length > 0)
      const texts = Array.from({ length: messages }, (_, n) => String(n))
      const done = new Set<string>()
      const open = new Set<QueueConsumer>()
      let faults = 60
      const lossy = (): boolean => faults > 0 && chance(losing) && faults-- > 0
      rig.broker.beforeSettle = async () => {
        const error = new ConnectionError("lost", { outcome: "unknown" })
        if (lossy()) (chance(5) ? rig.broker.settleFailures : rig.broker.lostAnswers).push(error)
        if (chance(3)) await new Promise<void>((resolve) => void rig.clock.setTimer(random.uint32() % 300, resolve))
      }
      rig.broker.beforeAnswer = async () => {
        if (lossy()) rig.broker.pullFailures.push(new ConnectionError("lost"))
        if (chance(3)) await new Promise<void>((resolve) => void rig.clock.setTimer(random.uint32() % 500, resolve))
      }
      const handler = async (message: QueueMessage): Promise<void> => {
        const ms = chance(slow) ? random.uint32() % 3000 : random.uint32() % 5
        if (ms > 0) await new Promise<void>((resolve) => void rig.clock.setTimer(ms, resolve))
        if (faults > 0 && chance(failing) && faults-- > 0) throw new Error("no")
        done.add(textOf(message))
      }
      const works: Promise<void>[] = []
      const begin = async (verb: Verb): Promise<void> => {
        const consumer = await rig.consumer({ ackPolicy, ackWaitMs: 1000, maxAckPending: 30 })
        open.add(consumer)
        works.push(work(consumer, verb, handler))
      }
      for (const verb of members) await begin(verb)
      rig.broker.putTexts(...texts)
      for (let round = 0; round < 400 && rig.broker.offsets("done").length < messages; round++) {
        await rig.clock.advance(random.uint32() % 1000)
        for (const { entry, text } of rig.broker.entries.map((one, n) => ({ entry: one, text: String(n) }))) {
          if (entry.state === "done") assert.ok(done.has(text), `message ${text} left the queue unhandled`)
        }
        if (round < 20 && chance(1)) {
          const [consumer] = open
          if (consumer === undefined) continue
          open.delete(consumer)
          const ending = consumer.shutdown().catch(() => {})
          await rig.clock.advance(6000)
          await ending
          await begin(members[0] as Verb)
        }
      }
      assert.equal(rig.broker.offsets("done").length, messages, "everything leaves the queue in the end")
      const ends = [...open].map((consumer) => consumer.shutdown().catch(() => {}))
      await rig.clock.advance(30_000)
      await Promise.all([...ends, ...works])
      assert.deepEqual([rig.broker.openSessions, rig.client.owned.size, rig.clock.timers], [0, 0, 0])
    }),
    { numRuns: Number(process.env.QUEUE_COURSES ?? 60) },
  )
})
