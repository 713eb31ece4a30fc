import assert from "node:assert/strict"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { describe, it } from "node:test"
import { TimeoutError } from "@millrace/contract"
import { EngineFixture, log, testLockBoundMs } from "./engine.test-support.ts"

/** Another process in the middle of a write. */
function lockOf(store: EngineFixture): { release(): void } {
  const db = new DatabaseSync(join(store.path, "millrace.db"))
  db.exec("BEGIN IMMEDIATE")
  return {
    release: () => {
      db.exec("ROLLBACK")
      db.close()
    },
  }
}

describe("while another process holds the write lock", () => {
  it("reads are answered, and writes follow when it lets go", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 1)
    const lock = lockOf(store)
    const [id] = store.ask(store.appendRequest(store.batch(topic, [{}])))
    assert.equal(store.replies.has(id as number), false)
    assert.equal(store.read(topic, 0n).nextOffset, 1n)
    lock.release()
    await store.clock.advance(1)
    assert.equal(store.answer<{ base: bigint }>(id as number).base, 1n)
  })

  it("a write fails after its bound as rejected and retryable, and the next one works", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const lock = lockOf(store)
    const [id] = store.ask(store.appendRequest(store.batch(topic, [{}])))
    await store.clock.advance(testLockBoundMs)
    assert.equal(store.replies.has(id as number), false)
    await store.clock.advance(2)
    lock.release()
    assert.throws(
      () => store.answer(id as number),
      (error: TimeoutError) => error instanceof TimeoutError && error.outcome === "rejected" && error.retryable,
    )
    assert.equal(store.appendMany(topic, 1).base, 0n)
  })

  it("closing ends what waits", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const lock = lockOf(store)
    const [id] = store.ask(store.appendRequest(store.batch(topic, [{}])))
    store.reopen()
    assert.throws(() => store.answer(id as number), { kind: "closed" })
    lock.release()
    assert.equal(store.call<{ topics: number }>("catalog.describeStream", log.stream).topics, 1)
  })
})
