import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ClosedError, MillraceError, type SealedBatch, StorageError, type TransactionSession } from "@millrace/contract"
import type { Channel } from "./channel.ts"
import { EngineFixture } from "./engine/engine.test-support.ts"
import { preparedIn, stored, texts } from "./engine/transactional.test-support.ts"
import { EmbeddedLog } from "./log.ts"
import { EmbeddedTransactions } from "./transactions.ts"

const reader = { kind: "consumer", name: "reader" } as const

/** A channel to an engine in this thread, on which single calls fail: `lost` after they were done, `undone` before. */
class FaultyChannel implements Channel {
  readonly faults: Map<string, "lost" | "undone"> = new Map()
  readonly asked: { readonly name: string; readonly args: unknown }[] = []
  closed = false
  readonly #fixture: EngineFixture

  constructor(fixture: EngineFixture) {
    this.#fixture = fixture
  }

  async call<R>(name: string, args: unknown): Promise<R> {
    await Promise.resolve()
    this.asked.push({ name, args })
    if (this.closed) throw new ClosedError("the session is closed")
    const fault = this.faults.get(name)
    this.faults.delete(name)
    if (fault === "undone") throw new StorageError("the disk failed", { outcome: "unknown" })
    const answer = this.#fixture.call<R>(name, args)
    if (fault === "lost") throw new StorageError("the answer was lost", { outcome: "unknown" })
    return answer
  }
}

interface Rig {
  readonly fixture: EngineFixture
  readonly channel: FaultyChannel
  readonly transactions: EmbeddedTransactions
  readonly log: EmbeddedLog
  readonly session: TransactionSession
}

async function rigOf(fixture: EngineFixture): Promise<Rig> {
  const channel = new FaultyChannel(fixture)
  const transactions = new EmbeddedTransactions(channel)
  const session = await transactions.init("id", { timeoutMs: 60_000, keepPrepared: false })
  return { fixture, channel, transactions, log: new EmbeddedLog(channel), session }
}

function batchOf(fixture: EngineFixture, topic: ReturnType<EngineFixture["createTopic"]>, text: string): SealedBatch {
  return fixture.batch(topic, [{ payload: Buffer.from(text) }])
}

async function failureOf(work: Promise<unknown>): Promise<MillraceError> {
  try {
    await work
  } catch (error) {
    if (error instanceof MillraceError) return error
    throw error
  }
  throw new Error("nothing was thrown")
}

describe("answers that get lost", () => {
  for (const fault of ["lost", "undone"] as const) {
    test(`a commit that is ${fault} is asked again, and answers as if nothing had been`, async () => {
      using fixture = new EngineFixture()
      const topic = fixture.createTopic()
      const { channel, log, session } = await rigOf(fixture)
      const handle = await session.begin()
      await log.append(batchOf(fixture, topic, "a"), { transaction: handle })
      channel.faults.set("transactions.commit", fault)
      assert.equal((await failureOf(session.commit(handle))).outcome, "unknown")
      const early = await failureOf(session.begin())
      assert.equal(early.kind, "transaction-state")
      assert.match(early.message, /committed or aborted first/)
      const [result] = await session.commit(handle)
      assert.deepEqual([result?.base, result?.count], [0n, 1])
      assert.deepEqual(texts(fixture, topic), ["a"])
      await session.commit(await session.begin())
    })

    test(`a beginning that is ${fault} leaves nothing in the way`, async () => {
      using fixture = new EngineFixture()
      const { channel, session } = await rigOf(fixture)
      channel.faults.set("transactions.begin", fault)
      assert.equal((await failureOf(session.begin())).outcome, "unknown")
      assert.deepEqual(await session.commit(await session.begin()), [])
    })

    test(`an abort that is ${fault} is asked again`, async () => {
      using fixture = new EngineFixture()
      const { channel, session } = await rigOf(fixture)
      const handle = await session.begin()
      channel.faults.set("transactions.abort", fault)
      await failureOf(session.abort(handle))
      await session.abort(handle)
      await session.begin()
    })

    test(`preparing that is ${fault} is asked again, and gives the same token`, async () => {
      using fixture = new EngineFixture()
      const { channel, session } = await rigOf(fixture)
      const handle = await session.begin()
      channel.faults.set("transactions.prepare", fault)
      await failureOf(session.prepare(handle))
      const token = await session.prepare(handle)
      assert.equal(preparedIn(fixture)[0]?.token, token)
      assert.equal(session.prepared, token)
      await session.commit(handle)
      assert.equal(session.prepared, undefined)
    })

    test(`a completion that is ${fault} is asked again, and answers as if nothing had been`, async () => {
      using fixture = new EngineFixture()
      const { channel, session } = await rigOf(fixture)
      for (const [wrong, end] of [
        ["", "committed"],
        ["1", "aborted"],
      ] as const) {
        const token = (await session.prepare(await session.begin())) + wrong
        channel.faults.set("transactions.complete", fault)
        assert.equal((await failureOf(session.complete(token))).outcome, "unknown")
        assert.equal(await session.complete(token), end)
        assert.equal((await failureOf(session.complete(token))).kind, "transaction-state")
      }
    })

    test(`an append that is ${fault} is sent again, and staged once`, async () => {
      using fixture = new EngineFixture()
      const topic = fixture.createTopic()
      const { channel, log, session } = await rigOf(fixture)
      const transaction = await session.begin()
      const options = { transaction, identity: { ...session.identity, sequence: 0 } }
      const batch = batchOf(fixture, topic, "a")
      channel.faults.set("log.stage", fault)
      await failureOf(log.append(batch, options))
      await log.append(batch, options)
      assert.equal((await session.commit(transaction)).length, 1)
    })
  }
})

