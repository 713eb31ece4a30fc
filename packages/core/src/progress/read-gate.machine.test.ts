import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  ConnectionError,
  HistoryChangedError,
  type MillraceError,
  NotAssignedError,
  StorageError,
} from "@millrace/contract"
import fc from "fast-check"
import { type ReadGateCommand, type ReadGateEvent, ReadGateMachine } from "./read-gate.machine.ts"

const times = { retryMs: 100, quietMs: 1000 }
const away = new ConnectionError("away")
const cut = new ConnectionError("cut", { outcome: "unknown" })
const broken = new StorageError("broken")

const happening = fc.oneof(
  { weight: 5, arbitrary: fc.record({ what: fc.constant("read" as const), count: fc.integer({ min: 1, max: 5 }) }) },
  {
    weight: 6,
    arbitrary: fc.record({
      what: fc.constant("answer" as const),
      how: fc.constantFrom(
        "stored" as const,
        "away" as const,
        "cut" as const,
        "cutButStored" as const,
        "broken" as const,
      ),
    }),
  },
  { weight: 3, arbitrary: fc.record({ what: fc.constantFrom("time" as const, "take" as const, "find" as const) }) },
  { weight: 1, arbitrary: fc.record({ what: fc.constantFrom("abandon" as const, "seek" as const, "halt" as const) }) },
)
type Happening = typeof happening extends fc.Arbitrary<infer H> ? H : never

/** The world around one gate: a store whose answers may be late or missing, and a reader. */
class World {
  readonly machine = new ReadGateMachine(times)
  nowMs = 0
  read = 0n
  passed = 0n
  stored = 0n
  wakeAtMs: number | undefined
  told: MillraceError | undefined
  uncertain = false
  readonly asked: { readonly attempt: number; readonly next: bigint }[] = []

  tell(event: ReadGateEvent): void {
    for (const command of this.machine.handle(event)) this.execute(command)
  }

  execute(command: ReadGateCommand): void {
    switch (command.type) {
      case "store":
        assert.ok(!this.uncertain, "stores while nobody knows what became of the last one")
        assert.equal(command.next, this.read, "one store covers everything that was read")
        this.asked.push(command)
        break
      case "pass":
        assert.ok(command.next <= this.stored, `passed ${command.next}, stored ${this.stored}`)
        assert.ok(command.next > this.passed)
        this.passed = command.next
        break
      case "tell":
        this.told = command.error
        this.uncertain = command.uncertain !== undefined
        break
      case "wake":
        this.wakeAtMs = command.atMs
        break
    }
  }

  run(one: Happening): void {
    switch (one.what) {
      case "read":
        this.read += BigInt(one.count)
        this.tell({ type: "staged", next: this.read })
        break
      case "answer":
        this.answer(one.how)
        break
      case "time":
        this.nowMs += 100
        if (this.wakeAtMs === undefined || this.wakeAtMs > this.nowMs) break
        this.wakeAtMs = undefined
        this.tell({ type: "due" })
        break
      case "take":
        if (this.told !== undefined) this.tell({ type: "errorTaken", atMs: this.nowMs })
        this.told = undefined
        break
      case "find":
        if (!this.uncertain) break
        this.uncertain = false
        this.tell({ type: "found", stored: this.stored === 0n ? undefined : this.stored })
        break
      case "abandon":
        this.uncertain = false
        this.tell({ type: "abandoned" })
        break
      case "halt":
        if (this.uncertain) break
        this.tell({ type: "halted" })
        this.tell({ type: "resumed" })
        break
      case "seek":
        this.seek()
        break
    }
  }

  answer(how: "stored" | "away" | "cut" | "cutButStored" | "broken"): void {
    const store = this.asked.shift()
    if (store === undefined) return
    const { attempt, next } = store
    if (how === "stored" || how === "cutButStored") this.stored = next
    if (how === "stored") this.tell({ type: "stored", attempt })
    else {
      const error = how === "away" ? away : how === "broken" ? broken : cut
      this.tell({ type: "storeFailed", attempt, error, atMs: this.nowMs })
    }
  }

  /** To where it stands, so that offsets stay comparable. */
  seek(): void {
    this.uncertain = false
    this.passed = this.read
    this.stored = this.read
    this.tell({ type: "reset" })
  }
}

describe("the gate of onRead, whatever happens", () => {
  test("nothing is handed out before the store that covers it, and nothing is stored while an outcome is unknown", () => {
    fc.assert(
      fc.property(fc.array(happening, { maxLength: 80 }), (all) => {
        const world = new World()
        for (const one of all) world.run(one)
      }),
    )
  })

  test("once stores succeed, and questions are answered, everything that was read is handed out", () => {
    fc.assert(
      fc.property(fc.array(happening, { maxLength: 60 }), (all) => {
        const world = new World()
        for (const one of all.filter(({ what }) => what !== "abandon")) world.run(one)
        for (let round = 0; round < 5; round++) {
          for (const what of ["find", "take", "time"] as const) world.run({ what })
          while (world.asked.length > 0) world.answer("stored")
        }
        assert.equal(world.passed, world.read)
      }),
    )
  })
})

