/** Chapter: what work queues refuse: where a backend has none, and options and calls that cannot be. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type QueueConsumerOptions, type QueueOptions, UnsupportedError } from "millrace"
import type { ClientRig } from "../rig/client-rig.ts"
import { refused } from "../rig/refusal.ts"
import { filledQueue, nothingPulled, pulledOne, queueTest } from "../rig/work-queues.ts"

export function queueRefusalsChapter(rig: ClientRig): void {
  describe("queues: absence", () => {
    test("a backend without queues refuses them, with its reason and with what to use instead", async (t) => {
      const { queues } = rig.client.manifest
      if (queues.supported) return t.skip("it has queues")
      const topic = rig.handle()
      const error = await refused(() => topic.queue("work"), {
        kind: "unsupported",
        says: ['"work"', "work queues", queues.reason, queues.instead],
        outcome: "rejected",
      })
      assert.ok(error instanceof UnsupportedError)
    })
  })

  describe("queues: what is refused", { concurrency: true }, () => {
    queueTest(rig, "options of the queue that cannot be, by name, before anything is asked", async () => {
      const topic = rig.handle()
      for (const [options, says] of wrongQueues) {
        await refused(() => topic.queue("work", options as QueueOptions), {
          kind: "invalid",
          says,
          outcome: "rejected",
        })
      }
      for (const name of ["", "a\nb", 5, undefined, null]) {
        await refused(() => topic.queue(name as string), { kind: "invalid", says: ["queue"] })
      }
    })

    queueTest(rig, "options of a consumer, and of every call", async () => {
      const { queue } = await filledQueue(rig, ["a"])
      for (const [options, says] of wrongConsumers) {
        await refused(() => queue.consumer(options as QueueConsumerOptions), { kind: "invalid", says })
      }
      await using consumer = await queue.consumer()
      const message = await pulledOne(consumer)
      const calls: [() => unknown, string][] = [
        [() => consumer.pull({ max: 0 }), "max"],
        [() => consumer.pull({ max: 10_001 }), "10000"],
        [() => consumer.pull({ maxWaitMs: -1 }), "maxWaitMs"],
        [() => consumer.pull({ timeout: 1 } as never), "timeout"],
        [() => consumer.pull({ signal: {} as never }), "signal"],
        [() => consumer.process(undefined as never), "process"],
        [() => consumer.processWithin(-1, () => {}), "processWithin"],
        [() => consumer.processWithin(Number.NaN, () => {}), "NaN"],
        [() => consumer.processBatch(0, () => {}), "processBatch"],
        [() => consumer.processBatch(2, "x" as never), "processBatch"],
        [() => consumer.run(() => {}, { concurrency: 0 }), "concurrency"],
        [() => consumer.run(() => {}, { retries: 3 } as never), "retries"],
        [() => message.ack({ confirm: 1 } as never), "confirm"],
        [() => message.nak({ delayMs: -5 }), "delayMs"],
        [() => message.nak({ delay: 5 } as never), "delay"],
        [() => message.terminate({} as never), "reason"],
        [() => consumer.shutdown({ timeoutMs: -1 }), "timeoutMs"],
        [() => consumer.dedupeWindow.markProcessed(-1, 0n), "partition"],
        [() => consumer.dedupeWindow.alreadyProcessed(0, 5 as never), "offset"],
      ]
      for (const [call, says] of calls) await refused(call, { kind: "invalid", says: [says] })
      assert.equal(await message.ack(), true, "what was refused has settled nothing")
      await nothingPulled(consumer, 0)
    })
  })
}

const wrongQueues: readonly (readonly [unknown, readonly string[]])[] = [
  [{ ackWait: 5 }, ["ackWait", "ackWaitMs"]],
  [{ ackPolicy: "some" }, ["ackPolicy", "some", "explicit"]],
  [{ ackWaitMs: 0 }, ["ackWaitMs", "0"]],
  [{ ackWaitMs: Number.NaN }, ["ackWaitMs", "NaN"]],
  [{ backoffMs: [10, -1] }, ["backoffMs", "-1"]],
  [{ backoffMs: [10], ackWaitMs: 10 }, ["backoffMs", "ackWaitMs"]],
  [{ maxDeliver: 0 }, ["maxDeliver", "0"]],
  [{ maxDeliver: 1, backoffMs: [1, 2] }, ["maxDeliver", "backoffMs"]],
  [{ maxAckPending: -1 }, ["maxAckPending", "-1"]],
  [{ startAt: { kind: "middle" } }, ["startAt", "middle"]],
  [{ createQueue: "no" }, ["createQueue", "no"]],
  [{ deadLetter: "dead" }, ["deadLetter", "dead"]],
  [{ ackPolicy: "none", ackWaitMs: 5 }, ["ackWaitMs", "none"]],
]

const wrongConsumers: readonly (readonly [unknown, readonly string[]])[] = [
  [{ prefetch: -1 }, ["prefetch", "-1"]],
  [{ prefetch: 10_001 }, ["prefetch", "10000"]],
  [{ maxBytes: 0 }, ["maxBytes", "0"]],
  [{ batchTimeout: 5 }, ["batchTimeout", "batchTimeoutMs"]],
  [{ autoExtend: 1 }, ["autoExtend", "1"]],
  [{ encryptor: "k" }, ["encryptor"]],
  [{ signal: {} }, ["signal"]],
]
