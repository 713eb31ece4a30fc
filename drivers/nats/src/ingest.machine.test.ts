import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { ConnectionError, DiskFullError, type MillraceError } from "@millrace/contract"
import fc from "fast-check"
import { type IngestCommand, type IngestEvent, type IngestJob, IngestMachine } from "./ingest.machine.ts"

interface Job extends IngestJob {
  readonly name: string
}
type Command = IngestCommand<Job>

const job = (name: string, count: number): Job => ({ name, count })
const append = (name: string, count: number, nowMs = 0): IngestEvent<Job> => ({
  type: "append",
  job: job(name, count),
  nowMs,
})

/** Commands in a form that reads at a glance. */
function told(commands: readonly Command[]): string[] {
  return commands.map((command) => {
    switch (command.type) {
      case "send": {
        const { job: of, from, count, sequence, commit } = command
        return `send ${of.name}[${from}+${count}] as ${sequence}${commit ? " commit" : ""}`
      }
      case "end":
        return `end ${command.sequence}`
      case "fail":
        return `fail ${command.job.name} ${command.error.kind} ${command.error.outcome}`
      case "confirm":
        return `confirm ${command.job.name}`
      default:
        return command.type
    }
  })
}

function run(machine: IngestMachine<Job>, ...events: IngestEvent<Job>[]): string[] {
  return events.flatMap((event) => told(machine.handle(event)))
}

