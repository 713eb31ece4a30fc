import assert from "node:assert/strict"
import { test } from "node:test"
import {
  ConnectionError,
  DiskFullError,
  FencedError,
  InvalidError,
  MillraceError,
  NotAssignedError,
  StorageError,
  TimeoutError,
  TransactionAbortedError,
  TransactionStateError,
  UnsupportedError,
} from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { type Client, openClient } from "../client/client.ts"
import type { Topic } from "../client/topic.ts"
import { FakeBackend } from "../producer/fake-backend.test-support.ts"
import { bytes, failed, run } from "../producer/sending-rig.test-support.ts"
import { FakeTransactions, type TransactionFate, transactionalManifest } from "./fake-transactions.test-support.ts"
import type { Transaction } from "./transaction.ts"
import type { TransactionalOptions } from "./transactional-options.ts"
import type { TransactionalProducer } from "./transactional-producer.ts"

interface Rig {
  readonly clock: VirtualClock
  readonly backend: FakeBackend
  readonly fake: FakeTransactions
  readonly client: Client
  readonly topic: Topic
  producer(options?: Partial<TransactionalOptions>): TransactionalProducer
}

function rig(manifest = transactionalManifest): Rig {
  const clock = new VirtualClock()
  const backend = new FakeBackend(clock)
  backend.create("t", 2)
  backend.create("u")
  const fake = new FakeTransactions(clock, backend)
  const options = { publishTimeoutMs: 1000, publishRetryBackoffMs: 10 }
  const client = openClient(fake.session(manifest), options, { clock, random: seededRandom(1) })
  return {
    clock,
    backend,
    fake,
    client,
    topic: client.stream("s").topic("t"),
    producer: (own = {}) => client.transactionalProducer({ transactionalId: "tx", ...own }),
  }
}

async function ready(
  own?: Partial<TransactionalOptions>,
  manifest = transactionalManifest,
): Promise<Rig & { tx: TransactionalProducer }> {
  const made = rig(manifest)
  const tx = made.producer(own)
  await run(made.clock, tx.init())
  return { ...made, tx }
}

/** What becomes of the `nth` question of a kind, counted from now on. */
function fates(fake: FakeTransactions, list: Partial<Record<string, readonly TransactionFate[]>>): void {
  const from = new Map(fake.asked)
  fake.fate = (operation, nth) => list[operation]?.[nth - (from.get(operation) ?? 0)] ?? {}
}

test("records of several topics appear together, with the commit, and it tells where", async () => {
  const { clock, backend, client, topic, tx } = await ready()
  const other = client.stream("s").topic("u")
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("a"), { partition: 1 })
  await open.sendBatch(topic, [bytes("b"), { payload: bytes("c") }], { partition: 1 })
  await open.send(other, null, { key: "gone" })
  await clock.advance(1000)
  assert.deepEqual(backend.texts("t", 1), [], "nothing is there before")
  const result = await run(clock, open.commit())
  assert.equal(open.ending, "committed")
  assert.deepEqual(backend.texts("u"), ["null"])
  assert.deepEqual(backend.texts("t", 1), ["a", "b", "c"])
  const told = result.confirmations.map((one) => `${one.topic} ${one.partition} ${one.baseOffset} ${one.count}`)
  assert.deepEqual(told.sort(), ["t 1 0 3", "u 0 0 1"])
  assert.equal(tx.state, "Ready")
  await run(clock, client.close())
})

test("the order of the calls is the order in the partition, across batches and transactions", async () => {
  const { clock, backend, topic, tx } = await ready({ batchLength: 3 })
  for (let n = 0; n < 3; n++) {
    const open = await run(clock, tx.begin())
    for (let i = 0; i < 8; i++) await open.send(topic, bytes(`${n}.${i}`), { partition: 0 })
    await run(clock, open.commit())
  }
  const expected = [0, 1, 2].flatMap((n) => Array.from({ length: 8 }, (_, i) => `${n}.${i}`))
  assert.deepEqual(backend.texts("t", 0), expected)
})

