/**
 * Transactions against a model: two processes, two transactional ids, and whatever they do in whatever order, ends of processes between
 * any two steps included. After each step the readers see what the model says, and at the end nothing is left of what is over.
 */
import assert from "node:assert/strict"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { test } from "node:test"
import { type ErrorKind, MillraceError, type OffsetOwner, type TopicDescription } from "@millrace/contract"
import fc from "fast-check"
import { EngineFixture } from "./engine.test-support.ts"
import type { ProcessTable } from "./group-process.ts"
import { Incarnation, preparedIn, problemsOf, rowsOf, stored, texts } from "./transactional.test-support.ts"

const ids = ["one", "other"] as const
const owner: OffsetOwner = { kind: "consumer", name: "reader" }
const places = [
  [0, 0],
  [0, 1],
  [1, 0],
] as const

type Call =
  | "begin"
  | "stage"
  | "stage much"
  | "enlist"
  | "prepare"
  | "commit"
  | "abort"
  | "complete"
  | "complete wrong"
  | "close"
const withHandle: ReadonlySet<Call> = new Set(["stage", "stage much", "enlist", "prepare", "commit", "abort"])

type Step =
  | { readonly do: "init"; readonly id: number; readonly process: number; readonly keep: boolean }
  | { readonly do: Call; readonly session: number; readonly place: number }
  | { readonly do: "append"; readonly process: number; readonly place: number }
  | { readonly do: "crash"; readonly process: number }
  | { readonly do: "purge"; readonly process: number }
  | { readonly do: "tick"; readonly process: number }

const bit = fc.nat({ max: 1 })
const place = fc.nat({ max: 2 })
const call = (name: Call, weight: number): fc.WeightedArbitrary<Step> => ({
  weight,
  // The newest sessions are asked most, the older ones are zombies.
  arbitrary: fc.record({ do: fc.constant(name), session: fc.oneof(bit, fc.nat({ max: 4 })), place }),
})
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant("init" as const), id: bit, process: bit, keep: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("append" as const), process: bit, place }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("crash" as const), process: bit }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("tick" as const), process: bit }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("purge" as const), process: bit }) },
  call("begin", 8),
  call("stage", 8),
  call("stage much", 1),
  call("enlist", 4),
  call("prepare", 4),
  call("commit", 5),
  call("abort", 2),
  call("complete", 3),
  call("complete wrong", 1),
  call("close", 1),
)

/** What should be the case for one transactional id. */
interface IdModel {
  newest: Incarnation | undefined
  state: "none" | "open" | "prepared" | "committed" | "aborted"
  staged: { readonly at: number; readonly text: string }[]
  batches: number
  offset: bigint | undefined
  token: string
}

interface Process {
  readonly fixture: EngineFixture
  readonly pid: number
}

interface Session {
  readonly one: Incarnation
  readonly id: number
  readonly home: Process
}