describe("a store under onRead", () => {
  const storing = (): ReadGateMachine => {
    const machine = new ReadGateMachine(times)
    assert.deepEqual(machine.handle({ type: "staged", next: 5n }), [{ type: "store", attempt: 1, next: 5n }])
    return machine
  }
  const failed = (error: MillraceError, atMs = 0) => ({ type: "storeFailed", attempt: 1, error, atMs }) as const

  test("what is read meanwhile waits for it, and is stored behind it in one go", () => {
    const machine = storing()
    assert.deepEqual(machine.handle({ type: "staged", next: 7n }), [])
    assert.deepEqual(machine.handle({ type: "staged", next: 9n }), [])
    assert.deepEqual(machine.handle({ type: "stored", attempt: 1 }), [
      { type: "pass", next: 5n },
      { type: "store", attempt: 2, next: 9n },
    ])
    assert.deepEqual(machine.handle({ type: "stored", attempt: 2 }), [{ type: "pass", next: 9n }])
    assert.equal(machine.phase, "idle")
  })

  test("that may pass is tried again after the wait, with what was read by then, and told after a minute of it", () => {
    const machine = storing()
    assert.deepEqual(machine.handle(failed(away, 10)), [{ type: "wake", atMs: 110 }])
    machine.handle({ type: "staged", next: 6n })
    assert.deepEqual(machine.handle({ type: "due" }), [{ type: "store", attempt: 2, next: 6n }])
    assert.deepEqual(machine.handle({ type: "storeFailed", attempt: 2, error: away, atMs: 1009 }), [
      { type: "wake", atMs: 1109 },
    ])
    machine.handle({ type: "due" })
    assert.deepEqual(machine.handle({ type: "storeFailed", attempt: 3, error: away, atMs: 1010 }), [
      { type: "tell", error: away, uncertain: undefined },
      { type: "wake", atMs: 1110 },
    ])
  })

  test("that will not pass is told, and tried again once somebody has heard", () => {
    const machine = storing()
    assert.deepEqual(machine.handle(failed(broken)), [{ type: "tell", error: broken, uncertain: undefined }])
    assert.deepEqual(machine.handle({ type: "due" }), [])
    assert.deepEqual(machine.handle({ type: "errorTaken", atMs: 50 }), [{ type: "wake", atMs: 150 }])
    assert.deepEqual(machine.handle({ type: "due" }), [{ type: "store", attempt: 2, next: 5n }])
  })

  test("of unknown outcome stops, also when it might be tried again", () => {
    for (const found of [5n, 6n]) {
      const machine = storing()
      assert.deepEqual(machine.handle(failed(cut)), [{ type: "tell", error: cut, uncertain: 5n }])
      for (const event of [
        { type: "due" },
        { type: "errorTaken", atMs: 1 },
        { type: "staged", next: 8n },
        { type: "stored", attempt: 1 },
      ] as const) {
        assert.deepEqual(machine.handle(event), [], event.type)
      }
      const commands = machine.handle({ type: "found", stored: found })
      assert.deepEqual(
        commands,
        [
          { type: "pass", next: 5n },
          { type: "store", attempt: 2, next: 8n },
        ],
        "it had happened",
      )
    }
    for (const found of [4n, 0n, undefined]) {
      const machine = storing()
      machine.handle(failed(cut))
      assert.deepEqual(
        machine.handle({ type: "found", stored: found }),
        [{ type: "store", attempt: 2, next: 5n }],
        "it had not",
      )
    }
  })

  test("that was given up stays so until reading goes on elsewhere", () => {
    const machine = storing()
    machine.handle(failed(cut))
    assert.deepEqual(machine.handle({ type: "abandoned" }), [])
    for (const event of [{ type: "staged", next: 9n }, { type: "found", stored: 9n }, { type: "due" }] as const) {
      assert.deepEqual(machine.handle(event), [], event.type)
    }
    machine.handle({ type: "halted" })
    assert.deepEqual(machine.handle({ type: "resumed" }), [], "nor after a move that failed")
    machine.handle({ type: "reset" })
    assert.deepEqual(machine.handle({ type: "staged", next: 3n }), [{ type: "store", attempt: 2, next: 3n }])
    assert.deepEqual(machine.handle({ type: "stored", attempt: 1 }), [], "an answer from before the reset")
  })

  test("waits while reading is being moved, and goes on when it stays", () => {
    const machine = storing()
    machine.handle({ type: "halted" })
    for (const event of [{ type: "stored", attempt: 1 }, { type: "staged", next: 9n }, { type: "due" }] as const) {
      assert.deepEqual(machine.handle(event), [], event.type)
    }
    assert.deepEqual(machine.handle({ type: "resumed" }), [{ type: "store", attempt: 2, next: 9n }])
    assert.deepEqual(machine.handle({ type: "resumed" }), [])
  })

  test("of a partition that is another's waits for the news in silence", () => {
    const machine = storing()
    assert.deepEqual(machine.handle(failed(new NotAssignedError("gone"))), [])
    assert.deepEqual(machine.handle({ type: "staged", next: 9n }), [])
  })

  test("of a history that is over has the reader look, and is tried again unless that one has found another history", () => {
    const machine = storing()
    assert.deepEqual(machine.handle(failed(new HistoryChangedError("purged"))), [
      { type: "wake", atMs: 100 },
      { type: "look" },
    ])
    assert.deepEqual(machine.handle({ type: "staged", next: 9n }), [])
    assert.deepEqual(machine.handle({ type: "due" }), [{ type: "store", attempt: 2, next: 9n }])
    machine.handle({ type: "storeFailed", attempt: 2, error: new HistoryChangedError("purged"), atMs: 100 })
    machine.handle({ type: "reset" })
    assert.deepEqual(machine.handle({ type: "due" }), [])
  })
})
