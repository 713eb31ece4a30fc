/** Chapter: transactions that are prepared, and completed later; incarnations that fence each other; transactions that take too long. */
import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { extname } from "node:path"
import { describe, test } from "node:test"
import { fileURLToPath } from "node:url"
import type { Client, Topic, TransactionalProducer } from "millrace"
import { type ClientRig, encode, fill, take } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { refused } from "../rig/refusal.ts"
import { contentsText, readyProducer } from "../rig/transacted.ts"

export function preparingChapter(rig: ClientRig): void {
  describe("prepared transactions", () => {
    test("are seen when they are completed, by their token; any other token aborts", async () => {
      if (!canPrepare(rig)) return
      const topic = await rig.topic()
      const producer = await readyProducer(rig)
      for (const [name, completion, ending] of [
        ["right", (token: string) => token, "committed"],
        ["empty", () => "", "aborted"],
        ["of another", (token: string) => `${token}0`, "aborted"],
        ["nonsense", () => "nonsense", "aborted"],
      ] as const) {
        const transaction = await producer.begin()
        await transaction.send(topic, encode(name))
        const token = await transaction.prepare()
        assert.deepEqual([producer.state, transaction.ending, typeof token], ["Prepared", "prepared", "string"])
        assert.ok(!(await contentsText(topic)).includes(name))
        assert.equal(await producer.complete(completion(token)), ending)
        assert.deepEqual([producer.state, transaction.ending], ["Ready", ending])
      }
      assert.deepEqual(await contentsText(topic), ["right"])
      await producer.shutdown()
    })

    test("take nothing more; their guard can commit and abort them, and leaves them when its scope ends", async () => {
      if (!canPrepare(rig)) return
      const topic = await rig.topic()
      const producer = await readyProducer(rig)
      let token = ""
      {
        await using transaction = await producer.begin()
        await transaction.send(topic, encode("kept"))
        token = await transaction.prepare()
        for (const [name, call] of Object.entries({
          send: () => transaction.send(topic, encode("late")),
          prepare: () => transaction.prepare(),
          begin: () => producer.begin(),
          init: () => producer.init(),
        })) {
          await refused(call, { kind: "transaction-state", says: [name, "repared"] })
        }
      }
      assert.equal(producer.state, "Prepared")
      assert.equal(await producer.complete(token), "committed")
      const second = await producer.begin()
      await second.send(topic, encode("by its guard"))
      await second.prepare()
      assert.equal((await second.commit()).confirmations.length, 1)
      const third = await producer.begin()
      await third.send(topic, encode("aborted"))
      await third.prepare()
      await third.abort()
      await producer.within(async (transaction) => {
        await transaction.send(topic, encode("within"))
        token = await transaction.prepare()
      })
      assert.equal(producer.state, "Prepared", "within leaves what its work has prepared")
      await producer.complete(token)
      assert.deepEqual(await contentsText(topic), ["kept", "by its guard", "within"])
      await producer.shutdown()
    })

    test("survive their producer's shutdown; the next incarnation keeps them when it says so, and aborts them when not", async () => {
      if (!canPrepare(rig)) return
      const topic = await rig.topic()
      for (const keepPrepared of [true, false]) {
        const transactionalId = rig.name("transactions")
        const token = await leavePrepared(rig, topic, { transactionalId, payload: `kept: ${keepPrepared}` })
        const next = rig.client.transactionalProducer({ transactionalId })
        await next.init({ keepPrepared })
        assert.equal(next.state, keepPrepared ? "Prepared" : "Ready")
        if (keepPrepared) assert.equal(await next.complete(token), "committed")
        else await refused(() => next.complete(token), "transaction-state")
        await next.shutdown()
      }
      assert.deepEqual(await contentsText(topic), ["kept: true"])
    })

    test("survive the death of their process: the right token commits, a wrong one aborts, what was only open is gone", async () => {
      if (!canPrepare(rig) || rig.under.isolated !== undefined) return
      const topic = await rig.topic()
      const lives = [
        ["prepare", "right", "committed"],
        ["prepare", "wrong", "aborted"],
        ["leave", "open", "nothing"],
      ] as const
      await Promise.all(
        lives.map(async ([task, payload, ending]) => {
          const transactionalId = rig.name("transactions")
          const token = await inChild([task, rig.url, topic.stream, topic.name, transactionalId, payload])
          const next = rig.client.transactionalProducer({ transactionalId })
          await next.init({ keepPrepared: true })
          assert.equal(next.state, task === "prepare" ? "Prepared" : "Ready")
          if (ending !== "nothing") assert.equal(await next.complete(ending === "committed" ? token : "1:1"), ending)
          await next.shutdown()
        }),
      )
      assert.deepEqual(await contentsText(topic), ["right"])
    })

    test("are listed, whoever prepared them, with what ends them", async () => {
      if (!canPrepare(rig)) return
      const client = await rig.connect("fresh")
      const topic = await rig.topic(1, {}, client)
      assert.deepEqual(await client.transactions(), [])
      const ids = [rig.name("transactions"), rig.name("transactions")]
      const tokens: string[] = []
      for (const transactionalId of ids) {
        tokens.push(await leavePrepared(rig, topic, { transactionalId, payload: transactionalId }, client))
        await until("time to pass", async () => {
          const last = (await client.transactions()).at(-1)
          return (last?.ageMs ?? 0) > 2 ? true : undefined
        })
      }
      const listed = await client.transactions()
      assert.deepEqual(
        listed.map(({ transactionalId }) => transactionalId),
        ids,
        "oldest first",
      )
      assert.deepEqual(
        listed.map(({ token }) => token),
        tokens,
      )
      const [older, newer] = listed
      assert.ok((older?.ageMs ?? 0) >= (newer?.ageMs ?? 0) && (newer?.ageMs ?? -1) >= 0)
      for (const { records } of listed) assert.ok(records === undefined || records === 1)
      for (const [index, { transactionalId, token }] of listed.entries()) {
        await using producer = client.transactionalProducer({ transactionalId })
        await producer.init({ keepPrepared: true })
        assert.equal(await producer.complete(index === 0 ? token : ""), index === 0 ? "committed" : "aborted")
      }
      assert.deepEqual(await client.transactions(), [])
      assert.deepEqual(await contentsText(topic), [ids[0]])
      await client.close()
    })

    test("hold their offsets: nobody else stores or reads on from them until they are completed", async () => {
      if (!canPrepare(rig) || !rig.client.manifest.groups.supported) return
      const topic = await rig.topic()
      await fill(topic, ["r0", "r1", "r2"])
      const producer = await readyProducer(rig)
      const consumer = topic.consumer("worker", 0, { commitPolicy: { kind: "disabled" } })
      const [, second] = await take(consumer, 2)
      const transaction = await producer.begin()
      await transaction.sendOffsets(consumer, [second as NonNullable<typeof second>])
      const token = await transaction.prepare()
      const other = topic.consumer("worker", 0, { commitPolicy: { kind: "disabled" } })
      await refused(() => other.storedOffset(), { kind: "transaction-state", retryable: true })
      assert.equal(await producer.complete(token), "committed")
      assert.equal((await other.storedOffset())?.stored, 1n)
      await Promise.all([consumer.shutdown(), other.shutdown(), producer.shutdown()])
    })
  })

  describe("incarnations", () => {
    test("a newer one fences the older, whatever that asks, and aborts what it has open", async () => {
      if (!rig.client.manifest.transactions.supported) return
      const topic = await rig.topic()
      const calls: ((of: Fenced) => Promise<unknown>)[] = [
        ({ transaction }) => transaction.commit(),
        ({ transaction }) => transaction.abort(),
        ({ transaction }) => transaction.send(topic, encode("late")).then(() => transaction.commit()),
        async ({ transaction }) => await transaction[Symbol.asyncDispose](),
      ]
      if (canPrepare(rig)) calls.push(({ transaction }) => transaction.prepare())
      for (const call of calls) {
        const fenced = await fencedOne(rig, topic)
        const { older, newer } = fenced
        assert.notDeepEqual(older.identity(), newer.identity())
        await refused(() => call(fenced), "fenced")
        assert.equal(older.state, "Fenced")
        for (const again of [() => older.begin(), () => older.init(), () => fenced.transaction.commit()]) {
          await refused(again, { kind: "fenced", retryable: false })
        }
        await newer.within((transaction) => transaction.send(topic, encode("newer")))
        await settlesWithin("the end of the fenced one", older.shutdown())
        await newer.shutdown()
      }
      assert.deepEqual(
        await contentsText(topic),
        Array.from(calls, () => "newer"),
      )
    })

    test("also from another process, and one that is idle", async () => {
      if (!rig.client.manifest.transactions.supported || rig.under.isolated !== undefined) return
      const topic = await rig.topic()
      const transactionalId = rig.name("transactions")
      const older = await readyProducer(rig, { transactionalId })
      await inChild(["commit", rig.url, topic.stream, topic.name, transactionalId, "theirs"])
      const late = older.begin().then(async (transaction) => {
        await transaction.send(topic, encode("late"))
        await transaction.commit()
      })
      await refused(() => late, "fenced")
      assert.deepEqual(await contentsText(topic), ["theirs"])
      await older.shutdown()
    })

    test("init twice of one producer is a new incarnation too", async () => {
      if (!rig.client.manifest.transactions.supported) return
      const topic = await rig.topic()
      const producer = await readyProducer(rig)
      const first = producer.identity()
      await producer.init()
      assert.notDeepEqual(producer.identity(), first)
      await producer.within((transaction) => transaction.send(topic, encode("r")))
      assert.deepEqual(await contentsText(topic), ["r"])
      await producer.shutdown()
    })
  })

  describe("time-outs of transactions", () => {
    test("one that is open for longer is aborted: its commit says so, and after the abort the next one is as any", async () => {
      if (!rig.client.manifest.transactions.supported) return
      const topic = await rig.topic()
      const producer = await readyProducer(rig, { timeoutMs: 30, lingerMs: 0 })
      const transaction = await producer.begin()
      await until("the transaction to be aborted", async () => {
        const sent = await transaction.send(topic, encode("slow")).then(
          () => undefined,
          (error) => error.kind,
        )
        assert.ok(sent === undefined || sent === "transaction-aborted", sent)
        return sent
      })
      await refused(() => transaction.commit(), { kind: "transaction-aborted", outcome: "rejected" })
      await transaction.abort()
      assert.equal(producer.state, "Ready")
      assert.deepEqual(await contentsText(topic), [])
      await (await producer.begin()).commit()
      await producer.shutdown()
    })

    test("one that is prepared waits for as long as it takes", async () => {
      if (!canPrepare(rig)) return
      const topic = await rig.topic()
      const producer = await readyProducer(rig, { timeoutMs: 2_000 })
      const transactionalId = rig.name("transactions")
      const short = await readyProducer(rig, { transactionalId, timeoutMs: 500, lingerMs: 0 })
      const transaction = await short.begin()
      await transaction.send(topic, encode("kept"))
      const token = await transaction.prepare()
      await until("its time-out to be over", async () => {
        const mine = (await rig.client.transactions()).find((one) => one.transactionalId === transactionalId)
        assert.ok(mine !== undefined, "it is gone")
        return mine.ageMs > 700 ? true : undefined
      })
      assert.equal(await short.complete(token), "committed")
      assert.deepEqual(await contentsText(topic), ["kept"])
      await Promise.all([producer.shutdown(), short.shutdown()])
    })
  })
}

