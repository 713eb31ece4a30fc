/** The sender's decisions, case by case, and under every order of events. */
import assert from "node:assert/strict"
import { test } from "node:test"
import {
  type AppendResult,
  ConnectionError,
  DiskFullError,
  FencedError,
  type MillraceError,
  NotFoundError,
  RecordTooLargeError,
  SequenceError,
} from "@millrace/contract"
import fc from "fast-check"
import { SenderMachine } from "./sender.machine.ts"
import type { SenderCommand, SenderSettings } from "./sender-command.ts"
import type { Entry, SenderBatch } from "./sender-entry.ts"

class TestBatch implements SenderBatch {
  readonly name: string
  readonly count: number
  full = true
  due = false
  gate: "open" | "held" | "dropped" = "open"

  constructor(name: string, count = 1) {
    this.name = name
    this.count = count
  }
}

type Command = SenderCommand<TestBatch>
type Append = Extract<Command, { kind: "append" }>

const settings: SenderSettings = {
  maxInFlight: 5,
  sequenced: true,
  windowMs: undefined,
  release: "idle",
  retries: 3,
  retryBackoffMs: 100,
  resends: "direct",
  attemptTimeoutMs: 1000,
  onUnknown: "resend",
}

const refusal = (): MillraceError => new ConnectionError("not sent")
const lasting = (): MillraceError => new DiskFullError("no room", { retryable: false })
const unknown = (): MillraceError => new ConnectionError("lost", { outcome: "unknown" })
const gap = (): MillraceError => new SequenceError("gap")
const stored: AppendResult = { base: 0n, contiguous: true, duplicates: 0 }

/** A machine with what a test did to it. */
class Bench {
  readonly machine: SenderMachine<TestBatch>
  nowMs = 0
  epoch = 0
  readonly identities = {
    current: { producerId: 1n, epoch: 0 } as { producerId: bigint; epoch: number },
    isRenewing: false,
  }
  readonly flying = new Map<string, Append>()
  readonly ended: string[] = []

  constructor(changes: Partial<SenderSettings> = {}) {
    this.machine = new SenderMachine({ ...settings, ...changes })
  }

  add(...batches: TestBatch[]): this {
    for (const batch of batches) this.machine.enqueue(batch)
    return this
  }

  /** What goes out now: `name epoch/sequence`. */
  out(): string[] {
    return this.#take(this.machine.dispatch(this.nowMs, this.identities))
  }

  fail(name: string, error: MillraceError): string[] {
    const { entry, attempt } = this.#landed(name)
    return this.#take(this.machine.step({ kind: "failed", entry, attempt, error, nowMs: this.nowMs }))
  }

  confirm(name: string): string[] {
    const { entry } = this.#landed(name)
    return this.#take(this.machine.step({ kind: "appended", entry, result: stored, nowMs: this.nowMs }))
  }

  after(ms: number): string[] {
    this.nowMs += ms
    return this.#take(this.machine.step({ kind: "timer", nowMs: this.nowMs }))
  }

  identified(): string[] {
    this.identities.current = { producerId: 1n, epoch: ++this.epoch }
    const identity = this.identities.current
    return this.#take(this.machine.step({ kind: "identified", identity, nowMs: this.nowMs }))
  }

  #landed(name: string): Append {
    const append = this.flying.get(name)
    assert.ok(append, `${name} is not in flight`)
    this.flying.delete(name)
    return append
  }

  #take(commands: readonly Command[]): string[] {
    return commands.map((command) => {
      if (command.kind === "append") {
        const { name } = command.entry.batch
        this.flying.set(name, command)
        const { identity } = command
        return identity === undefined ? name : `${name} ${identity.epoch}/${identity.sequence}`
      }
      if (command.kind === "identify")
        return `identify${command.renew === undefined ? "" : ` after ${command.renew.identity.epoch}`}`
      if (command.kind === "handBack") return `hand back ${command.batches.map(({ name }) => name).join(" ")}`
      if (command.kind === "split") return `split ${command.entry.batch.name}`
      return `${command.kind} ${command.batch.name}${command.kind === "fail" ? ` ${command.error.outcome}` : ""}`
    })
  }
}