test("adjacent batches of a partition are one range in the answer", async () => {
  const { clock, topic, tx } = await ready({ batchLength: 2 })
  const open = await run(clock, tx.begin())
  for (let i = 0; i < 6; i++) await open.send(topic, bytes("x"), { partition: 0 })
  const { confirmations } = await run(clock, open.commit())
  assert.deepEqual(
    confirmations.map(({ baseOffset, count }) => [baseOffset, count]),
    [[0n, 6]],
  )
})

test("the same identity in every transaction: sequences go on", async () => {
  const { clock, backend, fake, topic, producer } = rig()
  fake.freshEpochs = false
  const tx = producer()
  await run(clock, tx.init())
  const identity = tx.identity()
  for (const text of ["a", "b", "c"]) {
    await run(
      clock,
      tx.within((open) => open.send(topic, bytes(text), { partition: 0 })),
    )
    assert.deepEqual(tx.identity(), identity)
  }
  assert.deepEqual(backend.texts("t"), ["a", "b", "c"])
})

test("aborted records were never there, and the producer goes on", async () => {
  const { clock, backend, topic, tx } = await ready()
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("lost"), { partition: 0 })
  await run(clock, open.abort())
  await run(clock, open.abort())
  assert.equal(open.ending, "aborted")
  await run(
    clock,
    tx.within((next) => next.send(topic, bytes("kept"), { partition: 0 })),
  )
  assert.deepEqual(backend.texts("t"), ["kept"])
})

test("within commits what resolves, aborts what throws and passes the reason on", async () => {
  const { clock, backend, topic, tx } = await ready()
  const answer = await run(
    clock,
    tx.within(async (open) => {
      await open.send(topic, bytes("a"), { partition: 0 })
      return 7
    }),
  )
  assert.equal(answer, 7)
  const reason = new Error("no")
  await assert.rejects(
    run(
      clock,
      tx.within(async (open) => {
        await open.send(topic, bytes("b"), { partition: 0 })
        throw reason
      }),
    ),
    (error) => error === reason,
  )
  assert.deepEqual(backend.texts("t"), ["a"])
  assert.equal(tx.state, "Ready")
})

test("within rejects when something else than its work has ended the transaction, though the work resolves", async () => {
  const fenced = await ready()
  const zombie = fenced.tx.within(async (open) => {
    await fenced.producer().init()
    await open.send(fenced.topic, bytes("zombie"), { partition: 0 })
    // It comes to know of it by its records.
    while (open.ending === "open") await new Promise<void>((resolve) => fenced.clock.setTimer(10, resolve))
  })
  assert.ok((await failed(fenced.clock, zombie)) instanceof FencedError)
  const shut = await ready()
  const cut = shut.tx.within(async (open) => {
    await open.send(shut.topic, bytes("cut"), { partition: 0 })
    await shut.tx.shutdown()
  })
  assert.ok((await failed(shut.clock, cut)) instanceof TransactionStateError)
  for (const { backend } of [fenced, shut]) assert.deepEqual(backend.texts("t"), [])
})

test("within leaves what its work has ended or prepared as it is", async () => {
  const { clock, backend, topic, tx } = await ready()
  const ends = {
    aborted: (open: Transaction) => open.abort(),
    committed: (open: Transaction) => open.commit(),
    prepared: (open: Transaction) => open.prepare(),
  }
  for (const [ending, end] of Object.entries(ends)) {
    const work = async (open: Transaction): Promise<string> => {
      await open.send(topic, bytes(ending), { partition: 0 })
      await end(open)
      return open.ending
    }
    assert.equal(await run(clock, tx.within(work)), ending)
  }
  assert.equal(tx.state, "Prepared")
  assert.deepEqual(backend.texts("t"), ["committed"])
})

