/** Syncs of what is staged: when they are made, and that one that failed is never taken for one that went well. */
import assert from "node:assert/strict"
import fs from "node:fs"
import { syncBuiltinESMExports } from "node:module"
import { after, beforeEach, test } from "node:test"
import { EngineFixture } from "./engine.test-support.ts"
import { errorOf, Incarnation, problemsOf, texts } from "./transactional.test-support.ts"

const megabyte = "x".repeat(1 << 20)
const original = fs.fdatasyncSync
let syncs = 0
let failing = false

fs.fdatasyncSync = (fd) => {
  syncs++
  if (failing) throw Object.assign(new Error("EIO: i/o error, fdatasync"), { code: "EIO", syscall: "fdatasync" })
  original(fd)
}
syncBuiltinESMExports()
beforeEach(() => {
  syncs = 0
  failing = false
})
after(() => {
  fs.fdatasyncSync = original
  syncBuiltinESMExports()
})

test("staging does not sync small things, and large ones every few megabytes: the commit finds little left", () => {
  using fixture = new EngineFixture()
  const topic = fixture.createTopic()
  const one = new Incarnation(fixture, "id").begin()
  for (let i = 0; i < 5; i++) one.stage(topic, [megabyte])
  assert.equal(syncs, 0)
  for (let i = 0; i < 15; i++) one.stage(topic, [megabyte])
  assert.equal(syncs, 2)
  one.commit()
  assert.equal(syncs, 3)
  one.begin().abort()
  assert.equal(syncs, 3)
})

test("what is prepared is synced then, and not again at its end", () => {
  using fixture = new EngineFixture()
  const topic = fixture.createTopic()
  const one = new Incarnation(fixture, "id").begin()
  one.stage(topic, [megabyte])
  one.prepare()
  assert.equal(syncs, 1)
  one.commit()
  assert.equal(syncs, 1)
})

test("a sync that fails at the commit fails it, and it is not tried again as if nothing had been", () => {
  using fixture = new EngineFixture()
  const topic = fixture.createTopic()
  const one = new Incarnation(fixture, "id").begin()
  one.stage(topic, [megabyte])
  failing = true
  const first = errorOf(() => one.commit())
  assert.equal(first.outcome, "rejected")
  failing = false
  assert.match(errorOf(() => one.commit()).message, /did not reach the disk: abort the transaction/)
  assert.deepEqual(texts(fixture, topic), [])
  one.abort()
  one.begin().stage(topic, [megabyte])
  one.commit()
  assert.equal(texts(fixture, topic).length, 1)
  assert.deepEqual(problemsOf(fixture), [])
})

test("one that fails while it is staged is told by the commit", () => {
  using fixture = new EngineFixture()
  const topic = fixture.createTopic()
  const one = new Incarnation(fixture, "id").begin()
  failing = true
  for (let i = 0; i < 12; i++) one.stage(topic, [megabyte])
  failing = false
  for (const call of [() => one.commit(), () => one.prepare()])
    assert.match(errorOf(call).message, /did not reach the disk: abort the transaction/)
  one.abort()
  // The next one lies elsewhere.
  one.begin().stage(topic, [megabyte])
  one.commit()
  assert.equal(fixture.appendMany(topic, 1, { bytes: 100_000 }).base, 1n)
  assert.deepEqual(problemsOf(fixture), [])
})

test("an append that syncs the same segment spares the commit its sync", () => {
  using fixture = new EngineFixture()
  const topic = fixture.createTopic()
  const one = new Incarnation(fixture, "id").begin()
  one.stage(topic, [megabyte])
  fixture.appendMany(topic, 1, { bytes: 100_000 })
  assert.equal(syncs, 1)
  one.commit()
  assert.equal(syncs, 1)
})
