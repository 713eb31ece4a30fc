import assert from "node:assert/strict"
import { after, describe, test } from "node:test"
import type { ErrorKind, OffsetOwner } from "@millrace/contract"
import { EngineFixture } from "./engine.test-support.ts"
import { MadeUpProcesses } from "./group-fixture.test-support.ts"
import { errorOf, Incarnation, preparedIn, problemsOf, rowsOf, stored, texts } from "./transactional.test-support.ts"

const reader: OffsetOwner = { kind: "consumer", name: "reader" }

/** How a transaction comes to each of its states. */
const courses: Readonly<Record<string, (one: Incarnation) => void>> = {
  "not begun": () => {},
  open: (one) => one.begin(),
  prepared: (one) => one.begin().prepare(),
  committed: (one) => one.begin().commit(),
  aborted: (one) => one.begin().abort(),
}

const calls = ["stage", "enlist", "prepare", "commit", "abort", "complete", "begin"] as const

/** What each call answers in each state: a kind of error, or that it is done. */
const expected: Readonly<Record<string, Readonly<Record<(typeof calls)[number], ErrorKind | "done">>>> = {
  "not begun": {
    stage: "transaction-state",
    enlist: "transaction-state",
    prepare: "transaction-state",
    commit: "transaction-state",
    abort: "done",
    complete: "transaction-state",
    begin: "done",
  },
  open: {
    stage: "done",
    enlist: "done",
    prepare: "done",
    commit: "done",
    abort: "done",
    complete: "transaction-state",
    begin: "transaction-state",
  },
  prepared: {
    stage: "transaction-state",
    enlist: "transaction-state",
    prepare: "done",
    commit: "done",
    abort: "done",
    complete: "done",
    begin: "transaction-state",
  },
  committed: {
    stage: "transaction-state",
    enlist: "transaction-state",
    prepare: "transaction-state",
    commit: "done",
    abort: "transaction-state",
    complete: "transaction-state",
    begin: "transaction-state",
  },
  aborted: {
    stage: "transaction-aborted",
    enlist: "transaction-aborted",
    prepare: "transaction-aborted",
    commit: "transaction-aborted",
    abort: "done",
    complete: "transaction-state",
    begin: "transaction-aborted",
  },
}

describe("every call in every state", () => {
  const fixture = new EngineFixture()
  const topic = fixture.createTopic()
  after(() => fixture[Symbol.dispose]())
  for (const [state, course] of Object.entries(courses)) {
    for (const call of calls) {
      const answer = expected[state]?.[call]
      test(`${call} where it is ${state}: ${answer}`, () => {
        const name = `${call} ${state}`
        const one = new Incarnation(fixture, name)
        course(one)
        const before = { log: texts(fixture, topic), list: preparedIn(fixture) }
        const work = {
          stage: () => one.stage(topic, ["late"]),
          enlist: () => one.enlist(reader, topic, 1n),
          prepare: () => one.prepare(),
          commit: () => one.commit(),
          abort: () => one.abort(),
          complete: () => one.complete("1:1"),
          begin: () => fixture.call("transactions.begin", one.ref),
        }[call]
        if (answer === "done") work()
        else {
          const error = errorOf(work)
          assert.equal(error.kind, answer, error.message)
          assert.equal(error.outcome, "rejected")
          assert.match(error.message, new RegExp(`"${name}"`))
          assert.deepEqual(
            { log: texts(fixture, topic), list: preparedIn(fixture) },
            before,
            "a refusal changes nothing",
          )
        }
        assert.deepEqual(problemsOf(fixture), [])
        // What it holds is nobody else's concern.
        new Incarnation(fixture, name)
      })
    }
  }
})