test("a guard that is disposed unfinished aborts", async () => {
  const { clock, backend, topic, tx } = await ready()
  const work = async (): Promise<void> => {
    await using open = await tx.begin()
    await open.send(topic, bytes("lost"), { partition: 0 })
  }
  await run(clock, work())
  assert.equal(tx.state, "Ready")
  assert.deepEqual(backend.texts("t"), [])
})

test("a dropped guard whose abort fails needs a new incarnation", async () => {
  const { clock, fake, topic, tx } = await ready()
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("x"))
  fates(fake, { abort: [0, 1, 2, 3].map(() => ({ outcome: "refuse" })) })
  await failed(clock, Promise.resolve(open[Symbol.asyncDispose]()))
  assert.equal(tx.state, "RecoveryRequired")
  await run(clock, tx.init())
  assert.equal(tx.state, "Ready")
})

test("calls out of state name the state and what is allowed", async () => {
  const { clock, topic, producer } = rig()
  const tx = producer()
  const early = await failed(clock, tx.begin())
  assert.ok(early instanceof TransactionStateError)
  assert.match(early.message, /begin is not possible in state Uninitialized.*init/)
  await run(clock, tx.init())
  const open = await run(clock, tx.begin())
  assert.match((await failed(clock, tx.begin())).message, /begin is not possible in state InTransaction/)
  assert.match((await failed(clock, tx.init())).message, /init is not possible in state InTransaction/)
  assert.match((await failed(clock, tx.complete("1:2"))).message, /complete is not possible in state InTransaction/)
  await run(clock, open.commit())
  const calls = [
    () => open.send(topic, bytes("x")),
    () => open.commit(),
    () => open.prepare(),
    () => open.sendBatch(topic, [bytes("x")]),
  ]
  for (const call of calls) {
    const error = await failed(clock, call())
    assert.ok(error instanceof TransactionStateError)
    assert.match(error.message, /this transaction is committed/)
  }
  assert.ok((await failed(clock, open.abort())) instanceof TransactionStateError)
})

test("nothing is added while the transaction is being prepared or is prepared", async () => {
  const { clock, backend, fake, topic, tx } = await ready()
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("a"), { partition: 0 })
  fates(fake, { prepare: [{ delayMs: 100 }] })
  const preparing = open.prepare()
  assert.match((await failed(clock, open.send(topic, bytes("b")))).message, /state Preparing/)
  const token = await run(clock, preparing)
  assert.equal(open.ending, "prepared")
  assert.match((await failed(clock, open.send(topic, bytes("b")))).message, /state Prepared/)
  assert.equal(await run(clock, tx.complete(token)), "committed")
  assert.equal(open.ending, "committed")
  assert.deepEqual(backend.texts("t"), ["a"])
})

test("a prepared transaction survives its producer, is listed with its age, and is completed by the next incarnation", async () => {
  const { clock, backend, client, topic, producer, tx } = await ready()
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("a"), { partition: 0 })
  const token = await run(clock, open.prepare())
  await run(clock, tx.shutdown())
  await clock.advance(5000)
  const [listed, ...more] = await client.transactions()
  assert.equal(more.length, 0)
  assert.equal(listed?.transactionalId, "tx")
  assert.equal(listed?.token, token)
  assert.ok((listed?.ageMs ?? 0) >= 5000)
  const next = producer()
  await run(clock, next.init({ keepPrepared: true }))
  assert.equal(next.state, "Prepared")
  assert.match((await failed(clock, next.begin())).message, /state Prepared.*commit, abort, complete/)
  assert.equal(await run(clock, next.complete(token)), "committed")
  assert.deepEqual(backend.texts("t"), ["a"])
  assert.deepEqual(await client.transactions(), [])
  assert.ok((await failed(clock, next.complete(token))) instanceof TransactionStateError)
})

