import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { FencedError, type StateEntry } from "@millrace/contract"
import { verifyStore } from "../verify.ts"
import { EngineFixture } from "./engine.test-support.ts"
import type { StateChange } from "./state.ts"

class StateFixture {
  readonly store = new EngineFixture()

  put(key: string, text: string, options: { ifRevision?: bigint; ttlMs?: number } = {}): StateEntry {
    return this.store.call("state.put", {
      key,
      value: Buffer.from(text),
      ifRevision: options.ifRevision,
      ttlMs: options.ttlMs,
    })
  }

  get(key: string): string | undefined {
    const entry = this.store.call<StateEntry | undefined>("state.get", key)
    return entry === undefined ? undefined : Buffer.from(entry.value).toString()
  }

  delete(key: string, ifRevision?: bigint): void {
    this.store.call("state.delete", { key, ifRevision })
  }

  keys(prefix: string): string[] {
    return this.store.call<StateEntry[]>("state.list", prefix).map(({ key }) => key)
  }

  watch(prefix: string, maxWaitMs: number = 1_000_000, watch: number = 1): number {
    const [id] = this.store.ask({ name: "state.watch", args: { watch, prefix, maxWaitMs } })
    return id as number
  }

  told(id: number): string[] {
    return this.store
      .answer<StateChange[]>(id)
      .map((change) => ("deleted" in change ? `-${change.key}` : `${change.key}=${Buffer.from(change.value)}`))
  }

  waits(id: number): boolean {
    return !this.store.replies.has(id)
  }

  [Symbol.dispose](): void {
    assert.deepEqual(verifyStore(this.store.path).problems, [])
    this.store[Symbol.dispose]()
  }
}

describe("Small state", () => {
  it("keeps the newest value of a key, with revisions that are never used twice", () => {
    using state = new StateFixture()
    const revisions = [state.put("a", "1"), state.put("b", "2"), state.put("a", "3")].map(({ revision }) => revision)
    assert.deepEqual(revisions, [1n, 2n, 3n])
    assert.equal(state.get("a"), "3")
    assert.equal(state.get("c"), undefined)
    state.delete("a")
    state.delete("a")
    assert.equal(state.get("a"), undefined)
    assert.ok(state.put("a", "4", { ifRevision: 0n }).revision > 3n)
    state.store.reopen()
    assert.equal(state.get("a"), "4")
    assert.ok(state.put("c", "").revision > 4n)
    assert.equal(state.get("c"), "")
  })

  it("refuses a change of another revision than expected, and says which is there", () => {
    using state = new StateFixture()
    const refused = (run: () => unknown, revision: bigint): void => {
      assert.throws(run, (error: Error) => error instanceof FencedError && error.context.revision === revision)
    }
    refused(() => state.put("k", "x", { ifRevision: 5n }), 0n)
    const { revision } = state.put("k", "x", { ifRevision: 0n })
    refused(() => state.put("k", "y", { ifRevision: 0n }), revision)
    refused(() => state.delete("k", revision + 1n), revision)
    assert.equal(state.put("k", "y", { ifRevision: revision }).revision, revision + 1n)
    refused(() => state.delete("k", revision), revision + 1n)
    state.delete("k", revision + 1n)
    refused(() => state.delete("k", 9n), 0n)
    state.delete("k", 0n)
  })

  it("lists the keys with a prefix in the order of their bytes", () => {
    using state = new StateFixture()
    for (const key of ["b", "a/2", "a/10", "a", "a/\u{10ffff}z", "a/\u{ffff}", "a0", "ä"]) state.put(key, "x")
    assert.deepEqual(state.keys("a/"), ["a/10", "a/2", "a/\u{ffff}", "a/\u{10ffff}z"])
    assert.deepEqual(state.keys(""), ["a", "a/10", "a/2", "a/\u{ffff}", "a/\u{10ffff}z", "a0", "b", "ä"])
    assert.deepEqual(state.keys("a/\u{10ffff}"), ["a/\u{10ffff}z"])
    assert.deepEqual(state.keys("nothing"), [])
  })

  it("forgets a value after its time, for good, also when the clock is set back", async () => {
    using state = new StateFixture()
    state.put("short", "1", { ttlMs: 100 })
    state.put("long", "2", { ttlMs: 10_000 })
    state.put("ever", "3")
    await state.store.clock.advance(99)
    assert.equal(state.get("short"), "1")
    await state.store.clock.advance(1)
    assert.equal(state.get("short"), undefined)
    state.store.clock.setWall(0n)
    assert.equal(state.get("short"), undefined)
    await state.store.clock.advance(9_899)
    assert.deepEqual(state.keys(""), ["ever", "long"])
    await state.store.clock.advance(1)
    assert.deepEqual(state.keys(""), ["ever"], "time goes on while the wall clock is behind")
    state.put("long", "2", { ttlMs: 10_000 })
    assert.deepEqual(state.keys(""), ["ever", "long"])
    state.put("short", "again", { ifRevision: 0n })
    state.put("long", "kept")
    state.store.reopen()
    state.store.clock.setWall(1n << 60n)
    assert.deepEqual(state.keys(""), ["ever", "long", "short"])
  })
})

describe("A watch of small state", () => {
  it("tells what is there, then changes, deletions and what is over", async () => {
    using state = new StateFixture()
    state.put("a/1", "x")
    state.put("b", "x")
    assert.deepEqual(state.told(state.watch("a/")), ["a/1=x"])
    const next = state.watch("a/")
    state.put("b", "y")
    assert.ok(state.waits(next))
    state.put("a/2", "z")
    assert.deepEqual(state.told(next), ["a/2=z"])
    state.delete("a/1")
    state.put("a/2", "w", { ttlMs: 500 })
    assert.deepEqual(state.told(state.watch("a/")), ["a/2=w", "-a/1"])
    const over = state.watch("a/")
    await state.store.clock.advance(499)
    assert.ok(state.waits(over))
    await state.store.clock.advance(2)
    assert.deepEqual(state.told(over), ["-a/2"])
    assert.deepEqual(state.told(state.watch("a/", 0)), [])
    assert.deepEqual(state.told(state.watch("", 0, 2)), ["b=y"])
    state.store.call("state.unwatch", 1)
  })

  it("tells many changes in parts", () => {
    using state = new StateFixture()
    for (let i = 0; i < 150; i++) state.put(`k${i}`, `${i}`)
    const told = new Set<string>()
    for (let i = 0; i < 3; i++) for (const change of state.told(state.watch(""))) told.add(change)
    assert.equal(told.size, 150)
    assert.ok(state.waits(state.watch("")))
  })
})
