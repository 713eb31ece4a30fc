import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { HandlerRig, keyed, laneOf, messages, prefixOf } from "./handler-rig.test-support.ts"

describe("order", () => {
  test("one at a time unless told otherwise", async () => {
    const rig = new HandlerRig({ partitions: 2 })
    rig.feed.put(0, ...messages("a0", "a1"))
    rig.feed.put(1, ...messages("b0"))
    rig.begin()
    assert.equal(rig.started.length, 1)
    await rig.finish("a0")
    assert.equal(rig.running.size, 1)
  })

  test("partition: one of each partition, all partitions at once", async () => {
    const rig = new HandlerRig({ partitions: 3, concurrency: 10 })
    for (const [partition, name] of ["a", "b", "c"].entries())
      rig.feed.put(partition, ...messages(`${name}0`, `${name}1`))
    rig.begin()
    assert.deepEqual(rig.texts.sort(), ["a0", "b0", "c0"])
    await rig.finish("b0")
    assert.deepEqual(rig.texts.sort(), ["a0", "b1", "c0"])
    assert.equal(prefixOf(rig, 1), 1n)
  })

  test("key: one of each key, in the order of the key; nothing is committed past what is open", async () => {
    const rig = new HandlerRig({ concurrency: 10, order: "key" })
    rig.feed.put(0, ...keyed("a0", "a1", "b0", "c0", "a2", "b1"))
    rig.begin()
    assert.deepEqual(rig.started, ["a0", "b0", "c0"])
    await rig.finish("b0", "c0")
    assert.deepEqual(rig.started, ["a0", "b0", "c0", "b1"])
    assert.equal(prefixOf(rig), 0n)
    await rig.finish("a0")
    await rig.finish("a1", "b1")
    await rig.finish("a2")
    assert.equal(prefixOf(rig), 6n)
  })

  test("key: records without a key keep their order among themselves, and an empty key is one of its own", async () => {
    const rig = new HandlerRig({ concurrency: 10, order: "key" })
    rig.feed.put(0, { text: "none0" }, { text: "none1" }, { text: "empty0", key: "" }, { text: "empty1", key: "" })
    rig.begin()
    assert.deepEqual(rig.started, ["none0", "empty0"])
  })

  test("key: the same key in two partitions is two keys", () => {
    const rig = new HandlerRig({ concurrency: 10, order: "key", partitions: 2 })
    rig.feed.put(0, ...keyed("a0"))
    rig.feed.put(1, ...keyed("a1"))
    rig.begin()
    assert.equal(rig.running.size, 2)
  })

  test("key: bytes that are no text, and long keys, are told apart", () => {
    const rig = new HandlerRig({ concurrency: 10, order: "key" })
    const long = "x".repeat(300)
    rig.feed.put(0, { text: "0", key: `${long}a` }, { text: "1", key: `${long}b` }, { text: "2", key: `${long}a` })
    const bytes = (byte: number): Uint8Array => Uint8Array.of(byte)
    laneOf(rig).put({ payload: new TextEncoder().encode("3"), key: bytes(0xff) })
    laneOf(rig).put({ payload: new TextEncoder().encode("4"), key: bytes(0xfe) })
    rig.begin()
    assert.deepEqual(rig.started, ["0", "1", "3", "4"])
  })

  test("none: as many as there are places, whatever partition or key", async () => {
    const rig = new HandlerRig({ concurrency: 3, order: "none" })
    rig.feed.put(0, ...keyed("a0", "a1", "a2", "a3"))
    rig.begin()
    assert.deepEqual(rig.started, ["a0", "a1", "a2"])
    await rig.finish("a2")
    assert.deepEqual(rig.started.at(-1), "a3")
    assert.equal(prefixOf(rig), 0n)
    await rig.finish("a0", "a1", "a3")
    assert.equal(prefixOf(rig), 4n)
  })
})

describe("a slow message", () => {
  test("holds up its key alone, and its partition only at the bound", async () => {
    const rig = new HandlerRig({ concurrency: 2, order: "key", maxAhead: 50, partitions: 2 }, undefined)
    rig.feed.put(0, ...keyed("a0", "a1", ...Array.from({ length: 100 }, (_, n) => `b${n}`)))
    rig.begin()
    for (let n = 0; n < 48; n++) await rig.finish(`b${n}`)
    assert.deepEqual(rig.texts, ["a0"], "50 messages are ahead of a0: its partition waits")
    assert.equal(laneOf(rig).held, true)
    rig.feed.put(1, ...keyed("c0"))
    assert.deepEqual(rig.texts, ["a0", "c0"], "another partition does not")
    await rig.finish("a0", "c0")
    await rig.finish("a1")
    assert.ok(rig.started.includes("b48"))
  })

  test("of one key does not fill the places of the others, however many of its key come behind it", async () => {
    const rig = new HandlerRig({ concurrency: 4, order: "key", maxAhead: 1000 })
    rig.feed.put(0, ...keyed(...Array.from({ length: 500 }, (_, n) => `a${n}`), "b0", "c0"))
    rig.begin()
    assert.deepEqual(rig.texts, ["a0", "b0", "c0"])
  })

  test("busy keys that always have more do not keep out what is new", async () => {
    const rig = new HandlerRig({ concurrency: 3, order: "key", partitions: 2 })
    const both = Array.from({ length: 200 }, (_, n) => [`a${n}`, `b${n}`]).flat()
    rig.feed.put(0, ...keyed(...both, "d0"))
    rig.begin()
    assert.deepEqual(rig.texts, ["a0", "b0", "d0"], "the third place has taken all that waits now")
    rig.feed.put(1, ...keyed("c0"))
    for (let step = 0; step < 6; step++)
      await rig.finish(rig.texts.find((text) => text !== "d0" && text !== "c0") as string)
    assert.ok(rig.started.includes("c0"), rig.started.join(" "))
  })

  test("is not taken ahead of by more than a few with order partition", () => {
    const rig = new HandlerRig({ concurrency: 64 })
    rig.feed.put(0, ...messages(...Array.from({ length: 1000 }, (_, n) => `${n}`)))
    rig.begin()
    assert.ok(rig.feed.taken <= 32, `${rig.feed.taken} taken`)
  })
})

test("a paused partition starts nothing, not even what was taken of it before", async () => {
  const rig = new HandlerRig({ concurrency: 2, order: "key", partitions: 2 })
  rig.feed.put(0, ...keyed("a0", "a1"))
  rig.begin()
  laneOf(rig).paused = true
  await rig.finish("a0")
  rig.feed.put(1, ...keyed("b0"))
  assert.deepEqual(rig.texts, ["b0"])
  rig.feed.resume(0)
  assert.deepEqual(rig.texts, ["b0", "a1"])
})
