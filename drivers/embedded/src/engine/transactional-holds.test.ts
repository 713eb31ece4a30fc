import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { MillraceError, OffsetOwner, TopicDescription } from "@millrace/contract"
import { EngineFixture } from "./engine.test-support.ts"
import type { Joined } from "./group-join.ts"
import type { OffsetOutcome } from "./offsets.ts"
import { errorOf, Incarnation, problemsOf, stored, texts } from "./transactional.test-support.ts"

const reader: OffsetOwner = { kind: "consumer", name: "reader" }
const workers: OffsetOwner = { kind: "group", name: "workers" }
const named = (topic: string) => ({ stream: "s", topic })

/** A member of the group `workers`, with its claim on partition 0. */
function joined(fixture: EngineFixture, topic: TopicDescription, memberId: string): { member: number; claim: number } {
  const { member, view } = fixture.call<Joined>("groups.join", {
    group: "workers",
    topics: [{ stream: topic.stream, topic: topic.topic }],
    memberId,
    sessionTimeoutMs: 10_000,
    rebalanceTimeoutMs: 10_000,
  })
  const [claim] = view.claims
  return { member, claim: claim?.claim as number }
}

function store(
  fixture: EngineFixture,
  owner: OffsetOwner,
  topic: TopicDescription,
  offset: bigint,
): OffsetOutcome<undefined> {
  const { stream, topic: name, lineage } = topic
  const entries = [{ stream, topic: name, partition: 0, offset, lineage }]
  return fixture.call<OffsetOutcome<undefined>[]>("offsets.store", { owner, entries })[0] as OffsetOutcome<undefined>
}

describe("offsets of an open transaction", () => {
  test("hold nobody up, and the later entry of a partition counts", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const one = new Incarnation(fixture, "id").begin()
    one.enlist(reader, topic, 3n)
    assert.deepEqual(store(fixture, reader, topic, 1n), { value: undefined })
    one.enlist(reader, topic, 5n)
    assert.equal(stored(fixture, reader, topic), 1n)
    one.commit()
    assert.equal(stored(fixture, reader, topic), 5n)
    one.begin().enlist(reader, topic, 9n)
    one.abort()
    assert.equal(stored(fixture, reader, topic), 5n)
  })

  test("a claim that is void is refused when it is enlisted, prepared and committed", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const out = fixture.createTopic({}, named("out"))
    fixture.call("groups.create", { group: "workers", topic: named("log") })
    const { member, claim } = joined(fixture, topic, "m")
    const one = new Incarnation(fixture, "id").begin()
    assert.equal(errorOf(() => one.enlist(workers, topic, 4n)).kind, "not-assigned")
    one.enlist(workers, topic, 4n, { claim })
    one.stage(out, ["of 0 to 3"])
    fixture.call("groups.leave", { member })
    for (const call of [() => one.enlist(workers, topic, 5n, { claim }), () => one.prepare(), () => one.commit()])
      assert.equal(errorOf(call).kind, "not-assigned")
    one.abort()
    assert.deepEqual(texts(fixture, out), [])
    assert.equal(stored(fixture, workers, topic), undefined)
  })

  test("a call with one entry that is refused enlists none of the others", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic({ partitions: 2 })
    const { lineage } = topic
    const one = new Incarnation(fixture, "id").begin()
    const entry = { ...named("log"), partition: 0, offset: 1n, lineage }
    const call = (last: object) =>
      fixture.call("transactions.enlist", {
        transaction: one.ref,
        owner: reader,
        entries: [entry, { ...entry, ...last }],
      })
    assert.equal(errorOf(() => call({ partition: 2 })).kind, "not-found")
    assert.equal(errorOf(() => call({ partition: 1, lineage: "9.9" })).kind, "history-changed")
    assert.equal(errorOf(() => call({ partition: 1, offset: -1n })).kind, "invalid")
    one.commit()
    assert.equal(stored(fixture, reader, topic), undefined)
  })

  test("a group, a topic, a history that is gone: refused at the commit", () => {
    const endings: readonly (readonly [string, (fixture: EngineFixture) => void, string])[] = [
      ["group", (fixture) => fixture.call("groups.delete", { group: "workers", topic: named("log") }), "not-found"],
      ["topic", (fixture) => fixture.call("catalog.deleteTopic", named("log")), "not-found"],
      ["history", (fixture) => fixture.call("catalog.purgeTopic", named("log")), "history-changed"],
    ]
    for (const [what, end, kind] of endings) {
      using fixture = new EngineFixture()
      const topic = fixture.createTopic()
      fixture.call("groups.create", { group: "workers", topic: named("log") })
      const one = new Incarnation(fixture, "id").begin()
      one.enlist(workers, topic, 1n)
      end(fixture)
      assert.equal(errorOf(() => one.commit()).kind, kind, what)
      one.abort()
      assert.deepEqual(problemsOf(fixture), [])
    }
  })
})