describe("fast ingest", () => {
  test("a batch that is alone and short is one ingest: start, and commit with the last message", () => {
    const machine = new IngestMachine<Job>(500)
    assert.deepEqual(run(machine, append("a", 3)), ["send a[0+3] as 1 commit"])
    assert.deepEqual(run(machine, { type: "done", count: 3 }), ["confirm a", "renew"])
    assert.equal(machine.busy, false)
    assert.equal(machine.live, false)
  })

  test("while an ingest commits, what comes waits for its end", () => {
    const machine = new IngestMachine<Job>(500)
    run(machine, append("a", 3))
    assert.deepEqual(run(machine, append("b", 2), append("c", 2)), [])
    assert.deepEqual(run(machine, { type: "done", count: 3 }), [
      "confirm a",
      "renew",
      "send b[0+2] as 1",
      "send c[0+2] as 3 commit",
    ])
  })

  test("full steps are confirmed as they come, and the ingest goes on", () => {
    const machine = new IngestMachine<Job>(500)
    assert.deepEqual(run(machine, append("a", 1000)), ["send a[0+1000] as 1"])
    assert.deepEqual(run(machine, append("b", 1000)), ["send b[0+500] as 1001"])
    assert.deepEqual(run(machine, { type: "ack", sequence: 500, step: 500 }), ["send b[500+500] as 1501"])
    assert.deepEqual(run(machine, { type: "ack", sequence: 2000, step: 500 }), ["confirm a", "confirm b"])
    assert.equal(machine.live, true)
    assert.deepEqual(run(machine, append("c", 500)), ["send c[0+500] as 2001"])
  })

  test("a rest behind the last step is ended after a short time without more", () => {
    const machine = new IngestMachine<Job>(500)
    run(machine, append("a", 730))
    assert.deepEqual(run(machine, { type: "ack", sequence: 500, step: 500 }), ["hold"])
    assert.deepEqual(run(machine, { type: "quiet" }), ["end 731"])
    assert.deepEqual(run(machine, { type: "done", count: 730 }), ["confirm a", "renew"])
  })

  test("a rest that more records follow is not ended", () => {
    const machine = new IngestMachine<Job>(500)
    run(machine, append("a", 730), { type: "ack", sequence: 500, step: 500 })
    assert.deepEqual(run(machine, append("b", 730)), ["send b[0+730] as 731"])
    assert.deepEqual(run(machine, { type: "quiet" }), [])
    assert.deepEqual(run(machine, { type: "ack", sequence: 1000, step: 500 }), ["confirm a", "hold"])
  })

  test("a server that wants to confirm oftener is sent less ahead", () => {
    const machine = new IngestMachine<Job>(500)
    run(machine, append("a", 500), { type: "ack", sequence: 0, step: 1 }, { type: "ack", sequence: 500, step: 2 })
    assert.deepEqual(run(machine, append("b", 100)), ["send b[0+6] as 501"])
    assert.deepEqual(run(machine, { type: "ack", sequence: 502, step: 4 }), ["send b[6+8] as 507"])
  })

  test("a lost connection leaves what was sent in doubt, and rejects what was not", () => {
    const machine = new IngestMachine<Job>(500)
    run(machine, append("a", 1000), append("b", 600), append("c", 1))
    const cut: IngestEvent<Job> = { type: "cut", error: new ConnectionError("gone") }
    assert.deepEqual(run(machine, cut), [
      "fail a connection unknown",
      "fail b connection unknown",
      "fail c connection rejected",
      "renew",
    ])
    assert.deepEqual(run(machine, append("a", 1)), ["send a[0+1] as 1 commit"])
  })

  test("a refused message fails its batch truly, and those behind it were not stored", () => {
    const machine = new IngestMachine<Job>(500)
    run(machine, append("a", 500), append("b", 500), append("c", 500), append("d", 1))
    assert.deepEqual(run(machine, { type: "refused", sequence: 501, error: new DiskFullError("full") }), [])
    assert.deepEqual(run(machine, { type: "done", count: 500 }), [
      "confirm a",
      "fail b disk-full rejected",
      "fail c connection rejected",
      "fail d connection rejected",
      "renew",
    ])
  })

  test("a batch that was refused in its middle is in doubt", () => {
    const machine = new IngestMachine<Job>(500)
    run(machine, append("a", 500), { type: "refused", sequence: 7, error: new DiskFullError("full") })
    assert.deepEqual(run(machine, { type: "done", count: 6 }), ["fail a disk-full unknown", "renew"])
  })

  test("a gap ends the ingest where the server says, and nothing is sent into it", () => {
    const machine = new IngestMachine<Job>(500)
    run(machine, append("a", 500), append("b", 500), { type: "gap" })
    assert.deepEqual(run(machine, append("c", 1), { type: "ack", sequence: 500, step: 500 }), ["confirm a"])
    assert.deepEqual(run(machine, { type: "done", count: 700 }), [
      "fail b connection unknown",
      "fail c connection rejected",
      "renew",
    ])
  })

  test("an ingest that the server does not know any more stored nothing new, when its first message says so", () => {
    const machine = new IngestMachine<Job>(500)
    run(machine, append("a", 500), { type: "ack", sequence: 500, step: 500 }, append("b", 500), append("c", 500))
    const error = new ConnectionError("unknown ingest")
    assert.deepEqual(run(machine, { type: "ended", sequence: 501, error }), [
      "fail b connection rejected",
      "fail c connection rejected",
      "renew",
    ])
    run(machine, append("d", 500), append("e", 500))
    assert.deepEqual(run(machine, { type: "ended", sequence: 2, error }), [
      "fail d connection unknown",
      "fail e connection unknown",
      "renew",
    ])
  })

  test("an ingest that rested for too long is ended, and another begun", () => {
    const machine = new IngestMachine<Job>(500)
    run(machine, append("a", 500), { type: "ack", sequence: 500, step: 500 })
    assert.deepEqual(run(machine, append("b", 500, 4_000)), ["send b[0+500] as 501"])
    run(machine, { type: "ack", sequence: 1000, step: 500 })
    assert.deepEqual(run(machine, append("c", 1, 9_500)), ["end 1001", "renew", "send c[0+1] as 1 commit"])
  })
})

/** A server as ADR-50 describes it: stores in order, confirms each step, may lose the connection or refuse a message. */
class Server {
  readonly stored: string[] = []
  step: number
  #next = 1
  #flow = 0