const [a, b, c, d] = ["a", "b", "c", "d"] as const
const batches = (...names: string[]): TestBatch[] => names.map((name) => new TestBatch(name))

test("batches go out in order with consecutive numbers, up to the limit", () => {
  const bench = new Bench({ maxInFlight: 2 }).add(new TestBatch(a, 3), new TestBatch(b, 2), new TestBatch(c))
  assert.deepEqual(bench.out(), ["a 0/0", "b 0/3"])
  assert.deepEqual(bench.confirm(a), ["confirm a"])
  assert.deepEqual(bench.out(), ["c 0/5"])
})

test("a batch that is not full waits while another is in flight", () => {
  const open = new TestBatch(b)
  open.full = false
  const bench = new Bench().add(new TestBatch(a), open)
  assert.deepEqual(bench.out(), ["a 0/0"])
  bench.confirm(a)
  assert.deepEqual(bench.out(), ["b 0/1"])
})

test("a held batch lets nobody pass; a dropped one fails and takes no number", () => {
  const [first, second] = batches(a, b) as [TestBatch, TestBatch]
  first.gate = "held"
  const bench = new Bench().add(first, second)
  assert.deepEqual(bench.out(), [])
  first.gate = "dropped"
  assert.deepEqual(bench.out(), ["fail a rejected"])
  assert.deepEqual(bench.out(), ["b 0/0"])
})

test("the time of an attempt that is held does not run before it begins", () => {
  const bench = new Bench({ attemptTimeoutMs: 1000 }).add(new TestBatch("a"))
  const [append] = bench.machine.dispatch(bench.nowMs, bench.identities)
  assert.equal(append?.kind, "append")
  const { entry } = append as Append
  bench.machine.hold(entry)
  assert.equal(bench.machine.wakeAtMs, undefined)
  bench.after(5000)
  assert.equal(entry.state, "inFlight")
  bench.machine.begin(entry, bench.nowMs)
  assert.equal(bench.machine.wakeAtMs, 6000)
  bench.after(999)
  assert.equal(entry.state, "inFlight")
  bench.after(1)
  assert.notEqual(entry.state, "inFlight")
})

test("nothing new goes out too far from the oldest batch in doubt, also when those between are stored", () => {
  const bench = new Bench({ maxInFlight: 3 }).add(...batches(a, b, c, d))
  assert.deepEqual(bench.out(), ["a 0/0", "b 0/1", "c 0/2"])
  bench.fail(a, unknown())
  bench.confirm(b)
  bench.confirm(c)
  bench.after(100)
  assert.deepEqual(bench.out(), ["a 0/0"], "d would push a out of what the backend remembers")
  bench.fail(a, refusal())
  bench.after(200)
  assert.deepEqual(bench.out(), ["a 0/0"])
  bench.confirm(a)
  assert.deepEqual(bench.out(), ["d 0/3"])
})

test("sequences wrap at 2^31", () => {
  const bench = new Bench().add(new TestBatch(a, 2 ** 31 - 1), new TestBatch(b, 3), new TestBatch(c))
  assert.deepEqual(bench.out(), ["a 0/0", `b 0/${2 ** 31 - 1}`, "c 0/2"])
})

test("after a failure nothing goes out until all in flight have settled; then all unsettled do, in order", () => {
  const bench = new Bench().add(...batches(a, b, c))
  bench.out()
  assert.deepEqual(bench.fail(a, refusal()), [])
  bench.add(new TestBatch(d))
  assert.deepEqual(bench.out(), [])
  bench.fail(b, gap())
  assert.deepEqual(bench.fail(c, gap()), [])
  assert.equal(bench.machine.phase, "resting")
  assert.equal(bench.machine.wakeAtMs, 100)
  bench.after(100)
  assert.deepEqual(bench.out(), ["a 0/0", "b 0/1", "c 0/2", "d 0/3"])
})