class Course {
  readonly #path = mkdtempSync(join(tmpdir(), "millrace-test-"))
  readonly #ended = new Set<number>()
  #lastPid = 0
  readonly #processes: Process[] = [this.#start(), this.#start()]
  readonly #topics: readonly TopicDescription[]
  /** Newest first. */
  #sessions: Session[] = []
  readonly #models: readonly IdModel[] = ids.map(() => ({
    newest: undefined,
    state: "none",
    staged: [],
    batches: 0,
    offset: undefined,
    token: "",
  }))
  readonly #log: readonly string[][] = places.map(() => [])
  #purged: TopicDescription | undefined
  #offset: bigint | undefined
  #count = 0

  constructor() {
    this.#topics = [0, 1].map((i) => this.#at(0).createTopic({ partitions: 2 }, { stream: "s", topic: `t${i}` }))
  }

  async run(steps: readonly Step[]): Promise<void> {
    for (const one of steps) {
      await this.#step(one)
      this.#check()
    }
    for (const index of [0, 1]) this.#crash(index)
    for (let i = 0; i < 5; i++) await this.#at(0).clock.advance(2000)
    this.#check()
    const prepared = this.#models.filter(({ state }) => state === "prepared")
    const batches = prepared.reduce((sum, model) => sum + model.batches, 0)
    assert.equal(rowsOf(this.#at(0), "staged_batch"), batches, "nothing is left of what is over")
    assert.equal(rowsOf(this.#at(0), "staged_garbage"), 0)
    assert.deepEqual(problemsOf(this.#at(0)), [])
  }

  [Symbol.dispose](): void {
    for (const { fixture } of this.#processes) fixture.engine.close()
    rmSync(this.#path, { recursive: true, force: true })
  }

  #at(index: number): EngineFixture {
    return (this.#processes[index] as Process).fixture
  }

  #start(): Process {
    const pid = ++this.#lastPid
    const processes: ProcessTable = {
      self: { pid, started: "1", place: "here" },
      isGone: (other) => this.#ended.has(other.pid),
    }
    return { fixture: new EngineFixture(this.#path, { processes }), pid }
  }

  async #step(step: Step): Promise<void> {
    if (step.do === "crash") this.#crash(step.process)
    else if (step.do === "purge") this.#purge(step.process)
    else if (step.do === "tick") await this.#at(step.process).clock.advance(3000)
    else if (step.do === "append") this.#append(step.process, step.place)
    else if (step.do === "init") this.#init(step.id, { process: step.process, keep: step.keep })
    else this.#call(step.do, step.session, step.place)
  }

  /** A process ends as if it were killed: its engine says goodbye to nobody. */
  #crash(index: number): void {
    const process = this.#processes[index] as Process
    process.fixture.engine.close()
    this.#ended.add(process.pid)
    this.#processes[index] = this.#start()
    for (const { one, id } of this.#sessions.filter(({ home }) => home === process)) {
      const model = this.#models[id] as IdModel
      if (model.newest === one && model.state === "open") clear(model, "aborted")
    }
    this.#sessions = this.#sessions.filter(({ home }) => home !== process)
  }

  /** The second topic begins a new history. What is staged for it, by the old description too, goes there. */
  #purge(process: number): void {
    const name = { stream: "s", topic: "t1" }
    this.#at(process).call("catalog.purgeTopic", name)
    this.#purged = this.#at(process).call<TopicDescription>("catalog.describeTopic", name)
    for (const [at, [topic]] of places.entries()) if (topic === 1) this.#log[at]?.splice(0)
  }

  #append(process: number, at: number): void {
    const text = this.#text()
    const [topic, partition] = this.#place(at)
    const fixture = this.#at(process)
    fixture.append(fixture.batch(topic, [{ payload: Buffer.from(text) }], { partition }))
    this.#log[at]?.push(text)
  }

  #init(id: number, { process, keep }: { readonly process: number; readonly keep: boolean }): void {
    const model = this.#models[id] as IdModel
    const one = new Incarnation(this.#at(process), ids[id] as string, { timeoutMs: 1e9, keepPrepared: keep })
    model.newest = one
    const keeps = model.state === "prepared" && keep
    assert.equal(one.prepared, keeps ? model.token : undefined)
    if (!keeps) clear(model, "none")
    this.#sessions.unshift({ one, id, home: this.#processes[process] as Process })
  }

  /** Does what is asked, unless it must be refused: then it must change nothing. */
  #call(call: Call, session: number, at: number): void {
    const { one, id } = this.#sessions[session] ?? {}
    if (one === undefined || id === undefined) return
    // Without a transaction there is no handle to ask with.
    if (one.ref.key === 0n && withHandle.has(call)) return
    const model = this.#models[id] as IdModel
    const work = this.#works(call, { one, model, at })
    const refusal = this.#refusal(call, one, model)
    if (refusal === undefined) work()
    else assert.equal(kindOf(work), refusal, `${call} where ${ids[id]} is ${model.state}`)
  }

  #refusal(call: Call, one: Incarnation, model: IdModel): ErrorKind | undefined {
    if (one !== model.newest) return "fenced"
    const other = this.#models.find((another) => another !== model) as IdModel
    const taken = other.state === "prepared" && other.offset !== undefined
    const { state } = model
    switch (call) {
      case "begin":
        return state === "prepared" ? "transaction-state" : undefined
      case "stage":
      case "stage much":
        return refusalOf(state)
      case "enlist":
        return refusalOf(state) ?? (taken ? "transaction-state" : undefined)
      case "prepare":
        if (state === "prepared") return undefined
        return refusalOf(state) ?? (taken && model.offset !== undefined ? "transaction-state" : undefined)
      case "commit":
        if (state === "prepared" || state === "committed") return undefined
        return refusalOf(state) ?? (taken && model.offset !== undefined ? "transaction-state" : undefined)
      case "abort":
        return state === "committed" ? "transaction-state" : undefined
      case "complete":
      case "complete wrong":
        return state === "prepared" ? undefined : "transaction-state"
      case "close":
        return undefined
    }
  }

  #works(call: Call, { one, model, at }: { one: Incarnation; model: IdModel; at: number }): () => void {
    const [topic, partition] = this.#place(at)
    switch (call) {
      case "begin":
        return () => {
          one.begin()
          clear(model, "open")
        }
      case "stage":
      case "stage much":
        return () => {
          const drafts = Array.from({ length: call === "stage" ? 1 + (this.#count % 3) : 2 }, () => this.#text())
          if (call === "stage much") drafts[0] += "x".repeat(80_000)
          one.stage(topic, drafts, { partition })
          model.staged.push(...drafts.map((text) => ({ at, text })))
          model.batches++
        }
      case "enlist":
        return () => {
          const offset = BigInt(++this.#count)
          one.enlist(owner, this.#topics[0] as TopicDescription, offset)
          model.offset = offset
        }
      case "prepare":
        return () => {
          const token = one.prepare()
          if (model.state === "prepared") assert.equal(token, model.token)
          model.state = "prepared"
          model.token = token
        }
      case "commit":
        return () => {
          const results = one.commit()
          if (model.state === "committed") return
          assert.equal(results.length, model.batches)
          this.#commit(model)
        }
      case "abort":
        return () => {
          one.abort()
          if (model.state === "open" || model.state === "prepared") clear(model, "aborted")
        }
      case "complete":
        return () => {
          assert.equal(one.complete(model.token), "committed")
          this.#commit(model)
        }
      case "complete wrong":
        return () => {
          assert.equal(one.complete(`${model.token}1`), "aborted")
          clear(model, "aborted")
        }
      case "close":
        return () => {
          one.close()
          if (model.state === "open") clear(model, "aborted")
        }
    }
  }

  #commit(model: IdModel): void {
    for (const { at, text } of model.staged) this.#log[at]?.push(text)
    this.#offset = model.offset ?? this.#offset
    clear(model, "committed")
  }

  #place(at: number): [TopicDescription, number] {
    const [topic, partition] = places[at] as readonly [number, number]
    return [this.#topics[topic] as TopicDescription, partition]
  }

  #text(): string {
    return `${++this.#count}`
  }

  /** What anybody can see. */
  #check(): void {
    const fixture = this.#at(this.#count % 2)
    for (const [at, expected] of this.#log.entries()) {
      const [topic, partition] = this.#place(at)
      const present = topic.topic === "t1" ? (this.#purged ?? topic) : topic
      assert.deepEqual(texts(fixture, present, partition), expected)
    }
    const prepared = this.#models.filter(({ state }) => state === "prepared")
    assert.deepEqual(
      preparedIn(fixture)
        .map(({ token, records }) => [token, records])
        .sort(),
      prepared.map(({ token, staged }) => [token, staged.length]).sort(),
    )
    const offset = stored(fixture, owner, this.#topics[0] as TopicDescription)
    if (prepared.some((model) => model.offset !== undefined)) assert.ok(offset instanceof MillraceError)
    else assert.equal(offset, this.#offset)
  }
}

/** What is refused to a transaction that does not take anything more. */
function refusalOf(state: IdModel["state"]): ErrorKind | undefined {
  if (state === "open") return undefined
  return state === "aborted" ? "transaction-aborted" : "transaction-state"
}

function clear(model: IdModel, state: IdModel["state"]): void {
  model.state = state
  model.staged = []
  model.batches = 0
  model.offset = undefined
}

function kindOf(work: () => void): ErrorKind {
  try {
    work()
  } catch (error) {
    if (error instanceof MillraceError) return error.kind
    throw error
  }
  assert.fail("it was not refused")
}

test("all or nothing, fencing without exception, and nothing left over, whatever happens in whatever order", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 60 }), async (steps) => {
      using course = new Course()
      await course.run(steps)
    }),
    { numRuns: 25 },
  )
})