test("any other token aborts what is prepared, here and in the next incarnation", async () => {
  for (const token of ["", "1:99", "nonsense"]) {
    for (const restart of [false, true]) {
      const { clock, backend, topic, producer, tx } = await ready()
      const open = await run(clock, tx.begin())
      await open.send(topic, bytes("a"), { partition: 0 })
      await run(clock, open.prepare())
      const ender = restart ? producer() : tx
      if (restart) await run(clock, ender.init({ keepPrepared: true }))
      assert.equal(await run(clock, ender.complete(token)), "aborted")
      assert.deepEqual(backend.texts("t"), [])
      assert.equal(ender.state, "Ready")
    }
  }
})

test("init without keepPrepared aborts what was prepared", async () => {
  const { clock, backend, topic, producer, tx } = await ready()
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("a"), { partition: 0 })
  const token = await run(clock, open.prepare())
  const next = producer()
  await run(clock, next.init())
  assert.equal(next.state, "Ready")
  const late = await failed(clock, tx.complete(token))
  assert.ok(late instanceof FencedError)
  assert.deepEqual(backend.texts("t"), [])
})

test("an older incarnation is fenced for good, in whatever it does", async () => {
  const { clock, backend, topic, producer, tx } = await ready()
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("zombie"), { partition: 0 })
  const next = producer()
  await run(clock, next.init())
  assert.ok((await failed(clock, open.commit())) instanceof FencedError)
  assert.equal(tx.state, "Fenced")
  for (const call of [() => tx.init(), () => tx.begin(), () => tx.complete("1:1")]) {
    assert.ok((await failed(clock, call())) instanceof FencedError)
  }
  await run(
    clock,
    next.within((own) => own.send(topic, bytes("living"), { partition: 0 })),
  )
  assert.deepEqual(backend.texts("t"), ["living"])
})

test("a record that fails later makes the commit fail until the transaction is aborted", async () => {
  const { clock, backend, fake, topic, tx } = await ready()
  const open = await run(clock, tx.begin())
  fates(fake, { append: [{ outcome: "refuse", error: new DiskFullError("no room", { retryable: false }) }] })
  await open.send(topic, bytes("a"), { partition: 0 })
  await clock.advance(100)
  const refused = await failed(clock, open.send(topic, bytes("b")))
  assert.ok(refused instanceof TransactionAbortedError)
  assert.match(refused.message, /no room/)
  for (let i = 0; i < 2; i++) {
    const error = await failed(clock, open.commit())
    assert.ok(error instanceof TransactionAbortedError)
    assert.equal((error.cause as MillraceError).kind, "disk-full")
    assert.equal(tx.state, "InTransaction")
  }
  await run(clock, open.abort())
  await run(
    clock,
    tx.within((next) => next.send(topic, bytes("c"), { partition: 0 })),
  )
  assert.deepEqual(backend.texts("t"), ["c"])
})

test("a record that is refused at once is not part of the transaction, which goes on", async () => {
  const { clock, backend, topic, tx } = await ready()
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("a"), { partition: 0 })
  assert.equal((await failed(clock, open.send(topic, new Uint8Array(2000)))).kind, "record-too-large")
  assert.ok((await failed(clock, open.send(topic, "text" as unknown as Uint8Array))) instanceof InvalidError)
  assert.ok((await failed(clock, open.sendBatch(topic, [bytes("b"), 3 as never]))) instanceof InvalidError)
  await run(clock, open.commit())
  assert.deepEqual(backend.texts("t"), ["a"])
})

test("a lost acknowledgement of a batch is asked for again, and the batch is staged once", async () => {
  const { clock, backend, fake, topic, tx } = await ready()
  fates(fake, { append: [{ outcome: "lose" }, { outcome: "vanish" }] })
  await run(
    clock,
    tx.within((open) => open.send(topic, bytes("a"), { partition: 0 })),
  )
  assert.deepEqual(backend.texts("t"), ["a"])
})