test("a certain refusal frees its numbers for those behind", () => {
  const bench = new Bench().add(...batches(a, b, c))
  bench.out()
  bench.fail(a, lasting())
  bench.fail(b, gap())
  assert.deepEqual(bench.fail(c, gap()), ["fail a rejected"])
  assert.deepEqual(bench.out(), ["b 0/0", "c 0/1"])
})

test("behind a certain refusal, one that may still land forces the next epoch for all, and is not lost", () => {
  const bench = new Bench().add(...batches(a, b, c))
  bench.out()
  bench.fail(a, lasting())
  bench.fail(b, gap())
  assert.deepEqual(bench.fail(c, unknown()), ["fail a rejected"])
  bench.after(100)
  assert.deepEqual(bench.out(), ["identify after 0"])
  bench.identified()
  assert.deepEqual(bench.out(), ["b 1/0", "c 1/1"])
})

test("behind an unknown end: what may be stored ends unknown too, what was refused goes out under the next epoch", () => {
  const bench = new Bench({ onUnknown: "fail" }).add(...batches(a, b, c))
  bench.out()
  bench.fail(a, unknown())
  bench.fail(b, gap())
  assert.deepEqual(bench.fail(c, unknown()), ["fail a unknown", "fail c unknown"])
  assert.deepEqual(bench.out(), ["identify after 0"])
  bench.identified()
  assert.deepEqual(bench.out(), ["b 1/0"])
})

test("the old epoch is brought to its end before the next one begins", () => {
  const bench = new Bench({ retries: 1 }).add(...batches(a, b, c))
  bench.out()
  bench.fail(a, unknown())
  bench.fail(b, gap())
  bench.fail(c, gap())
  bench.after(100)
  assert.deepEqual(bench.out(), ["a 0/0", "b 0/1", "c 0/2"])
  bench.fail(b, lasting())
  bench.fail(c, gap())
  assert.deepEqual(bench.confirm(a), ["confirm a", "fail b rejected"])
  assert.deepEqual(bench.out(), ["c 0/1"])
})

test("once an attempt ended in the dark, a refusal of a later one does not make it light", () => {
  const bench = new Bench({ retries: 1 }).add(...batches(a))
  bench.out()
  bench.fail(a, unknown())
  bench.after(100)
  bench.out()
  assert.deepEqual(bench.fail(a, refusal()), ["fail a unknown"])
})

test("a batch that was overtaken by a stored one is stored too: its refusal is not believed", () => {
  const bench = new Bench({ retries: 0 }).add(...batches(a, b))
  bench.out()
  bench.confirm(b)
  assert.deepEqual(bench.fail(a, refusal()), ["fail a unknown"])
})

test("a sequence that the backend does not know begins again under the next epoch, within a bound", () => {
  const bench = new Bench({ retries: 0 }).add(...batches(a))
  for (let round = 0; round < 3; round++) {
    assert.deepEqual(bench.out(), [`a ${round}/0`])
    assert.deepEqual(bench.fail(a, gap()), [])
    assert.deepEqual(bench.out(), [`identify after ${round}`])
    bench.identified()
  }
  bench.out()
  assert.deepEqual(bench.fail(a, gap()), ["fail a rejected"])
})

test("fenced: renumbered when nothing may be stored, else unknown", () => {
  const bench = new Bench().add(...batches(a))
  bench.out()
  bench.fail(a, new FencedError("old"))
  assert.deepEqual(bench.out(), ["identify after 0"])
  bench.identified()
  bench.out()
  bench.fail(a, unknown())
  bench.after(100)
  bench.out()
  assert.deepEqual(bench.fail(a, new FencedError("old")), ["fail a unknown"])
})

test("a partition with nothing on its way adopts the identity that others use by now", () => {
  const bench = new Bench().add(...batches(a))
  bench.out()
  bench.identities.current = { producerId: 1n, epoch: 7 }
  bench.add(new TestBatch(b))
  assert.deepEqual(bench.out(), ["b 0/1"])
  bench.confirm(a)
  bench.confirm(b)
  bench.add(new TestBatch(c))
  bench.identities.isRenewing = true
  assert.deepEqual(bench.out(), [])
  bench.identities.isRenewing = false
  assert.deepEqual(bench.out(), ["c 7/0"])
})