function canPrepare(rig: ClientRig): boolean {
  const { transactions } = rig.client.manifest
  return transactions.supported && transactions.prepare.supported
}

interface Fenced {
  readonly older: TransactionalProducer
  readonly newer: TransactionalProducer
  readonly transaction: Awaited<ReturnType<TransactionalProducer["begin"]>>
}

/** A producer with an open transaction, and one that has taken over its id. */
async function fencedOne(rig: ClientRig, topic: Topic): Promise<Fenced> {
  const transactionalId = rig.name("transactions")
  const older = await readyProducer(rig, { transactionalId })
  const transaction = await older.begin()
  await transaction.send(topic, encode("older"))
  return { older, transaction, newer: await readyProducer(rig, { transactionalId }) }
}

/** A prepared transaction with one record whose producer is gone. @returns its token */
async function leavePrepared(
  rig: ClientRig,
  topic: Topic,
  of: { readonly transactionalId: string; readonly payload: string },
  client: Client = rig.client,
): Promise<string> {
  const producer = await readyProducer(rig, { transactionalId: of.transactionalId }, client)
  const transaction = await producer.begin()
  await transaction.send(topic, encode(of.payload))
  const token = await transaction.prepare()
  await producer.shutdown()
  return token
}

/** Sources run as `.ts`, the compiled tests as `.js`. */
const child = fileURLToPath(new URL(`./transaction-child${extname(fileURLToPath(import.meta.url))}`, import.meta.url))

/** What a process says before it ends, or kills itself. */
function inChild(args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [child, ...args], (error, stdout, stderr) => {
      if (error === null || error.signal === "SIGKILL") resolve(stdout.trim())
      else reject(new Error(`the child failed: ${stderr}`, { cause: error }))
    })
  })
}