describe("incarnations", () => {
  test("whatever an older one asks is refused, by both epochs", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    for (const course of Object.values(courses)) {
      const older = new Incarnation(fixture, "id")
      course(older)
      const newer = new Incarnation(fixture, "id")
      assert.equal(newer.ref.producerId, older.ref.producerId)
      assert.ok(newer.epoch > older.epoch)
      for (const call of [
        () => older.begin(),
        () => older.stage(topic, ["zombie"]),
        () => older.enlist(reader, topic, 1n),
        () => older.prepare(),
        () => older.commit(),
        () => older.abort(),
        () => older.complete("1:1"),
        () => older.close(),
      ]) {
        const error = errorOf(call)
        assert.equal(error.kind, "fenced")
        assert.match(error.message, new RegExp(`epoch ${older.ref.incarnation} .*epoch ${newer.ref.incarnation} `))
      }
      assert.deepEqual(preparedIn(fixture), [])
    }
    assert.deepEqual(texts(fixture, topic), [])
    assert.equal(stored(fixture, reader, topic), undefined)
    assert.deepEqual(problemsOf(fixture), [])
  })

  test("the work of an older one goes, with its staged batches", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const older = new Incarnation(fixture, "id").begin()
    older.stage(topic, ["lost"])
    older.enlist(reader, topic, 1n)
    new Incarnation(fixture, "id", { keepPrepared: true })
    for (const table of ["staged_batch", "staged_place", "staged_offset", "staged_garbage"])
      assert.equal(rowsOf(fixture, table), 0, table)
  })

  test("ids have identities of their own, which no other producer gets", () => {
    using fixture = new EngineFixture()
    fixture.createTopic()
    const one = new Incarnation(fixture, "one")
    const plain = fixture.call<{ producerId: bigint }>("log.identify", { topic: { stream: "s", topic: "log" } })
    const other = new Incarnation(fixture, "other")
    assert.equal(new Set([one.ref.producerId, plain.producerId, other.ref.producerId]).size, 3)
  })

  test("each transaction has an epoch of its own", () => {
    using fixture = new EngineFixture()
    const one = new Incarnation(fixture, "id")
    const epochs = [one.epoch]
    for (const end of ["commit", "abort", "commit"] as const) {
      one.begin()[end]()
      epochs.push(one.epoch)
    }
    assert.deepEqual(
      epochs,
      [...new Set(epochs)].sort((a, b) => a - b),
    )
  })

  test("one that is open and that nobody knows of gives way to the next", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const one = new Incarnation(fixture, "id").begin()
    one.stage(topic, ["lost"])
    one.begin()
    one.stage(topic, ["kept"])
    one.commit()
    assert.deepEqual(texts(fixture, topic), ["kept"])
  })

  test("ids that nobody used for a week are forgotten, but not what they have prepared", async () => {
    const processes = new MadeUpProcesses()
    using fixture = new EngineFixture(undefined, { processes })
    const idle = new Incarnation(fixture, "idle").begin()
    idle.commit()
    new Incarnation(fixture, "waits").begin().prepare()
    processes.end(1)
    processes.runAs(2)
    fixture.clock.setWall(fixture.clock.nowMicros() + 8n * 24n * 3_600_000_000n)
    await fixture.clock.advance(601_000)
    assert.equal(rowsOf(fixture, "transactional_id"), 1)
    assert.equal(preparedIn(fixture)[0]?.transactionalId, "waits")
    assert.equal(errorOf(() => idle.begin()).kind, "fenced")
    assert.notEqual(new Incarnation(fixture, "idle").ref.producerId, idle.ref.producerId)
  })

  test("an id whose session lives is not forgotten, whatever the clocks say; one that was closed is", async () => {
    using fixture = new EngineFixture()
    const idle = new Incarnation(fixture, "idle").begin()
    idle.commit()
    const closed = new Incarnation(fixture, "closed").begin()
    closed.commit()
    closed.close()
    fixture.clock.setWall(fixture.clock.nowMicros() + 8n * 24n * 3_600_000_000n)
    await fixture.clock.advance(601_000)
    assert.equal(rowsOf(fixture, "transactional_id"), 1)
    idle.begin().commit()
  })

  test("of many ids that nobody used, all are forgotten, in steps", async () => {
    const processes = new MadeUpProcesses()
    using fixture = new EngineFixture(undefined, { processes })
    for (let i = 0; i < 150; i++) new Incarnation(fixture, `id ${i}`)
    processes.runAs(2, "elsewhere")
    fixture.clock.setWall(fixture.clock.nowMicros() + 8n * 24n * 3_600_000_000n)
    await fixture.clock.advance(601_000)
    assert.equal(rowsOf(fixture, "transactional_id"), 0)
  })
})

