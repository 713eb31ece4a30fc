import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  ConnectionError,
  HistoryChangedError,
  type MillraceError,
  NotFoundError,
  OffsetOutOfRangeError,
  PermissionError,
  StorageError,
} from "@millrace/contract"
import fc from "fast-check"
import { FakeBatch } from "../consumer/fake-log.test-support.ts"
import {
  type PartitionReaderCommand,
  type PartitionReaderEvent,
  PartitionReaderMachine,
  type PartitionReaderPolicy,
} from "./partition-reader.machine.ts"

const place = { stream: "s", topic: "t", partition: 3 }
const policy: PartitionReaderPolicy = {
  onOutOfRange: "first",
  onMissing: "fail",
  retryIntervalMs: 100,
  initRetries: 0,
  initRetryIntervalMs: 10,
  holes: true,
}

const batch = (first: number, count: number): FakeBatch =>
  new FakeBatch(
    BigInt(first),
    Array.from({ length: count }, () => ({})),
  )

const read = (batches: readonly FakeBatch[], next: number, lineage = "a"): PartitionReaderEvent => ({
  type: "read",
  batches,
  nextOffset: BigInt(next),
  lineage,
  atMs: 5,
})

function started(options: Partial<PartitionReaderPolicy> = {}, offset = 10n): PartitionReaderMachine {
  const machine = new PartitionReaderMachine(place, { ...policy, ...options })
  machine.handle({ type: "started", offset, lineage: "a", polling: false })
  return machine
}

const types = (commands: readonly PartitionReaderCommand[]): string[] => commands.map(({ type }) => type)
const failedWith = (error: MillraceError): PartitionReaderEvent => ({ type: "readFailed", error, atMs: 5 })

describe("what of an answer is new", () => {
  test("a batch that begins before the position is entered in its middle", () => {
    const [accept] = started().handle(read([batch(5, 10)], 15))
    assert.deepEqual(
      [accept?.type, (accept as { from: number }).from, (accept as { after: bigint }).after],
      ["accept", 5, 15n],
    )
  })

  test("what was accepted before is left out, and the position never goes back", () => {
    const machine = started()
    machine.handle(read([batch(10, 10)], 20))
    assert.deepEqual(
      types(machine.handle(read([batch(10, 5)], 15))),
      ["set"],
      "the reader is behind: it is told where we stand",
    )
    assert.equal(machine.offset, 20n)
  })

  test("the last batch carries the progress over holes and markers", () => {
    const commands = started().handle(read([batch(10, 5), batch(20, 5)], 31))
    assert.deepEqual(
      commands.map((command) => command.type === "accept" && command.after),
      [15n, 31n],
    )
  })

  test("markers alone advance", () => {
    assert.deepEqual(started().handle(read([], 14)), [{ type: "advance", next: 14n }])
  })

  test("an answer to an older position is not taken for a hole", () => {
    const machine = started()
    machine.handle(read([batch(10, 90)], 100))
    machine.handle({ type: "seek", offset: 20n, polling: true })
    assert.deepEqual(types(machine.handle(read([batch(100, 10)], 110))), ["set"])
    assert.equal(machine.offset, 20n)
    assert.deepEqual(types(machine.handle(read([batch(30, 10)], 40))), ["accept"], "asked anew, a hole is a hole")
  })

  test("an answer to an older position that covers the new one is taken", () => {
    const machine = started()
    machine.handle({ type: "seek", offset: 12n, polling: true })
    assert.deepEqual(types(machine.handle(read([batch(10, 10)], 20))), ["accept"])
  })
})

describe("a position that the backend refuses and its watermarks allow", () => {
  const inRange: PartitionReaderEvent = { type: "located", first: 0n, end: 50n, lineage: "a", polling: false, atMs: 5 }

  test("is asked for again at once, and from then on after a wait, until something is read", () => {
    const machine = started()
    const refused = (): string[] => {
      assert.deepEqual(types(machine.handle(failedWith(new OffsetOutOfRangeError("x")))), ["locate"])
      return types(machine.handle(inRange))
    }
    assert.deepEqual(refused(), ["set"])
    for (let time = 0; time < 3; time++) {
      assert.deepEqual(refused(), ["wake"])
      assert.deepEqual(types(machine.handle({ type: "due", polling: false })), ["set"])
    }
    machine.handle(read([batch(10, 1)], 11))
    assert.deepEqual(refused(), ["set"])
  })
})

