import assert from "node:assert/strict"
import { readdirSync } from "node:fs"
import { join } from "node:path"
import { describe, test } from "node:test"
import type { TopicDescription } from "@millrace/contract"
import { EngineFixture } from "./engine.test-support.ts"
import { errorOf, Incarnation, problemsOf, rowsOf, texts } from "./transactional.test-support.ts"

const named = (topic: string) => ({ stream: "s", topic })
const window = { deduplicationWindowMs: 120_000, deduplicateIds: true }

describe("what is staged", () => {
  test("comes into the log with the commit, in the order of the appends, between whole batches of others", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic({ partitions: 2 })
    const [one, other] = [new Incarnation(fixture, "one").begin(), new Incarnation(fixture, "other").begin()]
    one.stage(topic, ["a0", "a1"])
    other.stage(topic, ["b0"])
    fixture.append(fixture.batch(topic, [{ payload: Buffer.from("plain") }]))
    one.stage(topic, ["a2"], { partition: 1 })
    one.stage(topic, ["a3"])
    assert.deepEqual(texts(fixture, topic), ["plain"])
    assert.deepEqual(fixture.watermarks(topic, 1), { first: 0n, end: 0n })
    const results = other.commit()
    assert.deepEqual(texts(fixture, topic), ["plain", "b0"])
    const timestampMicros = fixture.clock.nowMicros()
    const place = { stream: "s", topic: "log", contiguous: true, duplicates: 0, timestampMicros }
    assert.deepEqual(results, [{ ...place, partition: 0, base: 1n, count: 1 }])
    assert.deepEqual(one.commit(), [
      { ...place, partition: 0, base: 2n, count: 2 },
      { ...place, partition: 1, base: 0n, count: 1 },
      { ...place, partition: 0, base: 4n, count: 1 },
    ])
    assert.deepEqual(texts(fixture, topic), ["plain", "b0", "a0", "a1", "a3"])
    assert.deepEqual(texts(fixture, topic, 1), ["a2"])
    assert.deepEqual(problemsOf(fixture), [])
  })

  test("a commit that is asked again is answered alike, and stores nothing twice", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const one = new Incarnation(fixture, "id").begin()
    one.stage(topic, ["a"])
    const results = one.commit()
    assert.deepEqual(one.commit(), results)
    assert.deepEqual(texts(fixture, topic), ["a"])
  })

  test("append times do not go back, whatever the clock does", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const { timestampMicros } = fixture.appendMany(topic, 1)
    const one = new Incarnation(fixture, "id").begin()
    one.stage(topic, ["a"])
    fixture.clock.setWall(fixture.clock.nowMicros() - 10_000_000n)
    assert.equal(one.commit()[0]?.timestampMicros, timestampMicros)
    assert.deepEqual(problemsOf(fixture), [])
  })

  test("a hundred partitions of ten topics", () => {
    using fixture = new EngineFixture()
    const topics = Array.from({ length: 10 }, (_, i) => fixture.createTopic({ partitions: 10 }, named(`t${i}`)))
    const one = new Incarnation(fixture, "id").begin()
    for (const [i, topic] of topics.entries())
      for (let partition = 0; partition < 10; partition++) one.stage(topic, [`${i}/${partition}`], { partition })
    assert.equal(one.commit().length, 100)
    for (const [i, topic] of topics.entries())
      for (let partition = 0; partition < 10; partition++)
        assert.deepEqual(texts(fixture, topic, partition), [`${i}/${partition}`])
    assert.deepEqual(problemsOf(fixture), [])
  })
})

describe("a batch that is sent again", () => {
  test("is staged once, as long as it is one of the last five", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic({ partitions: 2 })
    const one = new Incarnation(fixture, "id").begin()
    for (let i = 0; i < 8; i++) {
      one.stage(topic, [`${i}`], { sequence: i })
      for (let back = 0; back < Math.min(5, i + 1); back++) {
        const answer = one.stage(topic, [`${i - back}`], { sequence: i - back })
        assert.deepEqual(answer, { contiguous: false, duplicates: 1 })
      }
    }
    assert.equal(errorOf(() => one.stage(topic, ["older"], { sequence: 2 })).kind, "sequence")
    one.stage(topic, ["x"], { partition: 1, sequence: 0 })
    assert.equal(one.commit().length, 9)
    assert.deepEqual(
      texts(fixture, topic),
      Array.from({ length: 8 }, (_, i) => `${i}`),
    )
  })

  test("a gap is refused, and sequences begin at 0 in each transaction", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const one = new Incarnation(fixture, "id").begin()
    const early = errorOf(() => one.stage(topic, ["b"], { sequence: 1 }))
    assert.equal(early.kind, "sequence")
    assert.equal(early.context.expected, 0)
    one.stage(topic, ["a"], { sequence: 0 })
    assert.match(errorOf(() => one.stage(topic, ["c"], { sequence: 2 })).message, /sequence 2 .*: 1 is next/)
    one.commit()
    one.begin().stage(topic, ["a"], { sequence: 0 })
    assert.equal(one.commit()[0]?.duplicates, 0)
  })

  test("one of an earlier transaction is refused by its epoch", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const one = new Incarnation(fixture, "id").begin()
    const { epoch } = one
    one.commit()
    one.begin()
    const error = errorOf(() => one.stage(topic, ["late"], { epoch, sequence: 0 }))
    assert.equal(error.kind, "fenced")
    assert.match(error.message, new RegExp(`epoch ${epoch} .*epoch ${epoch + 1} `))
  })
})