describe("time", () => {
  test("an open transaction is aborted when its time is over, and its owner is told why", async () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const one = new Incarnation(fixture, "id", { timeoutMs: 5000 }).begin()
    one.stage(topic, ["lost"])
    await fixture.clock.advance(4999)
    one.stage(topic, ["lost too"])
    await fixture.clock.advance(2)
    for (const call of [() => one.stage(topic, ["late"]), () => one.commit(), () => one.prepare()]) {
      const error = errorOf(call)
      assert.equal(error.kind, "transaction-aborted")
      assert.match(error.message, /timeoutMs of 5000 ms/)
    }
    await fixture.clock.advance(5000)
    assert.equal(rowsOf(fixture, "staged_batch"), 0, "it is removed though nobody asks")
    assert.match(errorOf(() => one.commit()).message, /timeoutMs of 5000 ms/)
    one.abort()
    one.begin().stage(topic, ["kept"])
    one.commit()
    assert.deepEqual(texts(fixture, topic), ["kept"])
    assert.deepEqual(problemsOf(fixture), [])
  })

  test("a prepared one has no such bound, and tells its age", async () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    const one = new Incarnation(fixture, "id", { timeoutMs: 5000 }).begin()
    one.stage(topic, ["a", "b", "c"])
    const token = one.prepare()
    fixture.clock.setWall(fixture.clock.nowMicros() + 3_599_000_000n)
    await fixture.clock.advance(10_000)
    assert.deepEqual(preparedIn(fixture), [{ transactionalId: "id", token, ageMs: 3_609_000, records: 3 }])
    one.commit()
    assert.deepEqual(texts(fixture, topic), ["a", "b", "c"])
  })

  test("whoever has seen one open for its time-out aborts it, whatever the wall clocks say", async () => {
    const processes = new MadeUpProcesses()
    using owner = new EngineFixture(undefined, { processes })
    const topic = owner.createTopic()
    const one = new Incarnation(owner, "id", { timeoutMs: 60_000 }).begin()
    one.stage(topic, ["lost"])
    const observer = new EngineFixture(owner.path, { processes })
    try {
      observer.clock.setWall(observer.clock.nowMicros() + BigInt(365 * 24 * 3_600_000) * 1000n)
      await observer.clock.advance(50_000)
      assert.equal(rowsOf(owner, "staged_batch"), 1)
      await observer.clock.advance(30_000)
      assert.equal(rowsOf(owner, "staged_batch"), 0)
      assert.equal(errorOf(() => one.stage(topic, ["late"])).kind, "transaction-aborted")
    } finally {
      observer.engine.close()
    }
  })

  test("that of a process that is gone is aborted at once", async () => {
    const processes = new MadeUpProcesses()
    processes.runAs(7)
    using owner = new EngineFixture(undefined, { processes })
    const topic = owner.createTopic()
    new Incarnation(owner, "open").begin().stage(topic, ["lost"])
    new Incarnation(owner, "waits").begin().prepare()
    processes.runAs(8)
    new Incarnation(owner, "lives").begin().stage(topic, ["kept"])
    await owner.clock.advance(5000)
    assert.equal(rowsOf(owner, "staged_batch"), 2)
    processes.end(7)
    await owner.clock.advance(5000)
    assert.equal(rowsOf(owner, "staged_batch"), 1)
    assert.deepEqual(
      preparedIn(owner).map(({ transactionalId }) => transactionalId),
      ["waits"],
    )
  })

  test("the age of a prepared one is never negative", () => {
    using fixture = new EngineFixture()
    new Incarnation(fixture, "id").begin().prepare()
    fixture.clock.setWall(fixture.clock.nowMicros() + BigInt(-3_600_000) * 1000n)
    assert.equal(preparedIn(fixture)[0]?.ageMs, 0)
  })
})

describe("prepared", () => {
  test("it survives the end of its process, and only its own token commits it", () => {
    using fixture = new EngineFixture()
    const topic = fixture.createTopic()
    for (const right of [true, false]) {
      const first = new Incarnation(fixture, "id").begin()
      first.stage(topic, [`right: ${right}`])
      first.enlist(reader, topic, right ? 5n : 9n)
      const token = first.prepare()
      fixture.reopen()
      const next = new Incarnation(fixture, "id", { keepPrepared: true })
      assert.equal(next.prepared, token)
      assert.equal(next.complete(right ? token : `${token}0`), right ? "committed" : "aborted")
      assert.equal(errorOf(() => next.complete(token)).kind, "transaction-state")
      assert.deepEqual(preparedIn(fixture), [])
    }
    assert.deepEqual(texts(fixture, topic), ["right: true"])
    assert.equal(stored(fixture, reader, topic), 5n)
    assert.deepEqual(problemsOf(fixture), [])
  })

  test("tokens are never used twice, neither within an incarnation nor by the next", () => {
    using fixture = new EngineFixture()
    const tokens: string[] = []
    for (let i = 0; i < 3; i++) {
      const one = new Incarnation(fixture, "id")
      for (let j = 0; j < 3; j++) {
        tokens.push(one.begin().prepare())
        one.complete(tokens.at(-1) as string)
      }
    }
    assert.equal(new Set(tokens).size, 9)
    for (const token of tokens) assert.match(token, /^\d+:\d+$/)
  })

  test("a completion that is asked again after an unknown outcome is answered like the first time", () => {
    using fixture = new EngineFixture()
    const one = new Incarnation(fixture, "id")
    for (const [wrong, end] of [
      ["", "committed"],
      ["0", "aborted"],
    ] as const) {
      const token = one.begin().prepare() + wrong
      assert.equal(one.complete(token), end)
      assert.equal(one.complete(token, true), end)
    }
  })

  test("it survives incarnations that keep it, one after the other", () => {
    using fixture = new EngineFixture()
    const token = new Incarnation(fixture, "id").begin().prepare()
    for (let i = 0; i < 3; i++) {
      const next = new Incarnation(fixture, "id", { keepPrepared: true })
      assert.equal(next.prepared, token)
      assert.equal(errorOf(() => next.begin()).kind, "transaction-state")
      next.close()
    }
    assert.equal(preparedIn(fixture).length, 1)
  })
})
