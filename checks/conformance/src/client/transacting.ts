/** Chapter: the transactional producer: records that appear together or not at all, what is refused, and what a transaction survives. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { encryptor, HeaderValue, json, type Topic, type Transaction, type TransactionalProducer } from "millrace"
import { type ClientRig, encode } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { numbered, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import { contentsOf, contentsText, hasTransactions, readyProducer } from "../rig/transacted.ts"

const keys = { ours: new Uint8Array(32).fill(1) }
const ours = encryptor({ current: "ours", keys })

export function transactingChapter(rig: ClientRig): void {
  describe("transactions", () => {
    test("are there, or are refused with the reason and what to use instead", async () => {
      const { transactions } = rig.client.manifest
      const topic = await rig.topic()
      const calls = {
        transactionalProducer: () => rig.client.transactionalProducer({ transactionalId: rig.name("t") }).shutdown(),
        transactions: () => rig.client.transactions(),
        process: () =>
          rig.client.process({ from: { topic, group: "g" }, to: topic, handler: () => undefined }).shutdown(),
      }
      for (const call of Object.values(calls)) {
        if (transactions.supported) await call()
        else await refused(call, { kind: "unsupported", says: [transactions.reason, transactions.instead] })
      }
    })

    test("records of any topics and partitions are there with the commit, which tells where, and not before", async () => {
      if (!hasTransactions(rig)) return
      const [one, other] = [await rig.topic(2), await rig.topic()]
      const producer = await readyProducer(rig)
      const transaction = await producer.begin()
      await transaction.send(one, encode("a0"), { partition: 0 })
      await transaction.send(one, encode("b0"), { partition: 1 })
      await transaction.sendBatch(other, numbered("c", 0, 3).map(encode))
      await transaction.send(one, encode("a1"), { partition: 0 })
      assert.equal(transaction.ending, "open")
      assert.deepEqual([await contentsText(one), await contentsText(other)], [[], []])
      const { confirmations } = await transaction.commit()
      assert.equal(transaction.ending, "committed")
      assert.deepEqual([await contentsText(one), await contentsText(other)], [["a0", "a1", "b0"], numbered("c", 0, 3)])
      const told = new Map<string, number>()
      for (const { topic, partition, baseOffset, count } of confirmations) {
        const place = `${topic === one.name ? "one" : "other"}/${partition}`
        assert.equal(baseOffset, BigInt(told.get(place) ?? 0), "ranges of a partition follow each other")
        told.set(place, (told.get(place) ?? 0) + count)
      }
      assert.deepEqual(Object.fromEntries(told), { "one/0": 2, "one/1": 1, "other/0": 3 })
      await producer.shutdown()
    })

    test("nothing of an aborted one is ever there; aborting again does nothing, and the next one is a new one", async () => {
      if (!hasTransactions(rig)) return
      const topic = await rig.topic()
      const producer = await readyProducer(rig)
      const first = await producer.begin()
      await first.send(topic, encode("aborted"))
      await first.abort()
      await first.abort()
      assert.equal(first.ending, "aborted")
      const second = await producer.begin()
      await second.send(topic, encode("committed"))
      await second.commit()
      assert.deepEqual(await contentsText(topic), ["committed"])
      await producer.shutdown()
    })

    test("one that is left open when its scope ends is aborted, and so is one that shutdown or close finds open", async () => {
      if (!hasTransactions(rig)) return
      const client = await rig.connect()
      const topic = await rig.topic(1, {}, client)
      const producer = await readyProducer(rig, {}, client)
      {
        await using transaction = await producer.begin()
        await transaction.send(topic, encode("left"))
      }
      assert.equal(producer.state, "Ready")
      const open = await producer.begin()
      await open.send(topic, encode("shut down"))
      await settlesWithin("the shutdown", producer.shutdown())
      assert.equal(open.ending, "aborted")
      await refused(() => producer.begin(), "closed")
      await refused(() => open.send(topic, encode("late")), { kind: "transaction-state", says: ["send", "aborted"] })
      const another = await readyProducer(rig, {}, client)
      await (await another.begin()).send(topic, encode("closed"))
      if (rig.under.isolated !== undefined) assert.deepEqual(await contentsText(topic), [])
      await settlesWithin("the close", client.close())
      if (rig.under.isolated === undefined) assert.deepEqual(await contentsText(rig.through(rig.client, topic)), [])
    })

    test("within commits what its work resolves with, and aborts what it throws", async () => {
      if (!hasTransactions(rig)) return
      const topic = await rig.topic()
      const producer = await readyProducer(rig)
      const answer = await producer.within(async (transaction) => {
        await transaction.send(topic, encode("in"))
        return 7
      })
      assert.equal(answer, 7)
      const broken = new Error("broken")
      const failing = producer.within(async (transaction) => {
        await transaction.send(topic, encode("out"))
        throw broken
      })
      await assert.rejects(failing, (error) => error === broken)
      await producer.within((transaction) => transaction.abort())
      assert.equal(await producer.within(() => "sync"), "sync")
      assert.deepEqual(await contentsText(topic), ["in"])
      assert.equal(producer.state, "Ready")
      await producer.shutdown()
    })

    test("within rejects when its transaction is not committed, whatever its work makes of the errors it sees", async () => {
      if (!hasTransactions(rig)) return
      const topic = await rig.topic()
      const transactionalId = rig.name("transactions")
      const producer = await readyProducer(rig, { transactionalId })
      let newer: TransactionalProducer | undefined
      const work = producer.within(async (transaction) => {
        await transaction.send(topic, encode("lost"))
        newer = await readyProducer(rig, { transactionalId })
        for (let i = 0; i < 3; i++) await transaction.send(topic, encode("late")).catch(() => {})
        await transaction.commit().catch(() => {})
      })
      await refused(() => work, "fenced")
      assert.deepEqual(await contentsText(topic), [])
      await Promise.all([producer.shutdown(), newer?.shutdown()])
    })

    test("A-22: an empty one commits, and so does one with an empty batch", async () => {
      if (!hasTransactions(rig)) return
      const topic = await rig.topic()
      const producer = await readyProducer(rig)
      assert.deepEqual(await (await producer.begin()).commit(), { confirmations: [] })
      const transaction = await producer.begin()
      await transaction.sendBatch(topic, [])
      assert.deepEqual(await transaction.commit(), { confirmations: [] })
      await (await producer.begin()).abort()
      assert.deepEqual(await contentsText(topic), [])
      await producer.shutdown()
    })

    test("A-17, A-19: keys, repeated headers, tombstones and empty payloads come back as they were", async () => {
      if (!hasTransactions(rig)) return
      const topic = await rig.topic()
      const producer = await readyProducer(rig)
      await producer.within(async (transaction) => {
        await transaction.send(topic, null, { key: "k" })
        await transaction.send(topic, new Uint8Array(0))
        await transaction.sendBatch(topic, [
          {
            payload: encode("full"),
            id: 77n,
            headers: [
              ["a", "1"],
              ["b", HeaderValue.int32(7)],
              ["a", "2"],
            ],
          },
        ])
      })
      const [tombstone, empty, full] = await contentsOf(topic)
      assert.deepEqual([tombstone?.payload, text(tombstone?.key)], [null, "k"])
      assert.deepEqual(empty?.payload, new Uint8Array(0))
      assert.equal(full?.key ?? undefined, undefined)
      assert.equal(full?.id, 77n)
      assert.deepEqual(Array.from(full?.headers ?? [], ([name, value]) => [name, value.value]).sort(), [
        ["a", "1"],
        ["a", "2"],
        ["b", 7],
      ])
      await producer.shutdown()
    })

    test("keys go to the partitions where any producer puts them, and a batch is copied when it is accepted", async () => {
      if (!hasTransactions(rig)) return
      const [plain, transacted] = [await rig.topic(4), await rig.topic(4)]
      const names = numbered("key", 0, 20)
      for (const key of names) await plain.producer().send(encode(key), { key })
      const producer = await readyProducer(rig)
      await producer.within(async (transaction) => {
        for (const key of names) {
          const payload = encode(key)
          await transaction.send(transacted, payload, { key })
          payload.fill(0)
        }
      })
      const places = (messages: Awaited<ReturnType<typeof contentsOf>>): string[] =>
        messages.map(({ payload, position }) => `${text(payload)} ${position.partition}`).sort()
      assert.deepEqual(places(await contentsOf(transacted)), places(await contentsOf(plain)))
      await producer.shutdown()
    })

    test("values of a typed topic, and records that are encrypted, are what any producer would have sent", async () => {
      if (!hasTransactions(rig)) return
      const topic = await rig.topic()
      const typed = topic.json(json((value) => value as { n: number }))
      const producer = await readyProducer(rig, { encryptor: ours })
      await producer.within(async (transaction) => {
        await transaction.send(typed, { n: 1 }, { key: "one" })
        await transaction.send(typed, null, { key: "one" })
        await transaction.send(topic, encode("secret"))
        const cyclic: { n: number; self?: unknown } = { n: 2 }
        cyclic.self = cyclic
        await refused(() => transaction.send(typed, cyclic), "invalid")
      })
      const clear = await contentsOf(topic, { encryptor: ours })
      assert.deepEqual(
        clear.map(({ payload }) => payload && text(payload)),
        ['{"n":1}', null, "secret"],
      )
      for (const { payload } of await contentsOf(topic, { encryptor: false })) {
        assert.ok(payload === null || !Buffer.from(payload).includes("secret"))
      }
      await producer.shutdown()
    })

    test("a record that is refused is no part of it, and the others are committed", async () => {
      if (!hasTransactions(rig)) return
      const topic = await rig.topic()
      const producer = await readyProducer(rig)
      const transaction = await producer.begin()
      await transaction.send(topic, encode("before"))
      const { payloadBytes } = rig.client.manifest.limits
      await refused(() => transaction.send(topic, new Uint8Array(payloadBytes + 1)), {
        kind: "record-too-large",
        says: [`${payloadBytes}`],
      })
      await refused(() => transaction.send(topic, "a text" as unknown as Uint8Array), "invalid")
      await refused(() => transaction.sendBatch(topic, [encode("x"), 7 as unknown as Uint8Array]), {
        kind: "invalid",
        says: ["1"],
      })
      await transaction.send(topic, encode("after"))
      await transaction.commit()
      assert.deepEqual(await contentsText(topic), ["before", "after"])
      await producer.shutdown()
    })

    test("one whose topic is deleted meanwhile cannot be committed, says so until it is aborted, and spoils no later one", async () => {
      if (!hasTransactions(rig)) return
      const [gone, stays] = [await rig.topic(), await rig.topic()]
      const producer = await readyProducer(rig, { createTopic: false })
      const transaction = await producer.begin()
      await transaction.send(stays, encode("with it"))
      await transaction.send(gone, encode("lost"))
      await gone.delete()
      for (let i = 0; i < 2; i++) await refused(() => transaction.commit(), "transaction-aborted")
      await refused(() => transaction.send(stays, encode("more")), "transaction-aborted")
      assert.equal(producer.state, "InTransaction")
      await transaction.abort()
      await producer.within((next) => next.send(stays, encode("next")))
      assert.deepEqual(await contentsText(stays), ["next"])
      await producer.shutdown()
    })

    test("one with a record that turns out to have no place, whose topic or partition is not there, cannot be committed", async () => {
      if (!hasTransactions(rig)) return
      const topic = await rig.topic()
      const producer = await readyProducer(rig, { createTopic: false, createStream: false })
      for (const [to, partition, kind] of [
        [rig.handle(), undefined, "not-found"],
        [topic, 9, "invalid"],
      ] as const) {
        const transaction = await producer.begin()
        await transaction.send(topic, encode("with it"))
        // Whether it is told by the send or by the commit: it does not pass for done.
        const sent = transaction.send(to, encode("lost"), partition === undefined ? {} : { partition })
        const told = await sent.then(() => transaction.commit()).then(undefined, (error) => error)
        assert.ok([kind, "transaction-aborted"].includes(told?.kind), `${told}`)
        if (told.kind === "transaction-aborted") assert.equal(told.cause?.kind, kind)
        await transaction.abort()
      }
      assert.deepEqual(await contentsText(topic), [])
      await producer.shutdown()
    })

    test("a topic that does not exist is created at once, and stays when the transaction is aborted", async () => {
      if (!hasTransactions(rig)) return
      const [kept, dropped] = [rig.handle(), rig.handle()]
      const producer = await readyProducer(rig)
      await producer.within((transaction) => transaction.send(kept, encode("r")))
      assert.deepEqual(await contentsText(kept), ["r"])
      const transaction = await producer.begin()
      await transaction.send(dropped, encode("r"))
      await until("the topic to be there", () => dropped.describe().catch(() => undefined))
      await transaction.abort()
      assert.deepEqual(await contentsText(dropped), [])
      await producer.shutdown()
    })
  })

  describe("transactional calls out of state", () => {
    test("are refused by name, with the state and what to do, and change nothing", async () => {
      if (!hasTransactions(rig)) return
      const topic = await rig.topic()
      const producer = rig.client.transactionalProducer({ transactionalId: rig.name("transactions") })
      assert.deepEqual([producer.state, producer.identity()], ["Uninitialized", undefined])
      await outOfState(producer, { begin: () => producer.begin(), complete: () => producer.complete("1:1") })
      await settlesWithin("init", producer.init())
      assert.equal(producer.state, "Ready")
      assert.ok(producer.identity() !== undefined)
      await outOfState(producer, { complete: () => producer.complete("1:1") })
      const transaction = await producer.begin()
      await outOfState(producer, {
        init: () => producer.init(),
        begin: () => producer.begin(),
        complete: () => producer.complete("1:1"),
      })
      await transaction.send(topic, encode("r"))
      const commit = transaction.commit()
      assert.equal(producer.state, "CommittingOrAborting")
      await outOfState(producer, { send: () => transaction.send(topic, encode("late")) })
      await commit
      await outOfState(producer, ended(transaction, topic))
      await outOfState(producer, { abort: () => transaction.abort() })
      assert.deepEqual(await contentsText(topic), ["r"])
      await producer.shutdown()
    })

    test("of a guard whose transaction is over do not touch the one that is open", async () => {
      if (!hasTransactions(rig)) return
      const topic = await rig.topic()
      const producer = await readyProducer(rig)
      const first = await producer.begin()
      await first.abort()
      const second = await producer.begin()
      await second.send(topic, encode("second"))
      await outOfState(producer, ended(first, topic))
      await first.abort()
      await first[Symbol.asyncDispose]()
      await second.commit()
      assert.deepEqual(await contentsText(topic), ["second"])
      await producer.shutdown()
    })

    test("options that make no sense are refused by name", async () => {
      if (!hasTransactions(rig)) return
      const transactionalId = rig.name("transactions")
      for (const [options, says] of [
        [{}, "transactionalId"],
        [{ transactionalId: "" }, "transactional id"],
        [{ transactionalId, idempotent: false }, "idempotent"],
        [{ transactionalId, timeoutMs: 0 }, "timeoutMs"],
        [{ transactionalId, flushTimeoutMs: -1 }, "flushTimeoutMs"],
        [{ transactionalId, batchLength: 0 }, "batchLength"],
        [{ transactionalId, acks: 1 }, "acks"],
      ] as const) {
        await refused(() => rig.client.transactionalProducer(options as never), { kind: "invalid", says: [says] })
      }
      const producer = await readyProducer(rig)
      await refused(() => producer.init({ keepPrepared: 1 as never }), { kind: "invalid", says: ["keepPrepared"] })
      await refused(() => producer.within(7 as never), { kind: "invalid", says: ["7"] })
      await refused(() => producer.complete(7 as never), { kind: "invalid", says: ["7"] })
      await producer.shutdown()
    })
  })
}

type Calls = Readonly<Record<string, () => Promise<unknown>>>

/** Every call that a transaction takes while it is open. */
function ended(transaction: Transaction, topic: Topic): Calls {
  return {
    send: () => transaction.send(topic, encode("late")),
    commit: () => transaction.commit(),
    prepare: () => transaction.prepare(),
  }
}

async function outOfState(producer: TransactionalProducer, calls: Calls): Promise<void> {
  const { state } = producer
  for (const [name, call] of Object.entries(calls)) {
    await refused(call, { kind: "transaction-state", says: [name], retryable: false, outcome: "rejected" })
    assert.equal(producer.state, state)
  }
}
