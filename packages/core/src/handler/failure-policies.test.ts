/** What is stored of messages that were skipped or became dead letters, under each commit policy. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { ConsumerOptions } from "../consumer/consumer-options.ts"
import { FakeClient, textOf } from "../consumer/fake-session.test-support.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import { deadLetter } from "./dead-letter.ts"
import { open, running } from "./running-consumer.test-support.ts"

type Policy = NonNullable<ConsumerOptions["commitPolicy"]>

/** The policy, and what it has stored of four messages that were all dealt with: what comes next. */
const policies: readonly (readonly [string, Policy, bigint | undefined])[] = [
  ["polling", { kind: "polling" }, 4n],
  ["each", { kind: "each" }, 4n],
  ["every 3", { kind: "every", count: 3 }, 4n],
  ["interval", { kind: "interval", intervalMs: 50 }, 4n],
  ["onRead", { kind: "onRead" }, 4n],
  ["auto after processing", { kind: "auto", after: "processing", every: 1 }, 4n],
  ["auto after delivery", { kind: "auto", after: "delivery", every: 1 }, 4n],
  ["auto after marked", { kind: "auto", after: "marked", every: 1 }, 4n],
  ["disabled", { kind: "disabled" }, undefined],
]

describe("of four messages of which one fails", () => {
  for (const [name, commitPolicy, stored] of policies) {
    for (const way of ["skip", "deadLetter"] as const) {
      test(`${name}, ${way}: progress covers it as any other that is handled`, async () => {
        const client = new FakeClient()
        client.put(0, 4)
        const sent: OutgoingRecord[] = []
        const topic = {
          stream: "s",
          name: "dead",
          ensure: async () => {},
          batch: async (records: readonly OutgoingRecord[]) => void sent.push(...records),
        }
        const consumer = open(client, { commitPolicy })
        const seen: string[] = []
        const state = running(
          consumer,
          async (message) => {
            seen.push(textOf(message))
            if (textOf(message) === "1") throw new Error("no")
          },
          { onFailure: way === "skip" ? "skip" : deadLetter(topic) },
        )
        await client.clock.advance(200)
        await consumer.shutdown()
        assert.deepEqual(seen, ["0", "1", "2", "3"])
        assert.equal(sent.length, way === "skip" ? 0 : 1)
        assert.deepEqual([client.storedNext("worker"), state.done], [stored, undefined])
      })
    }
  }
})
