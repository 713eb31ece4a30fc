import assert from "node:assert/strict"
import { test } from "node:test"
import {
  FencedError,
  HistoryChangedError,
  InvalidError,
  NotAssignedError,
  TransactionAbortedError,
  UnsupportedError,
} from "@millrace/contract"
import type { LogConsumer } from "../consumer/log-consumer.ts"
import { openConsumer } from "../consumer/partition-consumer.ts"
import { openGroupLog } from "../group/group-consumer.ts"
import { bytes, failed, run } from "../producer/sending-rig.test-support.ts"
import type { Message } from "../record/message.ts"
import { transactionalManifest } from "./fake-transactions.test-support.ts"
import { ProcessingRig } from "./processing-rig.test-support.ts"
import { TransactionalProducer } from "./transactional-producer.ts"

interface Setting {
  readonly rig: ProcessingRig
  readonly producer: TransactionalProducer
  readonly consumer: LogConsumer
  take(count: number): Promise<Message[]>
}

async function setting(commitPolicy: object = { kind: "disabled" }): Promise<Setting> {
  const rig = new ProcessingRig({ retries: 1 })
  rig.input.put(0, 10)
  const producer = new TransactionalProducer(rig.context, { transactionalId: "tx" })
  await run(rig.clock, producer.init())
  const source = { topic: rig.input.topic, group: "g", what: 'consumer of group "g"' }
  const opening = openGroupLog(rig.context, source, { startAt: { kind: "first" }, commitPolicy } as never)
  rig.assign(0)
  const consumer = await run(rig.clock, opening)
  const take = async (count: number): Promise<Message[]> => {
    const messages: Message[] = []
    while (messages.length < count) messages.push(await run(rig.clock, consumer.nextWithin(1000)))
    return messages
  }
  return { rig, producer, consumer, take }
}

test("progress is stored with the commit, and the consumer knows of it", async () => {
  const { rig, producer, consumer, take } = await setting()
  const messages = await take(3)
  const open = await run(rig.clock, producer.begin())
  await open.send(rig.out, bytes("made of three"))
  await run(rig.clock, open.sendOffsets(consumer, messages))
  assert.equal(rig.input.groupNext("g"), undefined, "not before")
  await run(rig.clock, open.commit())
  assert.equal(rig.input.groupNext("g"), 3n)
  assert.equal(consumer.lastStoredOffset(0), 2n)
  await run(rig.clock, consumer.shutdown())
  assert.equal(rig.input.groupNext("g"), 3n)
})

test("an abort stores nothing, and neither does the end of the consumer", async () => {
  const { rig, producer, consumer, take } = await setting()
  const messages = await take(3)
  const open = await run(rig.clock, producer.begin())
  await run(rig.clock, open.sendOffsets(consumer, messages))
  await run(rig.clock, open.abort())
  await run(rig.clock, consumer.shutdown())
  assert.equal(rig.input.groupNext("g"), undefined)
})

test("a checkpoint does as well as its message, the last of a partition counts, and a later call replaces an earlier one", async () => {
  const { rig, producer, consumer, take } = await setting()
  const messages = await take(5)
  const open = await run(rig.clock, producer.begin())
  const [first, second, third] = messages as [Message, Message, Message]
  await run(rig.clock, open.sendOffsets(consumer, [third.checkpoint(), first, second]))
  await run(rig.clock, open.sendOffsets(consumer, [second.checkpoint()]))
  await run(rig.clock, open.sendOffsets(consumer, []))
  await run(rig.clock, open.commit())
  assert.equal(rig.input.groupNext("g"), 2n)
})

test("offsets that are not awaited are in the transaction, or it fails", async () => {
  const { rig, producer, consumer, take } = await setting()
  const messages = await take(2)
  const open = await run(rig.clock, producer.begin())
  rig.fates({ enlist: [{ delayMs: 300 }] })
  const enlisting = open.sendOffsets(consumer, messages)
  await run(rig.clock, open.commit())
  await enlisting
  assert.equal(rig.input.groupNext("g"), 2n)

  const next = await run(rig.clock, producer.begin())
  rig.fates({ enlist: [0, 1].map(() => ({ outcome: "refuse" })) })
  const failing = failed(rig.clock, next.sendOffsets(consumer, await take(1)))
  const error = await failed(rig.clock, next.commit())
  assert.equal((await failing).kind, "connection")
  assert.ok(error instanceof TransactionAbortedError)
  await run(rig.clock, next.abort())
  assert.equal(rig.input.groupNext("g"), 2n)
})