test("a flush that takes too long leaves the transaction open, and it can be committed later", async () => {
  const { clock, backend, fake, topic, tx } = await ready({ flushTimeoutMs: 500 })
  const open = await run(clock, tx.begin())
  fates(fake, { append: [{ delayMs: 2000 }] })
  await open.send(topic, bytes("a"), { partition: 0 })
  for (const call of [() => open.commit(), () => open.prepare()]) {
    const error = await failed(clock, call())
    assert.equal(error.kind, "timeout")
    assert.equal(error.outcome, "rejected")
    assert.equal(open.ending, "open")
    assert.equal(tx.state, "InTransaction")
  }
  await clock.advance(3000)
  await run(clock, open.commit())
  assert.deepEqual(backend.texts("t"), ["a"])
})

test("an abort waits for what is under way no longer than the flush may take, and the next transaction is whole", async () => {
  const { clock, backend, fake, topic, tx } = await ready({ flushTimeoutMs: 500 })
  const open = await run(clock, tx.begin())
  fates(fake, { append: [{ outcome: "silence" }] })
  await open.send(topic, bytes("stuck"), { partition: 0 })
  await clock.advance(10)
  await open.send(topic, bytes("waits"), { partition: 0 })
  await run(clock, open.abort())
  await run(
    clock,
    tx.within((next) => next.send(topic, bytes("kept"), { partition: 0 })),
  )
  assert.deepEqual(backend.texts("t"), ["kept"])
})

test("records given up in doubt under an identity that stays need a new incarnation", async () => {
  const { clock, backend, fake, topic, producer } = rig()
  fake.freshEpochs = false
  const tx = producer({ flushTimeoutMs: 500 })
  await run(clock, tx.init())
  const open = await run(clock, tx.begin())
  fates(fake, { append: [{ outcome: "silence" }] })
  await open.send(topic, bytes("stuck"), { partition: 0 })
  await clock.advance(10)
  await run(clock, open.abort())
  const error = await failed(clock, tx.begin())
  assert.match(error.message, /call init/)
  assert.equal(tx.state, "RecoveryRequired")
  await run(clock, tx.init())
  await run(
    clock,
    tx.within((next) => next.send(topic, bytes("kept"), { partition: 0 })),
  )
  assert.deepEqual(backend.texts("t"), ["kept"])
})

for (const [name, outcome] of [
  ["lost", "lose"],
  ["vanished", "vanish"],
] as const) {
  test(`a commit whose answer ${name} is asked again: the records are there once`, async () => {
    const { clock, backend, fake, topic, tx } = await ready()
    fates(fake, { commit: [{ outcome }] })
    await run(
      clock,
      tx.within((open) => open.send(topic, bytes("a"), { partition: 0 })),
    )
    assert.deepEqual(backend.texts("t"), ["a"])
    assert.equal(tx.state, "Ready")
  })

  test(`a commit whose answers all ${name === "lost" ? "get lost" : "vanish"} is neither committed nor aborted, and init ends it`, async () => {
    const { clock, backend, fake, topic, tx } = await ready({ retries: 2 })
    const open = await run(clock, tx.begin())
    await open.send(topic, bytes("a"), { partition: 0 })
    fates(fake, { commit: [0, 1, 2].map(() => ({ outcome })) })
    const error = await failed(clock, open.commit())
    assert.equal(error.outcome, "unknown")
    assert.equal(open.ending, "unknown")
    assert.equal(tx.state, "RecoveryRequired")
    assert.match((await failed(clock, tx.begin())).message, /RecoveryRequired.*init/)
    await run(clock, tx.init())
    assert.deepEqual(backend.texts("t"), outcome === "lose" ? ["a"] : [])
  })
}

test("doubt is not turned into certainty by a later refusal", async () => {
  const { clock, fake, topic, tx } = await ready({ retries: 1 })
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("a"), { partition: 0 })
  fates(fake, { commit: [{ outcome: "lose" }, { outcome: "refuse", error: new ConnectionError("not reached") }] })
  const error = await failed(clock, open.commit())
  assert.equal(error.outcome, "unknown")
  assert.equal(tx.state, "RecoveryRequired")
})