describe("ids", () => {
  test("are looked up at the commit: those of the log, and those of the same transaction", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic(window)
    fixture.append(fixture.batch(topic, [{ payload: Buffer.from("old"), id: 7n << 20n }]))
    const one = new Incarnation(fixture, "id").begin()
    one.stage(topic, [
      { text: "again", id: 7n << 20n },
      { text: "new", id: 8n << 20n },
    ])
    one.stage(topic, [{ text: "new again", id: 8n << 20n }])
    one.stage(topic, ["without"])
    const results = one.commit()
    assert.deepEqual(
      results.map(({ base, contiguous, duplicates, count }) => ({ base, contiguous, duplicates, count })),
      [
        { base: undefined, contiguous: false, duplicates: 1, count: 2 },
        { base: 1n, contiguous: true, duplicates: 1, count: 1 },
        { base: 2n, contiguous: true, duplicates: 0, count: 1 },
      ],
    )
    assert.deepEqual(texts(fixture, topic), ["old", "new", "without"])
    assert.equal(fixture.append(fixture.batch(topic, [{ payload: Buffer.from("x"), id: 8n << 20n }])).base, 1n)
    assert.deepEqual(problemsOf(fixture), [])
  })

  test("a resend of what another transaction has committed is recognised", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const id = 1n << 100n
    const one = new Incarnation(fixture, "id").begin()
    one.stage(topic, ["a", "b"], { id })
    one.commit()
    one.begin().stage(topic, ["a", "b"], { id, resend: true })
    assert.deepEqual(
      one.commit().map(({ base, duplicates }) => [base, duplicates]),
      [[0n, 2]],
    )
    assert.deepEqual(texts(fixture, topic), ["a", "b"])
  })

  test("of a transaction that was aborted are free", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic(window)
    const one = new Incarnation(fixture, "id").begin()
    one.stage(topic, [{ text: "a", id: 7n }])
    one.abort()
    one.begin().stage(topic, [{ text: "a", id: 7n }])
    assert.equal(one.commit()[0]?.duplicates, 0)
  })

  test("large batches lie in segments: what repeats leaves them", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic(window)
    const large = "x".repeat(70_000)
    const one = new Incarnation(fixture, "id").begin()
    one.stage(topic, [
      { text: large, id: 7n },
      { text: "a", id: 8n },
    ])
    one.stage(topic, [
      { text: large, id: 7n },
      { text: "b", id: 9n },
    ])
    one.stage(topic, [{ text: large, id: 7n }])
    assert.deepEqual(
      one.commit().map(({ duplicates }) => duplicates),
      [0, 1, 1],
    )
    assert.deepEqual(
      texts(fixture, topic).map((text) => text.length),
      [70_000, 1, 1],
    )
    assert.deepEqual(problemsOf(fixture), [])
  })
})