  constructor(step: number) {
    this.step = step
  }

  take(command: Command): IngestEvent<Job>[] {
    const answers: IngestEvent<Job>[] = []
    if (command.type === "renew") {
      this.#next = 1
      this.#flow = 0
    }
    if (command.type === "end") answers.push({ type: "done", count: this.#next - 1 })
    if (command.type !== "send") return answers
    for (let index = 0; index < command.count; index++) {
      assert.equal(command.sequence + index, this.#next, "messages are numbered without a gap")
      this.stored.push(`${command.job.name}.${command.from + index}`)
      this.#next++
      if (this.#next - 1 >= this.#flow + this.step) {
        this.#flow = this.#next - 1
        answers.push({ type: "ack", sequence: this.#flow, step: this.step })
      }
    }
    if (command.commit) answers.push({ type: "done", count: this.#next - 1 })
    return answers
  }
}

test("whatever is appended and lost: confirmed is stored, rejected is not, the order holds, nothing is left over", () => {
  const action = fc.oneof(
    { weight: 6, arbitrary: fc.integer({ min: 1, max: 40 }).map((count) => ({ do: "append" as const, count })) },
    { weight: 4, arbitrary: fc.constant({ do: "answer" as const }) },
    { weight: 1, arbitrary: fc.constant({ do: "cut" as const }) },
  )
  fc.assert(
    fc.property(fc.array(action, { maxLength: 40 }), fc.constantFrom(1, 3, 10), (actions, step) => {
      const machine = new IngestMachine<Job>(10)
      const server = new Server(step)
      const outcomes = new Map<string, string>()
      const counts = new Map<string, number>()
      let answers: IngestEvent<Job>[] = []
      let names = 0
      const feed = (event: IngestEvent<Job>): void => {
        for (const command of machine.handle(event)) {
          answers.push(...server.take(command))
          // Answers to an ingest that is over reach nobody.
          if (command.type === "renew" && event.type === "cut") answers = []
          if (command.type === "hold") answers.push({ type: "quiet" })
          const { outcome } = settle(command)
          if (outcome === undefined || !("job" in command)) continue
          assert.ok(!outcomes.has(command.job.name), `${command.job.name} was settled twice`)
          outcomes.set(command.job.name, outcome)
        }
      }
      const drain = (most: number): void => {
        for (let fed = 0; fed < most; fed++) {
          const event = answers.shift()
          if (event === undefined) return
          feed(event)
        }
      }
      for (const one of actions) {
        if (one.do === "append") {
          const name = `j${names++}`
          counts.set(name, one.count)
          feed({ type: "append", job: job(name, one.count), nowMs: 0 })
        } else if (one.do === "cut") feed({ type: "cut", error: new ConnectionError("cut") })
        else drain(1)
      }
      drain(10_000)
      assert.equal(machine.busy, false, "something is left over")
      assert.equal(outcomes.size, names)
      for (const [name, outcome] of outcomes) {
        const found = server.stored.filter((one) => one.startsWith(`${name}.`)).length
        if (outcome === "confirmed") assert.equal(found, counts.get(name))
        if (outcome === "rejected") assert.equal(found, 0)
      }
      const places = server.stored.map((one) => one.slice(1).split(".").map(Number) as [number, number])
      for (let at = 1; at < places.length; at++) {
        const [before, after] = [places[at - 1] as [number, number], places[at] as [number, number]]
        assert.ok(after[0] > before[0] || (after[0] === before[0] && after[1] === before[1] + 1), "out of order")
      }
    }),
    { numRuns: 400 },
  )
})

function settle(command: Command): { readonly outcome?: string; readonly error?: MillraceError } {
  if (command.type === "confirm") return { outcome: "confirmed" }
  if (command.type === "fail") return { outcome: command.error.outcome, error: command.error }
  return {}
}
