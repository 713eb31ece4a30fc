import assert from "node:assert/strict"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, it, type TestContext } from "node:test"
import {
  ClosedError,
  InvalidError,
  NotFoundError,
  type QueueDelivery,
  type QueueSession,
  type QueueSpec,
  type Session,
  type TopicDescription,
} from "@millrace/contract"
import { systemClock } from "@millrace/runtime"
import { embeddedDriver } from "./driver.ts"
import { appendTrialBatch, ensureTopic, openSession, verify } from "./trials/trial-log.ts"

const spec: QueueSpec = {
  ackWaitMs: 30_000,
  backoffMs: [],
  maxAckPending: 10_000,
  ackPolicy: "explicit",
  startAt: { kind: "first" },
}
const all = { maxMessages: 1000, maxBytes: 1 << 20, maxWaitMs: 0 }

interface Opened {
  readonly session: Session
  readonly topic: TopicDescription
  readonly queue: QueueSession
  append(count: number, bytes?: number): Promise<bigint>
  /** Another session on the same store. */
  another(): Promise<Session>
}

async function opened(t: TestContext, options: Partial<QueueSpec> = {}): Promise<Opened> {
  const directory = mkdtempSync(join(tmpdir(), "millrace-test-"))
  const sessions: Session[] = []
  const another = async (): Promise<Session> => {
    const session = await openSession(directory)
    sessions.push(session)
    return session
  }
  t.after(async () => {
    for (const session of sessions) await session.close()
    const { problems } = await verify(directory)
    rmSync(directory, { recursive: true, force: true })
    assert.deepEqual(problems, [])
  })
  const session = await another()
  const topic = await ensureTopic(session, { stream: "s", topic: "t" }, { durability: "written" })
  const queue = await session.queues.open(topic, "work", { ...spec, ...options })
  let first = 0
  const append = (count: number, bytes: number = 100): Promise<bigint> => {
    first += count
    return appendTrialBatch(session, topic, { writer: 1, first: first - count, count, bytes })
  }
  return { session, topic, queue, append, another }
}

const offsets = (deliveries: readonly QueueDelivery[]): bigint[] => deliveries.map(({ offset }) => offset)

const acks = (deliveries: readonly QueueDelivery[]): { token: unknown; verdict: "ack" }[] =>
  deliveries.map(({ token }) => ({ token, verdict: "ack" }))