describe("topics that change meanwhile", () => {
  test("a purge: what is staged belongs to the new history", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    fixture.appendMany(topic, 3)
    const one = new Incarnation(fixture, "id").begin()
    one.stage(topic, ["before"])
    fixture.call("catalog.purgeTopic", named("log"))
    one.stage(topic, ["after, by the old description"])
    assert.equal(one.commit()[0]?.base, 0n)
    const now = fixture.call<TopicDescription>("catalog.describeTopic", named("log"))
    assert.deepEqual(texts(fixture, now), ["before", "after, by the old description"])
    assert.deepEqual(problemsOf(fixture), [])
  })

  test("a topic that is deleted spoils the whole transaction, also when one of its name comes after it", () => {
    for (const again of [false, true]) {
      using fixture = new EngineFixture()
      const [kept, gone] = [fixture.createTopic({}, named("kept")), fixture.createTopic({}, named("gone"))]
      const one = new Incarnation(fixture, "id").begin()
      one.stage(kept, ["a"])
      one.stage(gone, ["b"])
      fixture.call("catalog.deleteTopic", named("gone"))
      if (again) fixture.createTopic({}, named("gone"))
      assert.equal(errorOf(() => one.stage(gone, ["c"])).kind, "not-found")
      for (const call of [() => one.prepare(), () => one.commit()]) {
        const error = errorOf(call)
        assert.equal(error.kind, "not-found")
        assert.match(error.message, /"s\/gone".*"id".*deleted/)
      }
      one.abort()
      assert.deepEqual(texts(fixture, kept), [])
      assert.deepEqual(problemsOf(fixture), [])
    }
  })

  test("a prepared transaction that lost a topic can only be aborted, which its completion does and says", () => {
    for (const end of ["commit", "complete"] as const) {
      using fixture = new EngineFixture()
      const [kept, gone] = [fixture.createTopic({}, named("kept")), fixture.createTopic({}, named("gone"))]
      const one = new Incarnation(fixture, "id").begin()
      one.stage(kept, ["a"])
      one.stage(gone, ["b"])
      const token = one.prepare()
      fixture.call("catalog.deleteStream", "s")
      const error = errorOf(() => (end === "commit" ? one.commit() : one.complete(token)))
      assert.equal(error.kind, "transaction-aborted")
      assert.match(error.message, /"s\/(kept|gone)"/)
      one.begin().commit()
      assert.equal(rowsOf(fixture, "staged_batch"), 0)
      assert.deepEqual(problemsOf(fixture), [])
    }
  })

  test("a partition that is not there, and a topic that was created again, are refused at once", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const one = new Incarnation(fixture, "id").begin()
    assert.match(errorOf(() => one.stage(topic, ["a"], { partition: 1 })).message, /partition 1 .*1 partitions/)
    fixture.call("catalog.deleteTopic", named("log"))
    fixture.createTopic()
    assert.match(errorOf(() => one.stage(topic, ["a"])).message, /created again/)
    assert.deepEqual(one.commit(), [])
  })

  test("a topic with a size limit keeps it", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic({ maxBytes: 20_000n })
    const one = new Incarnation(fixture, "id").begin()
    for (let i = 0; i < 40; i++) one.stage(topic, ["x".repeat(1000)])
    one.commit()
    const { first, end } = fixture.watermarks(topic)
    assert.equal(end, 40n)
    assert.ok(first > 15n && first < 35n, `${first}`)
    assert.deepEqual(problemsOf(fixture), [])
  })
})

describe("where it lies", () => {
  const segments = (fixture: EngineFixture): number => readdirSync(join(fixture.path, "segments")).length

  test("large batches are written once: their commit moves what points at them", () => {
    for (const durability of ["synced", "written"] as const) {
      using fixture = new EngineFixture()
      const topic = fixture.createTopic({ durability })
      const one = new Incarnation(fixture, "id").begin()
      for (let i = 0; i < 12; i++) one.stage(topic, ["x".repeat(1 << 20)])
      const before = fixture.look(
        "SELECT id, segment, position FROM staged_batch WHERE segment IS NOT NULL ORDER BY id",
      )
      assert.ok(before.length >= 8, `${before.length} of 12 batches of a ${durability} topic are in segments`)
      one.commit(durability)
      const after = fixture.look("SELECT segment, position FROM batch WHERE segment IS NOT NULL ORDER BY id")
      assert.deepEqual(
        after,
        before.map(({ segment, position }) => ({ __proto__: null, segment, position })),
      )
      assert.equal(texts(fixture, topic).length, 12)
      assert.deepEqual(problemsOf(fixture), [])
    }
  })

  test("what was aborted gives its room back, in small steps", async () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const one = new Incarnation(fixture, "id").begin()
    for (let i = 0; i < 2000; i++) one.stage(topic, [`${i}`])
    for (let i = 0; i < 4; i++) one.stage(topic, ["x".repeat(1 << 20)])
    one.abort()
    assert.ok(rowsOf(fixture, "staged_batch") > 0, "more than one step")
    assert.deepEqual(problemsOf(fixture), [])
    await fixture.clock.advance(10_000)
    assert.equal(rowsOf(fixture, "staged_batch"), 0)
    assert.equal(rowsOf(fixture, "staged_garbage"), 0)
    assert.equal(segments(fixture), 0)
    assert.deepEqual(problemsOf(fixture), [])
  })

  test("an aborted transaction takes no bytes of its neighbours with it", async () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const [one, other] = [new Incarnation(fixture, "one").begin(), new Incarnation(fixture, "other").begin()]
    for (let i = 0; i < 4; i++) {
      one.stage(topic, [`${i}`.repeat(100_000)])
      other.stage(topic, ["lost".repeat(50_000)])
      fixture.appendMany(topic, 1, { bytes: 100_000 })
    }
    other.abort()
    one.commit()
    await fixture.clock.advance(10_000)
    fixture.reopen()
    assert.deepEqual(
      texts(fixture, topic).map((text) => text.length),
      Array.from({ length: 8 }, () => 100_000),
    )
    assert.deepEqual(problemsOf(fixture), [])
  })

  test("memory: a store that is never synced does the same", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic({ durability: "written", offsetDurability: "written" })
    const one = new Incarnation(fixture, "id").begin()
    one.stage(topic, ["a"])
    one.commit("written")
    assert.deepEqual(texts(fixture, topic), ["a"])
  })
})