test("too large: halves in its place with its numbers; a single record fails", () => {
  const bench = new Bench().add(new TestBatch(a, 4), new TestBatch(b))
  bench.out()
  const { entry } = bench.flying.get(a) as Append
  bench.fail(a, new RecordTooLargeError("too large"))
  assert.deepEqual(bench.fail(b, gap()), ["split a"])
  bench.machine.replace(entry, [new TestBatch("a1", 3), new TestBatch("a2", 1)])
  assert.deepEqual(bench.out(), ["a1 0/0", "a2 0/3", "b 0/4"])
  bench.confirm("a1")
  bench.fail("a2", new RecordTooLargeError("too large"))
  assert.deepEqual(bench.fail(b, gap()), ["fail a2 rejected"])
  assert.deepEqual(bench.out(), ["b 0/3"])
})

test("a topic that is gone hands everything back, in order, also what was confirmed in doubt", () => {
  const bench = new Bench().add(...batches(a, b, c))
  bench.out()
  bench.add(new TestBatch(d))
  bench.confirm(a)
  bench.fail(b, new NotFoundError("gone"))
  assert.deepEqual(bench.fail(c, unknown()), ["hand back b c d"])
  assert.equal(bench.machine.phase, "ended")
})

test("retiring lets what is in flight settle, then hands the rest back", () => {
  const bench = new Bench().add(...batches(a))
  bench.out()
  assert.deepEqual(bench.machine.step({ kind: "retire", nowMs: 0 }), [])
  bench.add(new TestBatch(b))
  assert.deepEqual(bench.out(), [])
  assert.deepEqual(bench.confirm(a), ["confirm a", "hand back b"])
})

test("an attempt without an answer ends at its deadline; a late success still counts, a late refusal does not", () => {
  const bench = new Bench().add(...batches(a))
  bench.out()
  const first = bench.flying.get(a) as Append
  assert.equal(bench.machine.wakeAtMs, 1000)
  assert.deepEqual(bench.after(1000), [])
  const late = { entry: first.entry, attempt: first.attempt, nowMs: bench.nowMs }
  assert.deepEqual(bench.machine.step({ kind: "failed", error: lasting(), ...late }), [])
  bench.after(100)
  assert.deepEqual(bench.out(), ["a 0/0"])
  const [command] = bench.machine.step({ kind: "appended", entry: first.entry, result: stored, nowMs: bench.nowMs })
  assert.equal(command?.kind, "confirm")
  assert.equal(bench.machine.inFlight, 0)
  assert.equal(bench.machine.unsettled, 0)
})

test("within the backend's window a batch that may be stored is resent, past it never", () => {
  for (const [windowMs, expected] of [
    [1100, []],
    [1099, ["fail a unknown"]],
  ] as const) {
    const bench = new Bench({ windowMs, sequenced: false, maxInFlight: 1 }).add(...batches(a))
    const out = bench.machine.dispatch(0, undefined)[0] as Append
    bench.nowMs = 1000
    bench.flying.set(a, out)
    assert.deepEqual(bench.fail(a, unknown()), expected)
  }
})