test("a partition that is another member's is refused at once where that is known, and at the commit where not", async () => {
  const { rig, producer, consumer, take } = await setting()
  const messages = await take(2)
  const open = await run(rig.clock, producer.begin())
  await open.send(rig.out, bytes("x"))
  await run(rig.clock, open.sendOffsets(consumer, messages))
  rig.input.offsets.void.add(messages[0]?.checkpoint().claim?.token)
  assert.ok((await failed(rig.clock, open.commit())) instanceof NotAssignedError)
  assert.equal(producer.state, "InTransaction")
  assert.ok((await failed(rig.clock, open.commit())) instanceof TransactionAbortedError)
  await run(rig.clock, open.abort())
  assert.deepEqual(rig.made, [])

  rig.input.groups.membership.tell({ lost: [messages[0]?.checkpoint().claim as never] })
  await rig.clock.advance(10)
  const next = await run(rig.clock, producer.begin())
  assert.ok((await failed(rig.clock, next.sendOffsets(consumer, messages))) instanceof NotAssignedError)
  await run(rig.clock, next.abort())
})

test("a message of a history that is over is refused", async () => {
  const { rig, producer, consumer, take } = await setting()
  const messages = await take(2)
  rig.input.log.purge(rig.input.place(), "b")
  rig.input.put(50, 52)
  await take(1)
  const open = await run(rig.clock, producer.begin())
  assert.ok((await failed(rig.clock, open.sendOffsets(consumer, messages))) instanceof HistoryChangedError)
  await run(rig.clock, open.abort())
})

test("a consumer that stores by itself is refused, and so is one without a name, of another client, or none", async () => {
  const { rig, producer, consumer, take } = await setting({ kind: "polling" })
  const messages = await take(1)
  const open = await run(rig.clock, producer.begin())
  const error = await failed(rig.clock, open.sendOffsets(consumer, messages))
  assert.ok(error instanceof InvalidError)
  assert.match(error.message, /commitPolicy stores by itself.*"disabled"/)
  const nameless = openConsumer(rig.context, { topic: rig.input.topic, name: undefined, partition: 0 })
  assert.ok((await failed(rig.clock, open.sendOffsets(nameless, []))) instanceof InvalidError)
  const other = (await setting()).consumer
  assert.match((await failed(rig.clock, open.sendOffsets(other, []))).message, /another connection/)
  assert.match((await failed(rig.clock, open.sendOffsets({} as never, []))).message, /takes a consumer/)
  assert.match((await failed(rig.clock, open.sendOffsets(consumer, messages[0] as never))).message, /array/)
  await run(rig.clock, open.commit())
})

test("where transactions hold no offsets, they are refused before anything is asked", async () => {
  const { rig, consumer, take } = await setting()
  const { transactions } = transactionalManifest
  assert.ok(transactions.supported)
  const absent = { supported: false, reason: "it cannot", instead: "Do without" } as const
  const session = rig.transactions.session({
    ...transactionalManifest,
    transactions: { ...transactions, offsets: absent },
  })
  const producer = new TransactionalProducer({ ...rig.client, own: () => () => {}, session }, { transactionalId: "y" })
  await run(rig.clock, producer.init())
  const open = await run(rig.clock, producer.begin())
  assert.ok((await failed(rig.clock, open.sendOffsets(consumer, await take(1)))) instanceof UnsupportedError)
  assert.equal(rig.asked("enlist"), 0)
  await run(rig.clock, open.abort())
})

test("a fenced producer's offsets are not stored", async () => {
  const { rig, producer, consumer, take } = await setting()
  const messages = await take(2)
  const open = await run(rig.clock, producer.begin())
  const newer = new TransactionalProducer(rig.context, { transactionalId: "tx" })
  await run(rig.clock, newer.init())
  assert.ok((await failed(rig.clock, open.sendOffsets(consumer, messages))) instanceof FencedError)
  assert.equal(producer.state, "Fenced")
  assert.equal(rig.input.groupNext("g"), undefined)
})

test("what lingers when a newer incarnation takes over leaves no timer behind", async () => {
  const { rig, consumer, take } = await setting()
  const producer = new TransactionalProducer(rig.context, { transactionalId: "other", lingerMs: 60_000 })
  await run(rig.clock, producer.init())
  const messages = await take(2)
  const open = await run(rig.clock, producer.begin())
  const newer = new TransactionalProducer(rig.context, { transactionalId: "other" })
  await run(rig.clock, newer.init())
  await open.send(rig.out, bytes("lingers"))
  assert.ok((await failed(rig.clock, open.sendOffsets(consumer, messages))) instanceof FencedError)
  await run(rig.clock, producer.shutdown())
  await run(rig.clock, consumer.shutdown())
  assert.equal(rig.clock.timers, 0)
})