describe("how a commit is made durable", () => {
  const durabilities: readonly (readonly [string, "synced" | "written", "synced" | "written", boolean, string])[] = [
    ["records of a synced topic", "synced", "written", false, "synced"],
    ["records of a written topic", "written", "synced", false, "written"],
    ["offsets that are synced", "written", "synced", true, "synced"],
    ["offsets that are written", "synced", "written", true, "written"],
  ]
  for (const [what, durability, offsetDurability, offsets, expected] of durabilities) {
    test(`${what}: ${expected}`, async () => {
      using fixture = new EngineFixture()
      const topic = fixture.createTopic({ durability, offsetDurability })
      const { channel, log, session } = await rigOf(fixture)
      const handle = await session.begin()
      const { stream, topic: name, lineage } = topic
      if (offsets)
        await session.enlistOffsets(handle, reader, [{ stream, topic: name, partition: 0, offset: 1n, lineage }])
      else await log.append(batchOf(fixture, topic, "a"), { transaction: handle })
      await session.commit(handle)
      const asked = channel.asked.find((call) => call.name === "transactions.commit")
      assert.deepEqual(asked?.args, { ...(asked?.args as object), durability: expected })
      if (offsets) assert.equal(stored(fixture, reader, topic), 1n)
    })
  }
})

describe("closing", () => {
  test("a session aborts what is open, and refuses everything from then on", async () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const { log, session } = await rigOf(fixture)
    const handle = await session.begin()
    await log.append(batchOf(fixture, topic, "lost"), { transaction: handle })
    await Promise.all([session.close(), session.close()])
    for (const call of [
      () => session.begin(),
      () => session.enlistOffsets(handle, reader, []),
      () => session.prepare(handle),
      () => session.commit(handle),
      () => session.abort(handle),
      () => session.complete("1:1"),
    ])
      assert.equal((await failureOf(call())).kind, "closed")
    assert.deepEqual(texts(fixture, topic), [])
  })

  test("one that was replaced closes without a word, and leaves the newer one alone", async () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const { transactions, log, session } = await rigOf(fixture)
    const newer = await transactions.init("id", { timeoutMs: 60_000, keepPrepared: false })
    const handle = await newer.begin()
    await log.append(batchOf(fixture, topic, "kept"), { transaction: handle })
    await session.close()
    await newer.commit(handle)
    assert.deepEqual(texts(fixture, topic), ["kept"])
  })

  test("all of them: what is open is aborted, what is prepared stays", async () => {
    using fixture = new EngineFixture()
    const { transactions, channel, session } = await rigOf(fixture)
    await session.begin()
    const other = await transactions.init("other", { timeoutMs: 60_000, keepPrepared: false })
    const token = await other.prepare(await other.begin())
    await transactions.close()
    assert.deepEqual(
      preparedIn(fixture).map((one) => one.token),
      [token],
    )
    assert.deepEqual(
      fixture.look("SELECT state FROM transactional_id ORDER BY name").map(({ state }) => state),
      ["aborted", "prepared"],
    )
    channel.closed = true
    assert.equal((await failureOf(transactions.init("id", { timeoutMs: 1, keepPrepared: false }))).kind, "closed")
  })

  test("a handle of another backend is refused", async () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const { log, session } = await rigOf(fixture)
    const strange = { transactionalId: "id", token: { key: 1n } }
    assert.equal((await failureOf(session.commit(strange))).kind, "invalid")
    assert.equal((await failureOf(log.append(batchOf(fixture, topic, "a"), { transaction: strange }))).kind, "invalid")
  })
})