/** Any event at any time, wanted or not: every batch ends exactly once, and the end is final. */
test("under every order of events each batch ends exactly once", () => {
  const step = fc.record({
    what: fc.constantFrom(
      "add",
      "dispatch",
      "confirm",
      "fail",
      "stale",
      "timer",
      "identified",
      "unidentified",
      "retire",
      "gate",
    ),
    which: fc.nat(7),
    error: fc.constantFrom(
      refusal,
      lasting,
      unknown,
      gap,
      () => new FencedError("f"),
      () => new RecordTooLargeError("l"),
    ),
    gone: fc.integer({ min: 0, max: 30 }),
  })
  const changes = fc.record({
    retries: fc.nat(2),
    sequenced: fc.boolean(),
    onUnknown: fc.constantFrom("resend", "fail"),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), changes, (steps, some) => {
      const maxInFlight = some.sequenced ? 5 : 1
      const machine = new SenderMachine<TestBatch>({ ...settings, ...some, maxInFlight } as SenderSettings)
      const ended = new Map<TestBatch, number>()
      const added: TestBatch[] = []
      let flying: Append[] = []
      const old: Append[] = []
      let epoch = 0
      let nowMs = 0
      const identities = some.sequenced ? { current: { producerId: 1n, epoch }, isRenewing: false } : undefined
      const take = (commands: readonly Command[]): void => {
        for (const command of commands) {
          if (command.kind === "append") flying.push(command)
          else if (command.kind === "split") split(command.entry)
          else if (command.kind === "handBack") for (const batch of command.batches) end(batch)
          else if (command.kind !== "identify") end(command.batch)
        }
        flying = flying.filter(({ entry, attempt }) => entry.state === "inFlight" && entry.attempt === attempt)
        assert.ok(flying.length === machine.inFlight && machine.inFlight <= maxInFlight)
      }
      const end = (batch: TestBatch): void => void ended.set(batch, (ended.get(batch) ?? 0) + 1)
      const split = (entry: Entry<TestBatch>): void => {
        const first = Math.floor(entry.batch.count / 2)
        const halves = [new TestBatch("h", first), new TestBatch("h", entry.batch.count - first)] as [
          TestBatch,
          TestBatch,
        ]
        added.splice(added.indexOf(entry.batch), 1, ...halves)
        machine.replace(entry, halves)
      }
      for (const { what, which, error, gone } of steps) {
        nowMs += which * 50
        const hit = flying[which % Math.max(1, flying.length)]
        if (what === "add" && machine.phase !== "ended") {
          const batch = new TestBatch("x", 1 + which)
          batch.full = which % 2 === 0
          added.push(batch)
          machine.enqueue(batch)
        } else if (what === "dispatch") {
          take(machine.dispatch(nowMs, identities))
        } else if (what === "confirm" && hit !== undefined) {
          old.push(hit)
          take(machine.step({ kind: "appended", entry: hit.entry, result: stored, nowMs }))
        } else if (what === "fail" && hit !== undefined) {
          old.push(hit)
          const failure = gone === 0 ? new NotFoundError("gone") : error()
          take(machine.step({ kind: "failed", entry: hit.entry, attempt: hit.attempt, error: failure, nowMs }))
        } else if (what === "stale" && old.length > 0) {
          const { entry, attempt } = old[which % old.length] as Append
          if (which % 2 === 0) take(machine.step({ kind: "appended", entry, result: stored, nowMs }))
          else take(machine.step({ kind: "failed", entry, attempt, error: error(), nowMs }))
        } else if (what === "timer") {
          take(machine.step({ kind: "timer", nowMs: machine.wakeAtMs ?? nowMs }))
        } else if (what === "identified" && machine.phase === "identifying") {
          const identity = { producerId: 1n, epoch: ++epoch }
          if (identities !== undefined) identities.current = identity
          take(machine.step({ kind: "identified", identity, nowMs }))
        } else if (what === "unidentified" && machine.phase === "identifying") {
          take(machine.step({ kind: "unidentified", error: error(), nowMs }))
        } else if (what === "retire" && gone === 1) {
          take(machine.step({ kind: "retire", nowMs }))
        } else if (what === "gate" && added.length > 0) {
          const batch = added[which % added.length] as TestBatch
          batch.gate = batch.gate === "open" ? "held" : batch.gate === "held" && which === 0 ? "dropped" : "open"
        }
      }
      take(machine.step({ kind: "abort", error: unknown(), nowMs }))
      assert.equal(machine.phase, "ended")
      assert.equal(machine.unsettled, 0)
      assert.equal(machine.wakeAtMs, undefined)
      for (const batch of added) assert.equal(ended.get(batch), 1, "ended exactly once")
    }),
    { numRuns: 2000 },
  )
})
