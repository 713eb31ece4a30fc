/** `consumer.seek(partition, "skip")`: past what cannot be read. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { CorruptionError, InvalidError, StorageError, UnsupportedError } from "@millrace/contract"
import type { Message } from "../record/message.ts"
import { failing, filled, open, seek } from "./consumer-seek.test-support.ts"
import { FakeClient, fakeManifest, take, textsOf } from "./fake-session.test-support.ts"

describe("skip", () => {
  const damaged = (error: (offset: bigint, nextOffset: bigint) => Error): FakeClient => {
    const client = filled(20)
    client.log.find(client.place())?.damage.push({ offset: 5n, error: error(5n, 10n) as CorruptionError })
    return client
  }

  for (const [name, error] of [
    ["a batch that contradicts itself", (o: bigint, n: bigint) => corrupt(o, n)],
    [
      "a batch in a form that is not supported",
      (offset: bigint, nextOffset: bigint) => new UnsupportedError("zstd", { context: { offset, nextOffset } }),
    ],
  ] as const) {
    test(`goes past ${name}, at once`, async () => {
      const client = damaged(error)
      const consumer = open(client)
      assert.equal((await take(consumer, 5)).length, 5)
      const told = (await failing(client, consumer.next())) as CorruptionError
      assert.equal(told.context.offset, 5n)
      await seek(client, consumer, "skip")
      assert.deepEqual(textsOf(await take(consumer, 2)), ["10", "11"])
      assert.equal(client.clock.monotonicMs(), 0)
      await consumer.shutdown()
      assert.equal(client.storedNext("worker"), 12n)
    })
  }

  test("also while the same error has come again", async () => {
    const client = damaged(corrupt)
    const consumer = open(client)
    await take(consumer, 5)
    await failing(client, consumer.next())
    await client.clock.advance(5000)
    await seek(client, consumer, "skip")
    assert.deepEqual(textsOf(await take(consumer, 10))[0], "10")
    const waiting = consumer.next()
    await client.settle()
    await consumer.shutdown()
    assert.equal((await waiting).done, true, "it is not told twice")
  })

  test("is progress: what was skipped does not come again after a restart", async () => {
    const client = filled(10)
    client.log.find(client.place())?.damage.push({ offset: 5n, error: corrupt(5n, 10n) })
    const consumer = open(client)
    await take(consumer, 5)
    await failing(client, consumer.next())
    await seek(client, consumer, "skip")
    const waiting = consumer.next()
    await client.settle()
    await consumer.shutdown()
    await waiting
    assert.equal(client.storedNext("worker"), 10n)
  })

  test("leaves what is handed out and not handled as it is", async () => {
    const client = damaged(corrupt)
    const consumer = open(client, { commitPolicy: { kind: "disabled" } })
    const messages = await take(consumer, 5)
    await failing(client, consumer.next())
    await seek(client, consumer, "skip")
    await consumer.commit(messages[1] as Message)
    assert.equal(client.storedNext("worker"), 2n)
    await consumer.shutdown()
  })

  test("where nobody knows how long the damage is, goes on by one record", async () => {
    const client = filled(10)
    const damage = client.log.find(client.place())?.damage
    for (const offset of [5n, 6n, 7n])
      damage?.push({ offset, error: new CorruptionError("bad", { context: { offset: 5n } }) })
    const consumer = open(client)
    await take(consumer, 5)
    for (let n = 0; n < 3; n++) {
      assert.ok((await failing(client, consumer.next())) instanceof CorruptionError)
      await seek(client, consumer, "skip")
    }
    assert.deepEqual(textsOf(await take(consumer, 2)), ["8", "9"])
    await consumer.shutdown()
  })

  test("a gap in a log that has none goes on behind the gap", async () => {
    const client = new FakeClient({ manifest: { ...fakeManifest, read: { ...fakeManifest.read, holes: false } } })
    client.put(0, 3)
    client.log.put(client.place(), [{ payload: new TextEncoder().encode("7") }], { at: 7n })
    const consumer = open(client)
    await take(consumer, 3)
    assert.ok((await failing(client, consumer.next())) instanceof CorruptionError)
    await seek(client, consumer, "skip")
    assert.deepEqual(textsOf(await take(consumer, 1)), ["7"])
    await consumer.shutdown()
  })

  test("without an error of a record is refused, and says what there was", async () => {
    const client = damaged(corrupt)
    const consumer = open(client)
    await take(consumer, 2)
    await assert.rejects(consumer.seek(0, "skip"), /nothing to skip: no error of this partition was handed out/)
    await take(consumer, 3)
    await failing(client, consumer.next())
    await seek(client, consumer, "skip")
    await assert.rejects(consumer.seek(0, "skip"), /nothing to skip/)
    await take(consumer, 1)
    await assert.rejects(consumer.seek(0, "skip"), /nothing to skip/)
    await consumer.shutdown()
  })

  test("of damage that the look-up of the start came upon is refused, and the start is tried again all the same", async () => {
    const client = filled(3)
    let damaged = true
    client.log.beforeLocate = async () => {
      if (damaged) throw corrupt(0n, 2n)
    }
    const consumer = open(client)
    await failing(client, consumer.next())
    await assert.rejects(consumer.seek(0, "skip"), /where reading begins is not known/)
    damaged = false
    await client.clock.advance(1000)
    assert.deepEqual(textsOf(await take(consumer, 3)), ["0", "1", "2"])
    await consumer.shutdown()
  })

  test("after an error that is not of a record is refused", async () => {
    const client = filled(5)
    const partition = client.log.find(client.place())
    assert.ok(partition !== undefined)
    partition.failure = new StorageError("a bad disk")
    const consumer = open(client)
    assert.ok((await failing(client, consumer.next())) instanceof StorageError)
    await assert.rejects(
      consumer.seek(0, "skip"),
      (error) =>
        error instanceof InvalidError &&
        /is not of a record that cannot be read, but of kind "storage"/.test(error.message),
    )
    await consumer.shutdown()
  })
})

function corrupt(offset: bigint, nextOffset: bigint): CorruptionError {
  return new CorruptionError(`records ${offset} to ${nextOffset - 1n} are damaged`, { context: { offset, nextOffset } })
}