test("a commit that was fenced behind a lost answer is unknown", async () => {
  const { clock, fake, topic, tx } = await ready({ retries: 1 })
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("a"), { partition: 0 })
  fates(fake, { commit: [{ outcome: "lose" }, { outcome: "refuse", error: new FencedError("epoch 9") }] })
  const error = await failed(clock, open.commit())
  assert.equal(error.outcome, "unknown")
  assert.equal(open.ending, "unknown")
  assert.equal(tx.state, "Fenced")
})

test("a commit that could not be sent can be called again", async () => {
  const { clock, backend, fake, topic, tx } = await ready({ retries: 1 })
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("a"), { partition: 0 })
  fates(fake, { commit: [{ outcome: "refuse" }, { outcome: "refuse" }] })
  const error = await failed(clock, open.commit())
  assert.equal(error.outcome, "rejected")
  assert.equal(tx.state, "InTransaction")
  await run(clock, open.commit())
  assert.deepEqual(backend.texts("t"), ["a"])
})

test("a transaction that the backend has aborted for its time says so", async () => {
  const { clock, backend, topic, tx } = await ready({ timeoutMs: 1000 })
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("a"), { partition: 0 })
  await clock.advance(2000)
  const error = await failed(clock, open.commit())
  assert.ok(error instanceof TransactionAbortedError)
  assert.match(error.message, /took too long/)
  await run(clock, open.abort())
  assert.deepEqual(backend.texts("t"), [])
  assert.equal(tx.state, "Ready")
})

test("a fatal error is for good", async () => {
  const { clock, fake, topic, tx } = await ready()
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("a"))
  fates(fake, { commit: [{ outcome: "refuse", error: new StorageError("the disk is gone") }] })
  assert.ok((await failed(clock, open.commit())) instanceof StorageError)
  assert.equal(tx.state, "FatalError")
  assert.ok((await failed(clock, tx.init())) instanceof StorageError)
})

test("an init that fails can be called again, and an empty transaction commits", async () => {
  const { clock, fake, producer } = rig()
  const tx = producer({ retries: 0 })
  fates(fake, { init: [{ outcome: "refuse" }] })
  await failed(clock, tx.init())
  assert.equal(tx.state, "Uninitialized")
  await run(clock, tx.init())
  assert.deepEqual(
    await run(
      clock,
      tx.within(() => "nothing"),
    ),
    "nothing",
  )
})

test("a topic that is deleted fails the transaction", async () => {
  const { clock, backend, topic, tx } = await ready()
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("a"), { partition: 0 })
  await clock.advance(100)
  backend.delete("t")
  await open.send(topic, bytes("b"), { partition: 0 }).catch(() => {})
  const error = await failed(clock, open.commit())
  assert.ok(error instanceof TransactionAbortedError, String(error))
  await run(clock, open.abort())
  assert.equal(tx.state, "Ready")
})

test("where a transaction has one partition, a record for another is refused before anything is asked", async () => {
  const one = transactionalManifest.transactions
  assert.ok(one.supported)
  const manifest = { ...transactionalManifest, transactions: { ...one, partitions: "one" as const } }
  const { clock, backend, topic, tx } = await ready({}, manifest)
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("a"), { partition: 1 })
  await clock.advance(50)
  await open.send(topic, bytes("b"), { partition: 1 })
  const error = await failed(clock, open.send(topic, bytes("c"), { partition: 0 }))
  assert.ok(error instanceof UnsupportedError)
  assert.match(error.message, /transactions of one partition.*partition 1 of topic "s\/t"/)
  await run(clock, open.commit())
  assert.deepEqual(backend.texts("t", 1), ["a", "b"])
  await run(
    clock,
    tx.within((next) => next.send(topic, bytes("d"), { partition: 0 })),
  )
  assert.deepEqual(backend.texts("t", 0), ["d"])
})