describe("offsets of a prepared transaction", () => {
  test("nobody loads, stores, deletes, enlists or forgets them before it ended; the refusal says how to end it", async () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic({ partitions: 2 })
    fixture.call("groups.create", { group: "workers", topic: named("log") })
    const one = new Incarnation(fixture, "id").begin()
    one.enlist(workers, topic, 4n)
    const token = one.prepare()
    await fixture.clock.advance(2000)
    const other = new Incarnation(fixture, "other").begin()
    const entries = [{ ...named("log"), partition: 0 }]
    const outcomes: readonly (readonly [string, () => unknown])[] = [
      ["load", () => stored(fixture, workers, topic)],
      ["store", () => fail(store(fixture, workers, topic, 1n))],
      [
        "delete",
        () => fail(fixture.call<OffsetOutcome<undefined>[]>("offsets.delete", { owner: workers, entries })[0]),
      ],
      ["enlist", () => errorOf(() => other.enlist(workers, topic, 1n))],
      [
        "delete the group",
        () => errorOf(() => fixture.call("groups.delete", { group: "workers", topic: named("log") })),
      ],
    ]
    for (const [what, ask] of outcomes) {
      const error = ask() as MillraceError
      assert.equal(error.kind, "transaction-state", what)
      assert.equal(error.retryable, true, what)
      assert.deepEqual(error.context, { transactionalId: "id", token, ageMs: 2000 }, what)
      assert.match(error.message, /"id".* 2000 ms ago.*keepPrepared.*complete/, what)
    }
    assert.equal(stored(fixture, workers, topic, 1), undefined, "other partitions are free")
    assert.equal(stored(fixture, reader, topic), undefined, "and other readers")
    assert.equal(stored(fixture, { ...workers, kind: "consumer" }, topic), undefined)
    one.complete(token)
    assert.equal(stored(fixture, workers, topic), 4n)
    other.enlist(workers, topic, 1n)
    other.commit()
    assert.equal(stored(fixture, workers, topic), 1n)
    assert.deepEqual(problemsOf(fixture), [])
  })

  test("an abort leaves the older ones", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    store(fixture, reader, topic, 2n)
    const one = new Incarnation(fixture, "id").begin()
    one.enlist(reader, topic, 9n)
    one.prepare()
    one.abort()
    assert.equal(stored(fixture, reader, topic), 2n)
  })

  test("of two that want the same only the first can be prepared", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const [one, other] = [new Incarnation(fixture, "one").begin(), new Incarnation(fixture, "other").begin()]
    one.enlist(reader, topic, 1n)
    other.enlist(reader, topic, 2n)
    one.prepare()
    for (const call of [() => other.prepare(), () => other.commit()]) {
      const error = errorOf(call)
      assert.equal(error.kind, "transaction-state")
      assert.equal(error.context.transactionalId, "one")
      assert.equal(error.retryable, true)
    }
    one.commit()
    assert.match(other.prepare(), /^\d+:\d+$/)
    other.commit()
    assert.equal(stored(fixture, reader, topic), 2n)
  })

  test("are stored whatever the claims say by then", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    fixture.call("groups.create", { group: "workers", topic: named("log") })
    const { member, claim } = joined(fixture, topic, "m")
    const one = new Incarnation(fixture, "id").begin()
    one.enlist(workers, topic, 4n, { claim })
    const token = one.prepare()
    fixture.call("groups.leave", { member })
    joined(fixture, topic, "n")
    one.complete(token)
    assert.equal(stored(fixture, workers, topic), 4n)
  })

  test("a purge or a deletion of the topic takes them with it, and the rest commits", () => {
    for (const command of ["catalog.purgeTopic", "catalog.deleteTopic"]) {
      using fixture = new EngineFixture()
      const topic = fixture.createTopic()
      const out = fixture.createTopic({}, named("out"))
      const one = new Incarnation(fixture, "id").begin()
      one.enlist(reader, topic, 4n)
      one.enlist(reader, out, 0n)
      one.stage(out, ["a"])
      const token = one.prepare()
      fixture.call(command, named("log"))
      if (command === "catalog.purgeTopic") {
        const now = fixture.call<TopicDescription>("catalog.describeTopic", named("log"))
        assert.equal(stored(fixture, reader, now), undefined)
      }
      assert.equal(one.complete(token), "committed")
      assert.deepEqual(texts(fixture, out), ["a"])
      assert.equal(stored(fixture, reader, out), 0n)
      assert.deepEqual(problemsOf(fixture), [])
    }
  })
})

function fail(outcome: OffsetOutcome<undefined> | undefined): unknown {
  return outcome !== undefined && "error" in outcome ? outcome.error : undefined
}