describe("The queues of a session", () => {
  it("hand out each record of a large batch with its own bytes, also when pulls are small", async (t) => {
    const { session, topic, queue, append } = await opened(t)
    await append(1000)
    await append(7)
    const reader = session.log.openReader({ isolation: "committed" })
    reader.set([{ ...topic, partition: 0, offset: 0n }])
    const [read] = await reader.next({ maxRecords: 2000, maxBytes: 1 << 22, minRecords: 1, maxWaitMs: 0 })
    await reader.close()
    assert.ok(read !== undefined && read.error === undefined)
    const expected = read.batches.flatMap((batch) =>
      Array.from({ length: batch.count }, (_, i) => Buffer.from(batch.payload(i) ?? []).toString("hex")),
    )
    const seen: string[] = []
    for (let most = 1; seen.length < 1007; most = (most % 17) + 1) {
      const deliveries = await queue.pull({ ...all, maxMessages: most })
      assert.ok(deliveries.length > 0 && deliveries.length <= most)
      for (const { batch, index, offset, partition, stream, lineage } of deliveries) {
        assert.equal(offset, BigInt(seen.length))
        assert.equal(batch.offset(index), offset)
        assert.deepEqual([stream, topic.topic, partition, lineage], ["s", "t", 0, topic.lineage])
        seen.push(Buffer.from(batch.payload(index) ?? []).toString("hex"))
      }
      assert.ok((await queue.settle(acks(deliveries), { confirm: false })).every((outcome) => outcome === true))
    }
    assert.deepEqual(seen, expected)
    assert.equal((await session.queues.describe(topic, "work")).ackPending, 0)
  })

  it("give a pull that waits what comes later, in this session and from another", async (t) => {
    const { queue, append, another, topic } = await opened(t)
    const waiting = queue.pull({ ...all, maxWaitMs: 20_000 })
    await append(3)
    assert.deepEqual(offsets(await waiting), [0n, 1n, 2n])
    const again = queue.pull({ ...all, maxWaitMs: 20_000 })
    const other = await another()
    await appendTrialBatch(other, topic, { writer: 2, first: 0, count: 1, bytes: 20 })
    assert.deepEqual(offsets(await again), [3n])
  })

  it("give what one session gives back to another that waits", async (t) => {
    const { queue, append, another, topic } = await opened(t)
    await append(2)
    const held = await queue.pull(all)
    const other = await (await another()).queues.open(topic, "work", spec)
    const waiting = other.pull({ ...all, maxWaitMs: 20_000 })
    await queue.settle([{ token: held[1]?.token, verdict: "nak" }], { confirm: false })
    const got = await waiting
    assert.deepEqual(
      got.map(({ offset, deliveries }) => [offset, deliveries]),
      [[1n, 2]],
    )
    assert.deepEqual(await queue.settle(acks(held), { confirm: true }), [true, false])
  })

  it("serve pulls that wait in turn, each a message", async (t) => {
    const { queue, append } = await opened(t)
    const waiting = [1, 2, 3].map(() => queue.pull({ ...all, maxMessages: 1, maxWaitMs: 20_000 }))
    await append(3)
    const got = (await Promise.all(waiting)).map(offsets)
    assert.deepEqual(got, [[0n], [1n], [2n]])
  })

  it("hand a message out again by themselves when its wait is over", async (t) => {
    const { queue, append } = await opened(t, { ackWaitMs: 80 })
    await append(1)
    // The wait begins within the pull, whenever its answer is heard of.
    const since = systemClock.monotonicMs()
    const [first] = await queue.pull(all)
    const [again] = await queue.pull({ ...all, maxWaitMs: 20_000 })
    assert.equal(again?.deliveries, 2)
    assert.ok(systemClock.monotonicMs() - since >= 79, "the wait was not waited for")
    assert.deepEqual(await queue.settle([{ token: first?.token, verdict: "ack" }], { confirm: true }), [false])
  })

  it("take a token from nobody but the session that got it", async (t) => {
    const { session, topic, queue, append } = await opened(t)
    await append(2)
    const [one, two] = await queue.pull(all)
    const other = await session.queues.open(topic, "work", spec)
    const list = [{ token: one?.token, verdict: "ack" as const }]
    assert.deepEqual(await other.settle(list, { confirm: false }), [false])
    const strange = [undefined, null, {}, "x", 7].map((token) => ({ token, verdict: "ack" as const }))
    assert.deepEqual(await queue.settle([...strange, ...list], { confirm: false }), [
      false,
      false,
      false,
      false,
      false,
      true,
    ])
    assert.deepEqual(await queue.settle([], { confirm: true }), [])
    assert.deepEqual(
      await queue.settle([{ token: two?.token, verdict: "terminate", reason: "poison" }], { confirm: true }),
      [true],
    )
  })

  it("settle nothing for a policy without acknowledgements", async (t) => {
    const { queue, append } = await opened(t, { ackPolicy: "none" })
    await append(2)
    const held = await queue.pull(all)
    assert.equal(held.length, 2)
    assert.deepEqual(await queue.settle(acks(held), { confirm: true }), [false, false])
  })

  it("answer a pending pull with nothing when the taker closes, and give back what was under way", async (t) => {
    const { session, topic, queue, append } = await opened(t)
    const waiting = queue.pull({ ...all, maxWaitMs: 20_000 })
    await queue.close()
    await queue.close()
    assert.deepEqual(await waiting, [])
    await assert.rejects(queue.pull(all), ClosedError)
    await assert.rejects(queue.settle([], { confirm: false }), ClosedError)
    await append(3)
    const second = await session.queues.open(topic, "work", spec)
    const racing = second.pull(all)
    await second.close()
    assert.deepEqual(await racing, [])
    const third = await session.queues.open(topic, "work", spec)
    assert.deepEqual(offsets(await third.pull({ ...all, maxWaitMs: 5000 })), [0n, 1n, 2n])
  })

  it("end waiting pulls when the queue is deleted, and when the session closes", async (t) => {
    const { session, topic, queue, append } = await opened(t)
    await append(1)
    const held = await queue.pull(all)
    const waiting = queue.pull({ ...all, maxWaitMs: 20_000 })
    await session.queues.delete(topic, "work")
    await assert.rejects(waiting, NotFoundError)
    await assert.rejects(queue.settle(acks(held), { confirm: true }), NotFoundError)
    await assert.rejects(session.queues.delete(topic, "work"), NotFoundError)
    await assert.rejects(session.queues.describe(topic, "work"), NotFoundError)
    assert.deepEqual(await session.queues.list(topic), [])
    await assert.rejects(session.queues.list({ stream: "s", topic: "nowhere" }), NotFoundError)
    const fresh = await session.queues.open(topic, "work", spec)
    assert.equal((await session.queues.list(topic)).length, 1)
    await assert.rejects(queue.pull(all), NotFoundError, "it is another queue of that name")
    assert.equal((await fresh.pull(all)).length, 1)
    const last = fresh.pull({ ...all, maxWaitMs: 20_000 })
    await session.close()
    assert.deepEqual(await last, [])
    await assert.rejects(session.queues.open(topic, "work", spec), ClosedError)
  })

  it("hand out what is appended in the same commit only when its bytes are there", async (t) => {
    const target = { scheme: "memory", hosts: [], path: "", options: {} }
    const session = await embeddedDriver.connect(target, { timeoutMs: 20_000 })
    t.after(() => session.close())
    const topic = await ensureTopic(session, { stream: "s", topic: "t" }, { durability: "written" })
    const queue = await session.queues.open(topic, "work", spec)
    for (let round = 0; round < 5; round++) {
      const append = appendTrialBatch(session, topic, { writer: 1, first: round * 1000, count: 1000, bytes: 100 })
      const pulled = queue.pull({ ...all, maxWaitMs: 20_000 })
      await append
      assert.deepEqual(
        offsets(await pulled),
        Array.from({ length: 1000 }, (_, i) => BigInt(round * 1000 + i)),
      )
    }
  })

  it("keep the settings that a queue was made with", async (t) => {
    const { session, topic, queue } = await opened(t, { startAt: { kind: "offset", value: 7n }, backoffMs: [5, 10] })
    assert.deepEqual(queue.spec, { ...spec, startAt: { kind: "offset", value: 7n }, backoffMs: [5, 10] })
    await assert.rejects(session.queues.open(topic, "work", spec), InvalidError)
    await assert.rejects(session.queues.open({ stream: "s", topic: "no" }, "work", spec), NotFoundError)
    const described = await session.queues.describe(topic, "work")
    assert.deepEqual(described.spec, queue.spec)
    assert.equal(described.queue, "work")
  })
})