test("what the backend lacks is refused before it is called", async () => {
  const absent = { supported: false, reason: "it cannot", instead: "Do without" } as const
  const none = rig({ ...transactionalManifest, transactions: absent })
  assert.throws(
    () => none.producer(),
    (error) => error instanceof UnsupportedError && /it cannot.*Do without/.test(error.message),
  )
  assert.ok((await failed(none.clock, none.client.transactions())) instanceof UnsupportedError)
  const { transactions } = transactionalManifest
  assert.ok(transactions.supported)
  const { clock, tx, fake } = await ready(
    {},
    { ...transactionalManifest, transactions: { ...transactions, prepare: absent } },
  )
  const open = await run(clock, tx.begin())
  assert.ok((await failed(clock, open.prepare())) instanceof UnsupportedError)
  assert.equal(fake.asked.get("prepare"), undefined)
  assert.equal(tx.state, "InTransaction")
  await run(clock, open.abort())
  assert.ok((await failed(clock, tx.init({ keepPrepared: true }))) instanceof UnsupportedError)
})

test("options are checked", () => {
  const { producer, client } = rig()
  assert.throws(() => client.transactionalProducer({} as never), /option "transactionalId" is undefined/)
  assert.throws(() => producer({ transactionalId: "" }), InvalidError)
  assert.throws(() => producer({ idempotent: false as never }), /idempotent.*must be true, or absent/)
  assert.throws(() => producer({ background: true } as never), /unknown option "background"/)
  assert.throws(() => producer({ timeoutMs: 0 }), /timeoutMs/)
  assert.throws(() => producer({ partitions: 0 }), InvalidError)
})

test("shutdown aborts what is open, and everything ends with it", async () => {
  const { clock, backend, client, topic, tx } = await ready()
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("lost"), { partition: 0 })
  await run(clock, client.close())
  assert.equal(open.ending, "aborted")
  assert.deepEqual(backend.texts("t"), [])
  assert.equal((await failed(clock, tx.begin())).kind, "closed")
  assert.ok((await failed(clock, open.send(topic, bytes("x")))) instanceof MillraceError)
  assert.equal(clock.timers, 0, "no timer is left")
})

test("a shutdown whose backend does not answer ends in time", async () => {
  const { clock, fake, topic, tx } = await ready()
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("x"))
  fates(fake, { append: [{ outcome: "silence" }], abort: [{ outcome: "silence" }] })
  const startedMs = clock.monotonicMs()
  const error = await failed(clock, tx.shutdown({ timeoutMs: 300 }))
  assert.equal(error.kind, "timeout")
  assert.ok(clock.monotonicMs() - startedMs < 1000)
  assert.ok(open.ending !== "committed")
})

test("shutdown waits for a call that was begun while it waited for another", async () => {
  const { clock, backend, fake, topic, tx } = await ready()
  const open = await run(clock, tx.begin())
  await open.send(topic, bytes("x"))
  const refusal = { outcome: "refuse", error: new NotAssignedError("not now"), delayMs: 50 } as const
  fates(fake, { prepare: [refusal], commit: [{ delayMs: 100 }] })
  const ended = open.prepare().catch(() => open.abort())
  const over = tx.shutdown()
  await run(clock, Promise.all([ended, over]))
  assert.equal(open.ending, "aborted")
  assert.deepEqual(backend.texts("t"), [])
})

test("a guard whose producer was shut down says so, also when its abort has failed", async () => {
  const { clock, fake, tx } = await ready()
  const open = await run(clock, tx.begin())
  const refusal = { outcome: "refuse", error: new TimeoutError("not now", { outcome: "rejected" }) } as const
  fates(fake, { abort: Array.from({ length: 20 }, () => refusal) })
  await failed(clock, tx.shutdown())
  assert.equal((await failed(clock, open.commit())).kind, "closed")
  assert.equal(clock.timers, 0)
})

test("sends beyond the buffer wait for room, and all arrive", async () => {
  const { clock, backend, topic, tx } = await ready({ maxBufferBytes: 200, batchLength: 100 })
  const work = tx.within(async (open) => {
    for (let i = 0; i < 50; i++) await open.send(topic, bytes(`r${i}`), { partition: 0 })
  })
  await run(clock, work)
  assert.equal(backend.texts("t").length, 50)
})