describe("what was read ahead, again", () => {
  test("begins at the time that the start asked for, as long as reading has not gone on", () => {
    const micros = (count: number): FakeBatch =>
      new FakeBatch(
        10n,
        Array.from({ length: count }, (_, index) => ({ timestampMicros: BigInt(index) })),
      )
    const machine = new PartitionReaderMachine(place, policy)
    machine.handle({ type: "started", offset: 10n, lineage: "a", fromMicros: 3n, polling: false })
    const from = (): unknown => machine.handle(read([micros(6)], 16)).map((one) => one.type === "accept" && one.from)
    assert.deepEqual(from(), [3])
    assert.deepEqual(types(machine.handle({ type: "again", offset: 10n })), ["set"])
    assert.deepEqual(from(), [3])
    machine.handle({ type: "again", offset: 11n })
    assert.deepEqual(from(), [1], "records before were handed out: from here all of them come")
    machine.handle({ type: "seek", offset: 10n, polling: false })
    assert.deepEqual(from(), [0])
    machine.handle({ type: "again", offset: 10n })
    assert.deepEqual(from(), [0])
  })
})

describe("every phase and every event", () => {
  const events: Record<string, PartitionReaderEvent> = {
    started: { type: "started", offset: 10n, lineage: "a", polling: false },
    startFailed: { type: "startFailed", error: new StorageError("x"), atMs: 5 },
    read: read([batch(10, 1)], 11),
    "readFailed (history)": failedWith(new HistoryChangedError("x")),
    "readFailed (range)": failedWith(new OffsetOutOfRangeError("x")),
    "readFailed (passing)": failedWith(new ConnectionError("x")),
    "readFailed (lasting)": failedWith(new StorageError("x")),
    "located (new history)": { type: "located", first: 0n, end: 5n, lineage: "b", polling: false, atMs: 5 },
    "located (behind)": { type: "located", first: 50n, end: 60n, lineage: "a", polling: false, atMs: 5 },
    locateFailed: { type: "locateFailed", error: new ConnectionError("x"), atMs: 5 },
    due: { type: "due", polling: false },
    seek: { type: "seek", offset: 12n, polling: false },
    "seek (new history)": { type: "seek", offset: 12n, lineage: "b", polling: false },
    skip: { type: "skip", next: 12n, polling: false },
    errorTaken: { type: "errorTaken", atMs: 5 },
    doubted: { type: "doubted" },
  }
  const phases: Record<string, () => PartitionReaderMachine> = {
    starting: () => new PartitionReaderMachine(place, policy),
    reading: () => started(),
    locating: () => after(started(), failedWith(new OffsetOutOfRangeError("x"))),
    waiting: () => after(started(), failedWith(new ConnectionError("x"))),
    failed: () => after(started(), failedWith(new StorageError("x"))),
    "failed to start": () => {
      const machine = new PartitionReaderMachine(place, policy)
      return after(machine, { type: "startFailed", error: new StorageError("x"), atMs: 5 })
    },
    closed: () => after(started(), { type: "close" }),
  }
  const expected: Record<string, Record<string, readonly string[]>> = {
    starting: { started: ["set"], startFailed: ["fail"] },
    reading: {
      read: ["accept"],
      "readFailed (history)": ["locate"],
      "readFailed (range)": ["locate"],
      "readFailed (passing)": ["wake"],
      "readFailed (lasting)": ["fail"],
      doubted: ["locate"],
      seek: ["drop", "set"],
      "seek (new history)": ["drop", "sourceChanged", "set"],
      skip: ["advance", "set"],
    },
    locating: {
      "located (new history)": ["drop", "sourceChanged", "set"],
      "located (behind)": ["skipped", "set"],
      locateFailed: ["wake"],
      seek: ["drop", "set"],
      "seek (new history)": ["drop", "sourceChanged", "set"],
      skip: ["advance", "set"],
    },
    waiting: {
      due: ["set"],
      doubted: ["locate"],
      seek: ["drop", "set"],
      "seek (new history)": ["drop", "sourceChanged", "set"],
      skip: ["advance", "set"],
    },
    failed: {
      errorTaken: ["wake"],
      doubted: ["locate"],
      seek: ["drop", "set"],
      "seek (new history)": ["drop", "sourceChanged", "set"],
      skip: ["advance", "set"],
    },
    "failed to start": { errorTaken: ["wake"], seek: ["drop", "start"], "seek (new history)": ["drop", "start"] },
    closed: {},
  }
  for (const [phase, make] of Object.entries(phases)) {
    for (const [name, event] of Object.entries(events)) {
      test(`${phase} × ${name}`, () => {
        assert.deepEqual(types(make().handle(event)), expected[phase]?.[name] ?? [])
      })
    }
  }
})

