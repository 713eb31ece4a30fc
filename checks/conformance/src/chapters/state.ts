/** Chapter: small state: versioned values, compare-and-set, expiry, and watching what changes. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type FencedError, type StateEntry, type StateStore, stateKeyBytes, stateValueBytes } from "@millrace/contract"
import { settlesWithin, until } from "../rig/deadline.ts"
import { bytes, text } from "../rig/records.ts"
import { refused } from "../rig/refusal.ts"
import type { Rig } from "../rig/rig.ts"

export function stateChapter(rig: Rig): void {
  // What is absent is refused: that chapter says so.
  if (!rig.manifest.state.supported) return
  describe("state", () => {
    test("a value is read back byte for byte, with a revision that grows", async () => {
      const { state } = rig.session
      const key = rig.name("key")
      assert.equal(await state.get(key), undefined)
      const value = Uint8Array.from({ length: 256 }, (_, index) => index)
      const first = await state.put(key, value, {})
      assert.equal(first.key, key)
      assert.ok(first.revision > 0n)
      const read = await state.get(key)
      assert.deepEqual([...(read?.value ?? [])], [...value])
      assert.equal(read?.revision, first.revision)
      const second = await state.put(key, new Uint8Array(0), {})
      assert.ok(second.revision > first.revision)
      assert.equal((await state.get(key))?.value.length, 0)
    })

    test("what was given or answered stays the caller's", async () => {
      const { state } = rig.session
      const key = rig.name("key")
      const value = bytes("before")
      const put = state.put(key, value, {})
      value.fill(0)
      const answered = await put
      answered.value.fill(1)
      assert.equal(text((await state.get(key))?.value), "before")
    })

    test("a put over a revision succeeds once; the refusal tells the present one and changes nothing", async () => {
      const { state } = rig.session
      const key = rig.name("key")
      const first = await state.put(key, bytes("a"), { ifRevision: 0n })
      await fenced(() => state.put(key, bytes("b"), { ifRevision: 0n }), first.revision)
      const second = await state.put(key, bytes("b"), { ifRevision: first.revision })
      await fenced(() => state.put(key, bytes("c"), { ifRevision: first.revision }), second.revision)
      assert.equal(text((await state.get(key))?.value), "b")
      await fenced(() => state.delete(key, { ifRevision: first.revision }), second.revision)
      await state.delete(key, { ifRevision: second.revision })
      assert.equal(await state.get(key), undefined)
    })

    test("of many that race to put over one revision, exactly one succeeds", async () => {
      const key = rig.name("key")
      const sessions = [rig.session, rig.under.isolated === undefined ? await rig.connect() : rig.session]
      const racers = Array.from({ length: 20 }, (_, index) =>
        (sessions[index % 2] as typeof rig.session).state.put(key, bytes(`r${index}`), { ifRevision: 0n }),
      )
      const outcomes = await Promise.allSettled(racers)
      const winners = outcomes.filter((outcome) => outcome.status === "fulfilled")
      assert.equal(winners.length, 1)
      const won = outcomes.findIndex((outcome) => outcome.status === "fulfilled")
      assert.equal(text((await rig.session.state.get(key))?.value), `r${won}`)
    })

    test("a deleted key is gone, deleting none is no failure, and its revisions are never used again", async () => {
      const { state } = rig.session
      const key = rig.name("key")
      await state.delete(key, {})
      const first = await state.put(key, bytes("a"), {})
      await state.delete(key, {})
      assert.equal(await state.get(key), undefined)
      const again = await state.put(key, bytes("a"), { ifRevision: 0n })
      assert.ok(again.revision > first.revision)
    })

    test("a list has the keys of a prefix, in the order of their bytes, and no others", async () => {
      const { state } = rig.session
      const prefix = rig.name("list")
      const names = ["b", "a/2", "a/10", "a", "é", "z%", "z_", "~"]
      for (const name of names) await state.put(`${prefix}/${name}`, bytes(name), {})
      await state.put(`${prefix}x`, bytes("neighbour"), {})
      const listed = await state.list(`${prefix}/`)
      const expected = names.toSorted((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)))
      assert.deepEqual(
        listed.map(({ value }) => text(value)),
        expected,
      )
      assert.deepEqual(await state.list(`${prefix}/a/`).then((found) => found.length), 2)
      for (const wild of ["%", "_", "*", "?"]) assert.deepEqual(await state.list(`${prefix}/${wild}`), [])
    })

    test("a value with a time to live is gone after it, for get, list and a put that wants no value there", async () => {
      const { state } = rig.session
      const key = rig.name("key")
      await state.put(key, bytes("short"), { ttlMs: 1_000 })
      assert.equal(text((await state.get(key))?.value), "short")
      await until("the value to expire", async () => ((await state.get(key)) === undefined ? true : undefined))
      assert.deepEqual(await state.list(key), [])
      await state.put(key, bytes("next"), { ifRevision: 0n })
      await state.put(key, bytes("for good"), {})
      assert.equal(text((await state.get(key))?.value), "for good")
    })

    test("a watch tells what is there, then what changes, in the order of each key's revisions", async () => {
      const { state } = rig.session
      const prefix = `${rig.name("watch")}/`
      await state.put(`${prefix}old`, bytes("0"), {})
      const watch = watching(state, prefix)
      assert.deepEqual(await watch.next(), ["old", "0"])
      await state.put(`${prefix}new`, bytes("1"), {})
      assert.deepEqual(await watch.next(), ["new", "1"])
      await state.put(`${prefix}x`.replace(prefix, rig.name("other")), bytes("not mine"), {})
      await state.put(`${prefix}new`, bytes("2"), {})
      assert.deepEqual(await watch.next(), ["new", "2"])
      await state.delete(`${prefix}old`, {})
      assert.deepEqual(await watch.next(), ["old", undefined])
      await watch.end()
    })

    test("a watch tells what another session changes, and ends with its session", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const other = await rig.connect()
      const prefix = `${rig.name("watch")}/`
      const watch = watching(other.state, prefix)
      const news = watch.next()
      await rig.session.state.put(`${prefix}a`, bytes("1"), {})
      assert.deepEqual(await settlesWithin("the news of another session", news), ["a", "1"])
      const pending = watch.next()
      await other.close()
      assert.equal(await settlesWithin("a watch whose session closed", pending), undefined)
    })

    test("values and keys are as large as the contract says, and a larger value is refused", async () => {
      const { state } = rig.session
      const key = rig.name("large").padEnd(stateKeyBytes, "k")
      const value = new Uint8Array(stateValueBytes).fill(7)
      await state.put(key, value, {})
      assert.equal((await state.get(key))?.value.length, stateValueBytes)
      await refused(() => state.put(key, new Uint8Array(stateValueBytes + 1), {}), {
        kind: "record-too-large",
        says: [String(stateValueBytes)],
        outcome: "rejected",
      })
    })

    test("what was put is there after a close", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const key = rig.name("key")
      const first = await rig.connect()
      const { revision } = await first.state.put(key, bytes("kept"), {})
      await first.close()
      const second = await rig.connect()
      const found = await second.state.get(key)
      assert.deepEqual([text(found?.value), found?.revision], ["kept", revision])
      await second.close()
    })
  })
}

async function fenced(call: () => Promise<unknown>, revision: bigint): Promise<void> {
  const error = (await refused(call, { kind: "fenced", outcome: "rejected" })) as FencedError
  assert.equal(error.context.revision, revision)
}

interface Watching {
  /** The next change: the rest of its key, and its value; `undefined` once the watch has ended. */
  next(): Promise<[string, string | undefined] | undefined>
  end(): Promise<void>
}

function watching(state: StateStore, prefix: string): Watching {
  const iterator = state.watch(prefix)[Symbol.asyncIterator]()
  return {
    async next() {
      const { value, done } = await settlesWithin("the next change", iterator.next())
      if (done === true) return undefined
      const entry = value as StateEntry | { readonly key: string; readonly deleted: true }
      return [entry.key.slice(prefix.length), "deleted" in entry ? undefined : text(entry.value)]
    },
    async end() {
      await iterator.return?.()
    },
  }
}
