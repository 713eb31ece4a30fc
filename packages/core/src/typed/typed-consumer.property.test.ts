/** Typed consumers over any mixture of records, taken in any way, with dead letters that fail and partitions that are seeked. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { ConnectionError, MillraceError, TimeoutError } from "@millrace/contract"
import fc from "fast-check"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import { deadLetter } from "../handler/dead-letter.ts"
import type { CommitPolicy } from "../progress/commit-policy.ts"
import { DeadTopic, numbers, openTyped } from "./typed-rig.test-support.ts"

const utf8 = new TextEncoder()

type Sort = "value" | "bad" | "tombstone"
type Way = "next" | "nextWithin" | "batches" | "rented"

const policies: readonly CommitPolicy[] = [
  { kind: "polling" },
  { kind: "all" },
  { kind: "each" },
  { kind: "every", count: 3 },
  { kind: "interval", intervalMs: 7 },
]

/** Dead letters of which some fail, and some take long. */
class MoodyTopic extends DeadTopic {
  moods: readonly ("well" | "fails" | "slow")[] = []
  readonly confirmed = new Set<string>()
  #sends = 0
  constructor(client: FakeClient) {
    super()
    this.batch = async (records): Promise<void> => {
      const mood = this.moods[this.#sends++ % Math.max(1, this.moods.length)]
      this.sent.push(...records)
      if (mood === "fails") throw new MillraceError("invalid", "not now")
      if (mood === "slow") await new Promise<void>((resolve) => void client.clock.setTimer(30, resolve))
      for (const { payload } of records) this.confirmed.add(new TextDecoder().decode(payload as Uint8Array))
    }
  }
}

test("every record is handed out, skipped or confirmed as a dead letter, in order; and no store is ahead of that", async () => {
  const batch = fc.array(fc.constantFrom<Sort>("value", "value", "value", "bad", "tombstone"), {
    minLength: 1,
    maxLength: 6,
  })
  await fc.assert(
    fc.asyncProperty(
      fc.array(batch, { minLength: 1, maxLength: 5 }),
      fc.constantFrom("skip", "dead", "deliver-raw" as const),
      fc.constantFrom(...policies),
      fc.array(fc.constantFrom<Way>("next", "nextWithin", "batches", "rented"), { minLength: 1, maxLength: 4 }),
      fc.array(fc.constantFrom("well", "fails", "slow" as const), { minLength: 1, maxLength: 4 }),
      fc.integer({ min: 1, max: 5 }),
      async (batches, mode, commitPolicy, ways, moods, batchLength) => {
        const client = new FakeClient()
        const sorts = batches.flat()
        let offset = 0
        for (const records of batches) {
          client.log.put(
            client.place(),
            records.map((sort) => {
              const n = offset++
              return { payload: sort === "tombstone" ? null : utf8.encode(sort === "bad" ? `bad${n}` : String(n)) }
            }),
          )
        }
        const topic = new MoodyTopic(client)
        topic.moods = moods.every((mood) => mood === "fails") ? [...moods, "well"] : moods
        const onDecodeError = mode === "dead" ? deadLetter(topic) : mode
        const consumer = openTyped(client, { codec: numbers, onDecodeError }, { commitPolicy, batchLength })
        const given: bigint[] = []
        const skipped: bigint[] = []
        consumer.on({ skipped: ({ from }) => void skipped.push(from) })
        const expected = sorts.flatMap((sort, n) => (sort === "bad" && mode !== "deliver-raw" ? [] : [BigInt(n)]))
        const check = (): void => {
          const next = client.storedNext("worker") ?? 0n
          for (let n = 0n; n < next; n++) {
            const sort = sorts[Number(n)]
            if (sort !== "bad" || mode === "deliver-raw") assert.ok(given.includes(n), `${n} was given out`)
            else if (mode === "skip") assert.ok(skipped.includes(n), `${n} was told`)
            else assert.ok(topic.confirmed.has(`bad${n}`), `the dead letter of ${n} was confirmed`)
          }
        }
        for (let turn = 0; given.length < expected.length && turn < 500; turn++) {
          const way = ways[turn % ways.length] as Way
          const call = (async () => {
            if (way === "next") {
              const result = await consumer.next()
              if (!result.done) given.push(result.value.position.offset)
            } else if (way === "nextWithin") given.push((await consumer.nextWithin(3)).position.offset)
            else if (way === "rented") {
              using page = await consumer.receiveRented()
              for (const { position } of page) given.push(position.offset)
            } else {
              for await (const page of consumer.batches()) {
                for (const { position } of page) given.push(position.offset)
                break
              }
            }
          })().catch((error: unknown) => {
            if (error instanceof TimeoutError || /not now/.test(String(error))) return
            throw error
          })
          let over = false
          const ended = call.finally(() => {
            over = true
          })
          ended.catch(() => {})
          for (let waits = 0; !over && waits < 200; waits++) {
            await client.clock.advance(5)
            check()
          }
          await ended
          check()
        }
        assert.deepEqual(given, expected)
        // Asking for more says that what was given out is handled, and deals with what is left.
        for (let tries = 0; tries < 50 && client.storedNext("worker") !== BigInt(sorts.length); tries++) {
          const more = consumer.nextWithin(50).catch(() => {})
          await client.clock.advance(50)
          await more
          if (tries > 40) break
        }
        const { failures } = { failures: consumer.decodeFailures }
        const bad = sorts.filter((sort) => sort === "bad").length
        assert.equal(failures.skipped, mode === "skip" ? bad : 0)
        assert.equal(failures.deadLettered, mode === "dead" ? bad : 0)
        assert.equal(failures.deliveredRaw, mode === "deliver-raw" ? bad : 0)
        await consumer.shutdown()
        check()
        assert.equal(client.storedNext("worker"), BigInt(sorts.length))
        assert.equal(client.clock.timers, 0)
      },
    ),
    { numRuns: 150 },
  )
})

test("a registry that is away delays, and never loses or doubles", async () => {
  const client = new FakeClient()
  const error = new ConnectionError("away")
  assert.equal(error.retryable, true)
  client.put(0, 3)
  const consumer = openTyped(client, {
    codec: {
      name: "late",
      encode: () => new Uint8Array(0),
      decode: (payload) => Number(new TextDecoder().decode(payload)),
      prepare: () => (client.clock.monotonicMs() < 3000 ? Promise.reject(error) : undefined),
    },
  })
  const values: unknown[] = []
  const reading = (async () => {
    while (values.length < 3) values.push((await consumer.nextWithin(60_000)).value)
  })()
  await client.clock.advance(5000)
  await reading
  assert.deepEqual(values, [0, 1, 2])
  await consumer.shutdown()
})