describe("failures", () => {
  test("a missing topic fails, or with wait is looked for again", () => {
    assert.deepEqual(types(started().handle(failedWith(new NotFoundError("x")))), ["fail"])
    assert.deepEqual(started({ onMissing: "wait" }).handle(failedWith(new NotFoundError("x"))), [
      { type: "wake", atMs: 105 },
    ])
  })

  test("an error is tried again only after it was taken, retryIntervalMs after it happened", () => {
    const machine = after(started(), failedWith(new StorageError("x")))
    assert.equal(machine.reading, false)
    assert.deepEqual(machine.handle({ type: "errorTaken", atMs: 50 }), [{ type: "wake", atMs: 105 }])
    assert.deepEqual(types(machine.handle({ type: "due", polling: false })), ["set"])
    assert.equal(machine.reading, true)
  })

  test("of an older position do not count: asked anew, they come again if they are of this one", () => {
    const machine = started()
    machine.handle({ type: "seek", offset: 40n, polling: true })
    assert.deepEqual(types(machine.handle(failedWith(new StorageError("x")))), ["set"])
    assert.deepEqual(types(machine.handle(failedWith(new StorageError("x")))), ["fail"])
  })

  test("a refusal waits twice as long each time, and the sixth in a row stops until seek", () => {
    const machine = started()
    const waits: number[] = []
    for (let n = 0; n < 6; n++) {
      const [fail] = machine.handle({ type: "readFailed", error: new PermissionError("no"), atMs: 1000 * n })
      assert.equal(fail?.type, "fail")
      assert.equal(machine.stopped, n === 5)
      const [wake] = machine.handle({ type: "errorTaken", atMs: 1000 * n })
      waits.push((wake as { atMs: number }).atMs - 1000 * n)
      assert.deepEqual(types(machine.handle({ type: "due", polling: false })), n === 5 ? ["fail"] : ["set"])
    }
    assert.deepEqual(waits, [100, 200, 400, 800, 1600, 3200])
    assert.equal(machine.phase, "failed")
    assert.deepEqual(types(machine.handle({ type: "seek", offset: 10n, polling: false })), ["drop", "set"])
    assert.equal(machine.stopped, false)
    const [fail] = machine.handle({ type: "readFailed", error: new PermissionError("no"), atMs: 0 })
    assert.equal((fail as { error: Error }).error.message, "no")
  })

  test("refusals of a start stop it too, and seek starts it again", () => {
    const machine = new PartitionReaderMachine(place, policy)
    for (let n = 0; n < 6; n++) {
      machine.handle({ type: "startFailed", error: new PermissionError("no"), atMs: 0 })
      machine.handle({ type: "errorTaken", atMs: 0 })
      assert.deepEqual(types(machine.handle({ type: "due", polling: false })), n === 5 ? ["fail"] : ["start"])
    }
    assert.deepEqual(types(machine.handle({ type: "seek", offset: 7n, polling: false })), ["drop", "start"])
    machine.handle({ type: "started", offset: 0n, lineage: "a", polling: false })
    assert.equal(machine.offset, 7n)
  })

  test("of another kind do not count as refusals, and a record that was read ends the row", () => {
    const machine = started()
    for (let n = 0; n < 20; n++) {
      const error = n % 5 === 4 ? new StorageError("x") : new PermissionError("no")
      machine.handle({ type: "readFailed", error, atMs: 0 })
      machine.handle({ type: "errorTaken", atMs: 0 })
      machine.handle({ type: "due", polling: false })
      assert.equal(machine.stopped, false)
    }
  })

  test("a gap is told with where it ends", () => {
    const machine = started({ holes: false })
    machine.handle(read([batch(14, 2)], 16))
    const located = { type: "located", first: 0n, end: 50n, lineage: "a", polling: false, atMs: 9 } as const
    const [fail] = machine.handle(located)
    assert.deepEqual((fail as { error: MillraceError }).error.context, { ...place, offset: 10n, nextOffset: 14n })
    machine.handle({ type: "skip", next: 14n, polling: false })
    assert.deepEqual(types(machine.handle(read([batch(14, 2)], 16))), ["accept"])
  })

  test("a history that is said to have changed and has not is asked again later, and nothing is thrown away", () => {
    const machine = after(started(), failedWith(new HistoryChangedError("x")))
    const same = { type: "located", first: 0n, end: 50n, lineage: "a", polling: false, atMs: 9 } as const
    assert.deepEqual(machine.handle(same), [{ type: "wake", atMs: 109 }])
  })

  test("a position that is back in range goes on", () => {
    const machine = after(started(), failedWith(new OffsetOutOfRangeError("x")))
    assert.deepEqual(
      types(machine.handle({ type: "located", first: 0n, end: 50n, lineage: "a", polling: false, atMs: 9 })),
      ["set"],
    )
  })
})

