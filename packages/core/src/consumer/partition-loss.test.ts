/** Partitions that go while something else of them, or of the member, is under way. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ClosedError, ConnectionError, TimeoutError } from "@millrace/contract"
import { openGroupConsumer } from "../group/group-consumer.ts"
import type { GroupConsumerOptions } from "./consumer-options.ts"
import { FakeClient, take, textsOf } from "./fake-session.test-support.ts"
import type { LogConsumer } from "./log-consumer.ts"

async function open(
  client: FakeClient,
  partitions: readonly number[],
  options?: GroupConsumerOptions,
): Promise<LogConsumer> {
  client.groups.membership.tell({ assigned: partitions.map((one) => client.claim(one, `first ${one}`)) })
  return (await openGroupConsumer(client.context, { topic: client.topic, group: "g" }, options)) as LogConsumer
}

function filled(partitions: number, records: number): FakeClient {
  const client = new FakeClient({ partitions })
  for (let partition = 0; partition < partitions; partition++) client.put(0, records, partition)
  return client
}

/** Notes what is told of partitions, in order. */
function noted(consumer: LogConsumer): string[] {
  const told: string[] = []
  const note = (name: string) => (places: readonly { partition: number }[]) =>
    void told.push(`${name} ${places.map(({ partition }) => partition).join(",")}`)
  consumer.on({
    revoking: ({ partitions }) => note("revoking")(partitions),
    revoked: note("revoked"),
    lost: note("lost"),
  })
  return told
}

describe("partitions that are lost together", () => {
  test("go together: none of them is handed out while the others are dropped", async () => {
    const client = filled(2, 10)
    const consumer = await open(client, [0, 1], { commitPolicy: { kind: "each" } })
    const [message] = await take(consumer, 1)
    const mine = message?.position.partition as number
    // The store that comes before the next message is tried again after a second.
    const away = (): ConnectionError => new ConnectionError("no server", { outcome: "rejected" })
    client.offsets.failures.push(away(), away(), away())
    const waiting = consumer.nextWithin(60_000)
    waiting.catch(() => {})
    await client.settle()
    let handed = false
    waiting.then(
      () => {
        handed = true
      },
      () => {},
    )
    client.groups.membership.tell({ lost: [mine, 1 - mine].map((one) => client.claim(one, `first ${one}`)) })
    await client.clock.advance(5000)
    assert.equal(handed, false)
    await consumer.shutdown()
    await assert.rejects(waiting, ClosedError)
  })

  test("cost the reader one change, however many they are", async () => {
    const many = Array.from({ length: 100 }, (_, partition) => partition)
    const client = filled(100, 1)
    const consumer = await open(client, many)
    await take(consumer, 100)
    await client.settle()
    const sets = (): number => [...client.log.readers].reduce((sum, reader) => sum + reader.sets.length, 0)
    const before = sets()
    const claims = many.slice(1).map((one) => client.claim(one, `first ${one}`))
    client.groups.membership.tell({ lost: claims.slice(0, 50) })
    await client.settle()
    client.groups.membership.tell({ revoked: claims.slice(50) })
    await client.clock.advance(2000)
    assert.ok(sets() - before <= 4, `${sets() - before} changes`)
    await consumer.shutdown()
  })
})

test("a partition that is assigned anew without having been taken away is read under the new claim alone", async () => {
  const client = filled(1, 10)
  const consumer = await open(client, [0])
  await take(consumer, 4)
  const told = noted(consumer)
  client.groups.membership.tell({ assigned: [client.claim(0, "second")] })
  await client.settle()
  assert.deepEqual(told, ["lost 0"])
  assert.deepEqual(textsOf(await take(consumer, 10)), ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"])
  await consumer.shutdown()
  assert.deepEqual(new Set(client.offsets.history.map(({ claim }) => claim?.token)), new Set(["second"]))
})

describe("a member whose handler is overdue while it hands a partition over", () => {
  test("tells of each partition once, and nothing stays in doubt", async () => {
    const client = filled(2, 10)
    const consumer = await open(client, [0, 1], { handlerTimeoutMs: 3000, revokeTimeoutMs: 20_000 })
    const told = noted(consumer)
    const messages = await take(consumer, 12)
    const last = messages.at(-1)?.position.partition as number
    await client.clock.advance(1000)
    client.groups.membership.tell({ revoked: [client.claim(last, `first ${last}`)], deadlineMs: 30_000 })
    await client.clock.advance(1000)
    assert.deepEqual(told, [`revoking ${last}`])
    await client.clock.advance(10_000)
    assert.deepEqual(told, [`revoking ${last}`, `revoking ${1 - last}`, `revoked ${last}`, `revoked ${1 - last}`])
    assert.equal(client.groups.membership.left, true)
    await consumer.shutdown()
    assert.equal(client.clock.timers, 0)
  })

  test("whose hand-over ends in time calls it handed over", async () => {
    const client = filled(2, 10)
    const consumer = await open(client, [0, 1], { handlerTimeoutMs: 3000, revokeTimeoutMs: 3500 })
    const told = noted(consumer)
    const messages = await take(consumer, 12)
    const last = messages.at(-1)?.position.partition as number
    client.groups.membership.tell({ revoked: [client.claim(last, `first ${last}`)], deadlineMs: 30_000 })
    await client.clock.advance(10_000)
    assert.deepEqual(
      told.toSorted(),
      [`revoked ${last}`, `revoked ${1 - last}`, `revoking ${last}`, `revoking ${1 - last}`].toSorted(),
    )
    await consumer.shutdown()
    assert.equal(client.clock.timers, 0)
  })
})

describe("a release whose answer comes late", () => {
  test("is told before the partition is assigned again, and once", async () => {
    const client = filled(2, 10)
    const consumer = await open(client, [0, 1])
    const told = noted(consumer)
    consumer.on({ assigned: (places) => void told.push(`assigned ${places.map(({ partition }) => partition)}`) })
    const answer = Promise.withResolvers<void>()
    client.groups.membership.release = () => answer.promise
    client.groups.membership.tell({ revoked: [0, 1].map((one) => client.claim(one, `first ${one}`)) })
    await client.settle()
    assert.deepEqual(told, ["assigned 0,1", "revoking 0,1"])
    client.groups.membership.tell({ assigned: [client.claim(0, "second")] })
    await client.settle()
    assert.deepEqual(told.slice(2), ["revoked 0", "assigned 0"])
    answer.resolve()
    await client.settle()
    assert.deepEqual(told.slice(4), ["revoked 1"])
    await consumer.shutdown()
  })

  test("and says no: the next read hears it, and the partitions are gone all the same", async () => {
    const client = filled(1, 10)
    const consumer = await open(client, [0])
    const told = noted(consumer)
    client.groups.membership.release = () => Promise.reject(new TimeoutError("no answer"))
    client.groups.membership.tell({ revoked: [client.claim(0, "first 0")] })
    await client.settle()
    assert.deepEqual(told, ["revoking 0", "revoked 0"])
    await assert.rejects(consumer.next(), TimeoutError)
    await consumer.shutdown()
  })
})

test("a shutdown before the first assignment ends the call, also when the group does not answer", async () => {
  const client = filled(1, 10)
  client.groups.membership.leave = () => new Promise(() => {})
  const refusal = assert.rejects(
    openGroupConsumer(client.context, { topic: client.topic, group: "g" }),
    /shut down before its first assignment/,
  )
  await client.settle()
  const ended = Promise.allSettled([...client.owned].map((owned) => owned.shutdown()))
  await client.clock.advance(5000)
  await refusal
  await ended
  assert.equal(client.clock.timers, 0)
})
