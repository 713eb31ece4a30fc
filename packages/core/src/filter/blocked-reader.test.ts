import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, InvalidError, type PartitionRead, type ReadPosition } from "@millrace/contract"
import { BlockedReader } from "./blocked-reader.ts"

const limits = { maxRecords: 10, maxBytes: 1000, minRecords: 1, maxWaitMs: 1000 }
const blocked = new InvalidError("blocked")

function position(topic: string, partition = 0): ReadPosition {
  return { stream: "s", topic, partition, offset: 0n, lineage: "a" }
}

function answer(topic: string): PartitionRead[] {
  return [{ stream: "s", topic, partition: 0, batches: [], nextOffset: 1n, head: 1n, lineage: "a" }]
}

class Inner {
  positions: readonly ReadPosition[] = []
  polls = 0
  closed = false
  #settle: ((reads: PartitionRead[] | Error) => void) | undefined

  set(positions: readonly ReadPosition[]): void {
    this.positions = positions
  }
  next(): Promise<PartitionRead[]> {
    this.polls++
    assert.equal(this.#settle, undefined, "two polls at once")
    return new Promise((resolve, reject) => {
      this.#settle = (reads) => (reads instanceof Error ? reject(reads) : resolve(reads))
    })
  }
  tell(reads: PartitionRead[] | Error): void {
    const settle = this.#settle
    this.#settle = undefined
    settle?.(reads)
  }
  async close(): Promise<void> {
    this.closed = true
    this.tell([])
  }
}

function reader(inner: Inner): BlockedReader {
  return new BlockedReader(inner, ({ topic }) => (topic === "shut" ? blocked : undefined))
}

describe("a reader with blocked topics", () => {
  test("answers each position of theirs once with the error, and asks the log only for the others", async () => {
    const inner = new Inner()
    const one = reader(inner)
    one.set([position("open"), position("shut"), position("shut", 1)])
    assert.deepEqual(inner.positions, [position("open")])
    const told = await one.next(limits)
    assert.deepEqual(
      told.map(({ topic, partition, error }) => ({ topic, partition, error })),
      [
        { topic: "shut", partition: 0, error: blocked },
        { topic: "shut", partition: 1, error: blocked },
      ],
    )
    assert.equal(inner.polls, 0)
    const next = one.next(limits)
    inner.tell(answer("open"))
    assert.deepEqual(await next, answer("open"))
  })

  test("a position that comes while a poll waits is answered at once, and the poll's answer is the next call's", async () => {
    const inner = new Inner()
    const one = reader(inner)
    one.set([position("open")])
    const waiting = one.next(limits)
    one.set([position("open"), position("shut")])
    assert.equal((await waiting)[0]?.error, blocked)
    assert.equal(inner.polls, 1)
    const next = one.next(limits)
    inner.tell(answer("open"))
    assert.deepEqual(await next, answer("open"))
    assert.equal(inner.polls, 1)
    const last = one.next(limits)
    assert.equal(inner.polls, 2)
    inner.tell([])
    assert.deepEqual(await last, [])
  })

  test("a failure of a poll that was left is the next call's, and nobody is left with it at the end", async () => {
    const inner = new Inner()
    const one = reader(inner)
    one.set([])
    const waiting = one.next(limits)
    one.set([position("shut")])
    await waiting
    const next = one.next(limits)
    inner.tell(new ConnectionError("gone"))
    await assert.rejects(next, ConnectionError)
    const pending = one.next(limits)
    await one.close()
    assert.deepEqual(await pending, [])
    assert.equal(inner.closed, true)
    assert.deepEqual(await one.next(limits), [])
  })
})