describe("whatever the answers are", () => {
  /** Answers that a reader may give: parts of the log from anywhere, with holes, some of them repeated or out of date. */
  const answer = fc.record({
    from: fc.nat({ max: 60 }),
    counts: fc.array(fc.tuple(fc.nat({ max: 3 }), fc.integer({ min: 1, max: 5 })), { maxLength: 4 }),
    more: fc.nat({ max: 3 }),
  })

  /** The caller moves, forward or back, with a poll under way or without. */
  const move = fc.record({ to: fc.nat({ max: 60 }), polling: fc.boolean(), skip: fc.boolean() })

  test("records are accepted in order, each at most once since the last seek, and the position only grows", () => {
    fc.assert(
      fc.property(fc.array(fc.oneof({ weight: 3, arbitrary: answer }, move), { maxLength: 20 }), (answers) => {
        const machine = started({}, 0n)
        let last = -1n
        let position = 0n
        for (const one of answers) {
          if ("to" in one) {
            const { to, polling, skip } = one
            if (skip) machine.handle({ type: "skip", next: BigInt(to), polling })
            else {
              machine.handle({ type: "seek", offset: BigInt(to), polling })
              last = BigInt(to) - 1n
              position = BigInt(to)
            }
            assert.ok(machine.reading && machine.offset >= position)
            position = machine.offset
            continue
          }
          const { from, counts, more } = one
          const batches: FakeBatch[] = []
          let next = from
          for (const [hole, count] of counts) {
            batches.push(batch(next + hole, count))
            next += hole + count
          }
          for (const command of machine.handle(read(batches, next + more))) {
            if (command.type !== "accept") continue
            for (let index = command.from; index < command.batch.count; index++) {
              assert.ok(command.batch.offset(index) > last)
              last = command.batch.offset(index)
            }
            assert.ok(command.after > last)
          }
          assert.ok(machine.offset >= position)
          position = machine.offset
        }
      }),
    )
  })
})

function after(machine: PartitionReaderMachine, event: PartitionReaderEvent): PartitionReaderMachine {
  machine.handle(event)
  return machine
}
