/** Chapter: work queues: every message to one taker at a time until it is settled, and deliveries that are counted. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { QueueDelivery, QueueSession, QueueSpec, Session, Settlement, TopicDescription } from "@millrace/contract"
import { settlesWithin, until } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import type { Rig } from "../rig/rig.ts"

const mebibyte = 1 << 20

export function queuesChapter(rig: Rig): void {
  // What is absent is refused: that chapter says so.
  if (!rig.manifest.queues.supported) return
  describe("queues", () => {
    test("each message is handed out once, in the order of its partition, and an ack ends it", async () => {
      const { topic, queue } = await filledQueue(rig, numbered("m", 0, 10))
      const first = await pull(queue, 4)
      const second = await pull(queue, 10)
      assert.deepEqual(textsOf([...first, ...second]), numbered("m", 0, 10))
      assert.ok([...first, ...second].every(({ deliveries }) => deliveries === 1))
      assert.deepEqual(await settle(queue, [...first, ...second], "ack"), Array(10).fill(true))
      assert.deepEqual(await pull(queue, 10), [])
      const described = await rig.session.queues.describe(topic, "q")
      assert.deepEqual(
        [described.ackPending, described.undelivered, described.redelivered, described.delayed],
        [0, 0n, 0, 0],
      )
      assert.deepEqual(described.partitions, [{ partition: 0, floor: 10n, next: 10n }])
      await queue.close()
    })

    test("a delivery holds the record whole: payload, key, headers, id, times and position", async () => {
      const topic = await rig.topic()
      const id = 12345678901234567890n
      await rig.append(topic, 0, [{ payload: "p", key: "k", headers: [["h", "v"]], id }, { payload: null }])
      const queue = await rig.session.queues.open(topic, "q", spec())
      const [one, other] = await pull(queue, 2)
      const { batch, index } = one as QueueDelivery
      assert.equal(text(batch.payload(index)), "p")
      assert.equal(text(batch.key(index)), "k")
      assert.equal(batch.headers(index).get("h")?.bytes.length, 1)
      assert.equal(batch.id(index), id)
      assert.ok(batch.timestampMicros(index) > 0n)
      assert.deepEqual(
        [one?.stream, one?.topic, one?.partition, one?.lineage],
        [topic.stream, topic.topic, 0, topic.lineage],
      )
      assert.equal((other as QueueDelivery).batch.payload((other as QueueDelivery).index), null)
      await queue.close()
    })

    test("a message that is not settled comes again when its wait is over, with its deliveries counted", async () => {
      const { queue } = await filledQueue(rig, ["a", "b"], { ackWaitMs: 300 })
      const [a, b] = await pull(queue, 2)
      assert.deepEqual(await settle(queue, [b], "ack"), [true])
      const [again] = await pullSome(queue)
      assert.equal(textOf(again), "a")
      assert.equal(again?.deliveries, 2)
      assert.deepEqual(await settle(queue, [a], "ack"), [false], "the earlier delivery is void")
      assert.deepEqual(await settle(queue, [again], "ack"), [true])
      assert.deepEqual(await pull(queue, 2, 600), [])
      await queue.close()
    })

    test("the first verdict wins, and a second one answers that it does not count", async () => {
      const verdicts = ["ack", "nak", "terminate"] as const
      for (const verdict of verdicts) {
        const { queue } = await filledQueue(rig, ["a"])
        const [a] = await pull(queue, 1)
        assert.deepEqual(await settle(queue, [a], verdict), [true])
        for (const later of [...verdicts, "inProgress"] as const)
          assert.deepEqual(await settle(queue, [a], later), [false], `${later} after ${verdict}`)
        assert.deepEqual(textsOf(await pull(queue, 1)), verdict === "nak" ? ["a"] : [])
        await queue.close()
      }
    })

    test("one call may settle many, each with an outcome of its own, also the same message twice", async () => {
      const { queue } = await filledQueue(rig, numbered("m", 0, 4))
      const [a, b, c, d] = (await pull(queue, 4)) as [QueueDelivery, QueueDelivery, QueueDelivery, QueueDelivery]
      const list: Settlement[] = [
        { token: b.token, verdict: "ack" },
        { token: a.token, verdict: "nak" },
        { token: b.token, verdict: "terminate" },
        { token: c.token, verdict: "inProgress" },
        { token: d.token, verdict: "terminate", reason: "not wanted" },
      ]
      assert.deepEqual(await queue.settle(list, { confirm: true }), [true, true, false, true, true])
      assert.deepEqual(await queue.settle([], { confirm: true }), [])
      assert.deepEqual(textsOf(await pull(queue, 4)), ["m0"])
      await queue.close()
    })

    test("a nak brings the message again at once, or after its delay, and counts", async () => {
      const { queue } = await filledQueue(rig, ["a", "b"])
      const [a, b] = (await pull(queue, 2)) as [QueueDelivery, QueueDelivery]
      await queue.settle([{ token: a.token, verdict: "nak" }], { confirm: false })
      const [again] = await pull(queue, 2)
      assert.deepEqual([textOf(again), again?.deliveries], ["a", 2])
      await queue.settle([{ token: b.token, verdict: "nak", delayMs: 300 }], { confirm: false })
      assert.deepEqual(await pull(queue, 2), [], "its delay is not over")
      const started = performance.now()
      const [delayed] = await pullSome(queue)
      assert.deepEqual([textOf(delayed), delayed?.deliveries], ["b", 2])
      assert.ok(performance.now() - started >= 150, "the delay was waited for")
      await queue.close()
    })

    test("what comes again goes before what was never handed out", async () => {
      const { queue } = await filledQueue(rig, numbered("m", 0, 6))
      const held = await pull(queue, 2)
      await settle(queue, held, "nak")
      assert.deepEqual(textsOf(await pull(queue, 3)), numbered("m", 0, 3))
      await queue.close()
    })

    test("in progress begins the wait anew", async () => {
      const { queue } = await filledQueue(rig, ["a"], { ackWaitMs: 600 })
      const [a] = await pull(queue, 1)
      const beats = until("some waits to be over", async () => {
        assert.deepEqual(await settle(queue, [a], "inProgress"), [true])
        return performance.now() - started > 1500 ? true : undefined
      })
      const started = performance.now()
      assert.deepEqual(await pull(queue, 1, 1200), [])
      await beats
      assert.deepEqual(await settle(queue, [a], "ack"), [true])
      await queue.close()
    })

    test("a late ack counts as long as nobody else was given the message", async () => {
      const { queue } = await filledQueue(rig, ["a"], { ackWaitMs: 100 })
      const [a] = await pull(queue, 1)
      await new Promise((resolve) => setTimeout(resolve, 250))
      assert.deepEqual(await settle(queue, [a], "ack"), [true])
      assert.deepEqual(await pull(queue, 1, 300), [])
      await queue.close()
    })

    test("takers share a queue: no message is with two of them", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const { topic, queue } = await filledQueue(rig, numbered("m", 0, 40), {}, 2)
      const other = await rig.connect()
      const second = await other.queues.open(topic, "q", spec())
      const seen: string[] = []
      for (let round = 0; round < 8; round++)
        for (const taker of [queue, second]) {
          const taken = await pull(taker, 3)
          seen.push(...textsOf(taken))
          assert.ok((await settle(taker, taken, "ack")).every((counts) => counts === true))
        }
      assert.deepEqual(seen.toSorted(), numbered("m", 0, 40).toSorted())
      await other.close()
      await queue.close()
    })

    test("a delivery is its session's: what another one is given later makes it void", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const { topic, queue } = await filledQueue(rig, ["a"], { ackWaitMs: 300 })
      const [a] = await pull(queue, 1)
      const other = await rig.connect()
      const second = await other.queues.open(topic, "q", spec({ ackWaitMs: 300 }))
      const [again] = await pullSome(second)
      assert.deepEqual([textOf(again), again?.deliveries], ["a", 2])
      assert.deepEqual(await settle(queue, [a], "ack"), [false])
      assert.deepEqual(await settle(second, [again], "ack"), [true])
      await other.close()
      await queue.close()
    })

    test("a pull wakes for what is appended, nakked, or overdue; and answers nothing when its wait is over", async () => {
      const topic = await rig.topic()
      const queue = await rig.session.queues.open(topic, "q", spec({ ackWaitMs: 400 }))
      const appended = pull(queue, 5, 20_000)
      await rig.append(topic, 0, ["a"])
      const [a] = await settlesWithin("a pull that waits for an append", appended)
      assert.equal(textOf(a), "a")
      const naked = pull(queue, 5, 20_000)
      await settle(queue, [a], "nak")
      const [again] = await settlesWithin("a pull that waits for a nak", naked)
      assert.equal(again?.deliveries, 2)
      const [third] = await settlesWithin("a pull that waits for a deadline", pull(queue, 5, 20_000))
      assert.equal(third?.deliveries, 3)
      await settle(queue, [third], "ack")
      assert.deepEqual(await pull(queue, 5, 50), [])
      await queue.close()
    })

    test("closing a taker answers its pulls, and what it holds comes back", async () => {
      const { topic, queue } = await filledQueue(rig, ["a"], { ackWaitMs: 300 })
      assert.equal((await pull(queue, 1)).length, 1)
      const pending = pull(queue, 1, 20_000)
      await queue.close()
      assert.deepEqual(await settlesWithin("a pull of a closed taker", pending), [])
      const next = await rig.session.queues.open(topic, "q", spec({ ackWaitMs: 300 }))
      const [again] = await pullSome(next)
      assert.deepEqual([textOf(again), again?.deliveries], ["a", 2])
      await next.close()
    })

    test("at most maxAckPending are out at once, delayed ones included", async () => {
      const { queue } = await filledQueue(rig, numbered("m", 0, 10), { maxAckPending: 3 })
      const held = await pull(queue, 10)
      assert.equal(held.length, 3)
      assert.deepEqual(await pull(queue, 10), [])
      const [a, b] = held as [QueueDelivery, QueueDelivery]
      await queue.settle([{ token: a.token, verdict: "nak", delayMs: 60_000 }], { confirm: false })
      assert.deepEqual(await pull(queue, 10), [], "what is delayed counts")
      await queue.settle([{ token: b.token, verdict: "ack" }], { confirm: false })
      assert.deepEqual(textsOf(await pull(queue, 10)), ["m3"])
      await queue.close()
    })

    test("behind maxDeliver a message is handed out to be buried, until it is terminated", async () => {
      const { queue } = await filledQueue(rig, ["a", "b"], { maxDeliver: 2 })
      const counts: number[] = []
      for (let round = 0; round < 4; round++) {
        const [a] = await pull(queue, 1)
        assert.equal(textOf(a), "a")
        counts.push((a as QueueDelivery).deliveries)
        await settle(queue, [a], round < 3 ? "nak" : "terminate")
      }
      assert.deepEqual(counts, [1, 2, 3, 4])
      assert.deepEqual(textsOf(await pull(queue, 2)), ["b"])
      await queue.close()
    })

    test("with a back-off each delivery has a wait of its own", async () => {
      const { queue } = await filledQueue(rig, ["a"], { ackWaitMs: 60_000, backoffMs: [100, 700] })
      await pull(queue, 1)
      const [second] = await pullSome(queue)
      const started = performance.now()
      assert.equal(second?.deliveries, 2)
      const [third] = await pullSome(queue)
      assert.equal(third?.deliveries, 3)
      assert.ok(performance.now() - started >= 500)
      await queue.close()
    })

    test("ack policy all: an ack covers what was handed out of the partition before it, and nothing else", async () => {
      const topic = await rig.topic({ partitions: 2 })
      await rig.append(topic, 0, numbered("a", 0, 4))
      await rig.append(topic, 1, numbered("b", 0, 2))
      const queue = await rig.session.queues.open(topic, "q", spec({ ackPolicy: "all", ackWaitMs: 400 }))
      const held: QueueDelivery[] = []
      while (held.length < 6) held.push(...(await pull(queue, 6)))
      const third = held.find((delivery) => textOf(delivery) === "a2")
      assert.deepEqual(await settle(queue, [third], "ack"), [true])
      const again: string[] = []
      while (again.length < 3) again.push(...textsOf(await pullSome(queue)))
      assert.deepEqual(again.toSorted(), ["a3", "b0", "b1"])
      await queue.close()
    })

    test("ack policy none: handing out settles", async () => {
      const { topic, queue } = await filledQueue(rig, ["a", "b"], { ackPolicy: "none", ackWaitMs: 100 })
      assert.deepEqual(textsOf(await pull(queue, 2)), ["a", "b"])
      assert.deepEqual(await pull(queue, 2, 400), [])
      assert.equal((await rig.session.queues.describe(topic, "q")).ackPending, 0)
      await queue.close()
    })

    test("a queue begins where it was told to", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, numbered("m", 0, 3))
      const starts = [
        [{ kind: "first" }, ["m0", "m1", "m2"]],
        [{ kind: "last" }, ["m2"]],
        [{ kind: "end" }, []],
        [{ kind: "offset", value: 1n }, ["m1", "m2"]],
        [{ kind: "timestampMicros", value: rig.now() + 3_600_000_000n }, []],
      ] as const
      for (const [startAt, expected] of starts) {
        const queue = await rig.session.queues.open(topic, `from-${startAt.kind}`, spec({ startAt }))
        assert.deepEqual(textsOf(await pull(queue, 5)), expected, startAt.kind)
        await queue.close()
      }
    })

    test("queues of one topic know nothing of each other", async () => {
      const { topic, queue } = await filledQueue(rig, ["a", "b"])
      const other = await rig.session.queues.open(topic, "other", spec())
      await settle(queue, await pull(queue, 2), "ack")
      assert.deepEqual(textsOf(await pull(other, 2)), ["a", "b"])
      assert.deepEqual(
        (await rig.session.queues.list(topic)).map((found) => found.queue),
        ["other", "q"],
      )
      await queue.close()
      await other.close()
    })

    test("a queue that exists with other settings is refused by name, and goes on", async () => {
      const { topic, queue } = await filledQueue(rig, ["a"])
      await refused(() => rig.session.queues.open(topic, "q", spec({ ackWaitMs: 7_777 })), {
        kind: "invalid",
        says: ["ackWaitMs", "7777", "30000"],
      })
      assert.deepEqual(queue.spec, spec())
      assert.equal((await pull(queue, 1)).length, 1)
      await queue.close()
    })

    test("partitions that are added are part of the queue, from their first record", async (t) => {
      const { addPartitions } = rig.manifest.catalog
      if (!addPartitions.supported) return t.skip(addPartitions.reason)
      const { topic, queue } = await filledQueue(rig, [], { startAt: { kind: "end" } })
      const grown = await rig.session.catalog.addPartitions(topic, 1)
      await rig.append(grown, 1, ["new"])
      assert.deepEqual(textsOf(await pullSome(queue)), ["new"])
      await queue.close()
    })

    test("what is trimmed away leaves the queue, handed out or not", async (t) => {
      const { trim } = rig.manifest.catalog
      if (!trim.supported) return t.skip(trim.reason)
      const topic = await rig.topic()
      for (const name of ["a", "b", "c"]) await rig.append(topic, 0, [name])
      const queue = await rig.session.queues.open(topic, "q", spec({ ackWaitMs: 300 }))
      const [a] = await pull(queue, 1)
      assert.equal(textOf(a), "a")
      await rig.session.catalog.trim({ stream: topic.stream, topic: topic.topic, partition: 0 }, 2n)
      assert.deepEqual(textsOf(await pull(queue, 5, 900)), ["c"])
      await queue.close()
    })

    test("a purge takes everything out of the queue, which goes on with what comes then", async () => {
      const { topic, queue } = await filledQueue(rig, ["a", "b"], { ackWaitMs: 300 })
      const [a] = await pull(queue, 1)
      await rig.session.catalog.purgeTopic(topic)
      assert.deepEqual(await settle(queue, [a], "ack"), [false])
      const purged = await rig.session.catalog.describeTopic(topic)
      await rig.append(purged, 0, ["new"])
      assert.deepEqual(textsOf(await pullSome(queue)), ["new"])
      await queue.close()
    })

    test("a queue that is deleted ends its takers, and forgets everything", async () => {
      const { topic, queue } = await filledQueue(rig, ["a"])
      const [a] = await pull(queue, 1)
      const pending = pull(queue, 1, 20_000)
      await rig.session.queues.delete(topic, "q")
      await refused(() => settlesWithin("a pull of a deleted queue", pending), { kind: "not-found", says: ["q"] })
      await refused(() => pull(queue, 1), "not-found")
      await refused(() => settle(queue, [a], "ack"), "not-found")
      await refused(() => rig.session.queues.delete(topic, "q"), { kind: "not-found", says: ["q"] })
      await refused(() => rig.session.queues.describe(topic, "q"), "not-found")
      const again = await rig.session.queues.open(topic, "q", spec())
      const [fresh] = await pull(again, 1)
      assert.deepEqual([textOf(fresh), fresh?.deliveries], ["a", 1])
      assert.deepEqual(
        await refusedOrFalse(() => settle(queue, [a], "ack")),
        true,
        "a delivery of the old queue is void",
      )
      await again.close()
    })

    test("a topic that is deleted ends the takers of its queues", async () => {
      const { topic, queue } = await filledQueue(rig, ["a"])
      const [a] = await pull(queue, 1)
      await rig.session.catalog.deleteTopic(topic)
      await refused(() => pull(queue, 1), "not-found")
      await refused(() => settle(queue, [a], "ack"), "not-found")
      await refused(() => rig.session.queues.open(topic, "q", spec()), { kind: "not-found", says: [topic.topic] })
      await refused(() => rig.session.queues.list(topic), "not-found")
    })

    test("what was acked with confirmation does not come again after a close; what was held does", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await rig.topic()
      await rig.append(topic, 0, ["a", "b", "c"])
      const first: Session = await rig.connect()
      const queue = await first.queues.open(topic, "q", spec({ ackWaitMs: 300 }))
      const [a] = await pull(queue, 2)
      assert.deepEqual(await settle(queue, [a], "ack"), [true])
      await first.close()
      const second = await rig.connect()
      const next = await second.queues.open(topic, "q", spec({ ackWaitMs: 300 }))
      const seen = new Map<string, number>()
      await until("both to come", async () => {
        for (const delivery of await pull(next, 5, 100)) {
          // Nothing is settled here, so that it comes again and again.
          if (!seen.has(textOf(delivery))) seen.set(textOf(delivery), delivery.deliveries)
        }
        return seen.size === 2 ? true : undefined
      })
      assert.deepEqual([...seen].toSorted(), [
        ["b", 2],
        ["c", 1],
      ])
      await second.close()
    })
  })
}

function spec(settings: Partial<QueueSpec> = {}): QueueSpec {
  return { ackWaitMs: 30_000, backoffMs: [], ackPolicy: "explicit", startAt: { kind: "first" }, ...settings }
}

async function filledQueue(
  rig: Rig,
  records: readonly string[],
  settings: Partial<QueueSpec> = {},
  partitions = 1,
): Promise<{ readonly topic: TopicDescription; readonly queue: QueueSession }> {
  const topic = await rig.topic({ partitions })
  const share = Math.ceil(records.length / partitions)
  for (let partition = 0; partition * share < records.length; partition++)
    await rig.append(topic, partition, records.slice(partition * share, (partition + 1) * share))
  return { topic, queue: await rig.session.queues.open(topic, "q", spec(settings)) }
}

function pull(queue: QueueSession, maxMessages: number, maxWaitMs = 0): Promise<QueueDelivery[]> {
  return queue.pull({ maxMessages, maxBytes: mebibyte, maxWaitMs })
}

/** Messages of one pull that has some; pulls may answer early. */
async function pullSome(queue: QueueSession): Promise<QueueDelivery[]> {
  return await until("a message of the queue", async () => {
    const found = await pull(queue, 10, 5_000)
    return found.length > 0 ? found : undefined
  })
}

async function settle(
  queue: QueueSession,
  deliveries: readonly (QueueDelivery | undefined)[],
  verdict: Settlement["verdict"],
): Promise<unknown[]> {
  const list = deliveries.map((delivery) => ({ token: (delivery as QueueDelivery).token, verdict }))
  const outcomes = await queue.settle(list, { confirm: true })
  for (const outcome of outcomes) if (outcome instanceof Error) throw outcome
  return outcomes
}

/** True when the call failed, or answered that nothing counts. */
async function refusedOrFalse(call: () => Promise<unknown[]>): Promise<boolean> {
  try {
    return (await call()).every((counts) => counts === false)
  } catch {
    return true
  }
}

function textOf(delivery: QueueDelivery | undefined): string {
  return text(delivery?.batch.payload(delivery.index))
}

function textsOf(deliveries: readonly QueueDelivery[]): string[] {
  return deliveries.map(textOf)
}
