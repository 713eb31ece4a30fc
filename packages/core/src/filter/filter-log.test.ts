import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  CorruptionError,
  type MillraceError,
  PermissionError,
  TimeoutError,
  UnsupportedError,
} from "@millrace/contract"
import { FilterBackend, workers } from "./filter-backend.test-support.ts"
import type { FilterOutcome } from "./filter-binding.machine.ts"
import { encodeFilterEvent, type FilterCommand } from "./filter-event.ts"
import { filterTopic } from "./filter-log.ts"

const configure = (text: string): FilterCommand => ({ type: "configure", text })
const revise = (expected: number, text: string): FilterCommand => ({ type: "revise", expected, text })
const reasonOf = (outcome: FilterOutcome): string => (outcome.applied ? "applied" : outcome.reason)

/** Waits in virtual time, for at most a minute. */
async function finished<V>(backend: FilterBackend, work: Promise<V>): Promise<V> {
  let settled = false
  const watched = work.finally(() => {
    settled = true
  })
  watched.catch(() => {})
  for (let step = 0; step < 600 && !settled; step++) await backend.clock.advance(100)
  assert.ok(settled, "nothing came within a minute")
  return watched
}

/** What the work fails with. */
async function failure(backend: FilterBackend, work: Promise<unknown>): Promise<MillraceError> {
  return finished(
    backend,
    work.then(
      () => assert.fail("it did not fail"),
      (error) => error as MillraceError,
    ),
  )
}

describe("the log of filters", () => {
  test("where there are no filters, looking makes nothing", async () => {
    const backend = new FilterBackend()
    const client = backend.client()
    await client.refresh()
    assert.equal(client.exists, false)
    assert.equal(client.view(workers).machine.binding, undefined)
    assert.equal(backend.log.appends, 0)
    assert.deepEqual([...backend.log.partitions], [])
  })

  test("what one client stores, another one reads", async () => {
    const backend = new FilterBackend()
    const [one, other] = [backend.client(), backend.client()]
    assert.equal(reasonOf(await finished(backend, one.mutate(workers, configure("A")))), "applied")
    await finished(backend, other.refresh())
    assert.equal(other.view(workers).machine.binding?.revision.text, "A")
    assert.equal(other.view({ ...workers, group: "others" }).machine.binding, undefined)
    assert.equal(other.view({ ...workers, topic: "u" }).machine.binding, undefined)
  })

  test("of two clients that revise the same revision exactly one is told that it won", async () => {
    for (let round = 0; round < 5; round++) {
      const backend = new FilterBackend()
      const clients = Array.from({ length: 4 }, () => backend.client())
      await finished(backend, (clients[0] as (typeof clients)[0]).mutate(workers, configure("A")))
      const outcomes = await finished(
        backend,
        Promise.all(clients.map((client, index) => client.mutate(workers, revise(1, `B${index}`)))),
      )
      assert.deepEqual(outcomes.map(reasonOf).toSorted(), ["applied", "conflict", "conflict", "conflict"])
      const winner = outcomes.findIndex((outcome) => outcome.applied)
      const fresh = backend.client()
      await finished(backend, fresh.refresh())
      assert.deepEqual(
        fresh.view(workers).machine.revisions.map(({ text }) => text),
        ["A", `B${winner}`],
      )
    }
  })

  test("of two clients that configure different filters at once exactly one wins, on a backend without any filters", async () => {
    const backend = new FilterBackend()
    const [one, other] = [backend.client(), backend.client()]
    const outcomes = await finished(
      backend,
      Promise.all([one.mutate(workers, configure("A")), other.mutate(workers, configure("B"))]),
    )
    assert.deepEqual(outcomes.map(reasonOf).toSorted(), ["applied", "conflict"])
  })

  test("what would change nothing is not written: every program can say what it expects", async () => {
    const backend = new FilterBackend()
    const client = backend.client()
    await finished(backend, client.mutate(workers, configure("A")))
    await finished(backend, client.mutate(workers, configure("A")))
    assert.equal(reasonOf(await finished(backend, client.mutate(workers, configure("B")))), "conflict")
    await finished(backend, backend.client().mutate(workers, configure("A")))
    assert.equal(backend.written().length, 1)
  })

  test("an answer that is lost is found by reading, and nothing is stored twice", async () => {
    const backend = new FilterBackend()
    backend.log.faults.push("answer lost")
    const outcome = await finished(backend, backend.client().mutate(workers, configure("A")))
    assert.equal(reasonOf(outcome), "applied")
    assert.equal(backend.written().length, 1)
  })

  test("a mutation that is lost is asked for again after 200 ms, and a copy that comes late changes nothing", async () => {
    const backend = new FilterBackend()
    const client = backend.client()
    await finished(backend, client.mutate(workers, configure("A")))
    backend.log.faults.push("lost")
    const beganMs = backend.clock.monotonicMs()
    const asked = client.mutate(workers, revise(1, "B"))
    await backend.clock.advance(199)
    assert.equal(backend.log.appends, 2)
    await backend.clock.advance(1)
    assert.equal(backend.log.appends, 3)
    assert.equal(reasonOf(await finished(backend, asked)), "applied")
    assert.ok(backend.clock.monotonicMs() - beganMs >= 200)
    // The first copy was only late.
    backend.write(backend.written()[1] as string)
    const fresh = backend.client()
    await finished(backend, fresh.refresh())
    assert.equal(fresh.view(workers).machine.revisions.length, 2)
  })

  test("a mutation that is refused for now is tried three times in all; nothing was stored, and the error says so", async () => {
    const backend = new FilterBackend()
    const client = backend.client()
    await finished(backend, client.mutate(workers, configure("A")))
    backend.log.faults.push("refused", "refused")
    assert.equal(reasonOf(await finished(backend, client.mutate(workers, revise(1, "B")))), "applied")
    backend.log.faults.push("refused", "refused", "refused")
    const error = await failure(backend, client.mutate(workers, revise(2, "C")))
    assert.equal(error.kind, "connection")
    assert.equal(error.outcome, "rejected")
    assert.equal(backend.log.appends, 1 + 3 + 3)
  })

  test("three losses leave it unknown, and the operation tells what became of it later", async () => {
    const backend = new FilterBackend()
    const client = backend.client()
    await finished(backend, client.mutate(workers, configure("A")))
    backend.log.faults.push("lost", "lost", "lost")
    const error = await failure(backend, client.mutate(workers, revise(1, "B"), "mine"))
    assert.ok(error instanceof TimeoutError)
    assert.equal(error.outcome, "unknown")
    assert.equal(error.context.operation, "mine")
    assert.equal(reasonOf(await finished(backend, client.mutate(workers, revise(1, "B"), "mine"))), "applied")
    const after = backend.log.appends
    assert.equal(reasonOf(await finished(backend, backend.client().mutate(workers, revise(1, "B"), "mine"))), "applied")
    assert.equal(backend.log.appends, after, "what is known is not written again")
    assert.equal(reasonOf(await finished(backend, client.mutate(workers, revise(1, "C"), "mine"))), "invalid_request")
  })

  test("a failure that time does not mend is told at once", async () => {
    const backend = new FilterBackend()
    backend.log.faults.push(new PermissionError("not allowed"))
    const error = await failure(backend, backend.client().mutate(workers, configure("A")))
    assert.ok(error instanceof PermissionError)
    assert.equal(backend.log.appends, 1)
  })

  test("a backend that does not answer is given up after 30 s, and it is not known what became of it", async () => {
    const backend = new FilterBackend()
    const client = backend.client()
    await finished(backend, client.mutate(workers, configure("A")))
    backend.log.beforeAppend = () => new Promise(() => {})
    const error = await failure(backend, client.mutate(workers, revise(1, "B")))
    assert.ok(error instanceof TimeoutError)
    assert.equal(error.outcome, "unknown")
  })

  test("what others wrote into the topic is passed over", async () => {
    const backend = new FilterBackend()
    const client = backend.client()
    backend.write("hello")
    await finished(backend, client.mutate(workers, configure("A")))
    backend.write('{"millrace":"filter","version":1}')
    backend.write("")
    const fresh = backend.client()
    await finished(backend, fresh.refresh())
    assert.equal(fresh.view(workers).machine.binding?.revision.text, "A")
    assert.equal(reasonOf(await finished(backend, client.mutate(workers, revise(1, "B")))), "applied")
  })

  test("a group that a newer version has changed is left alone; other groups go on", async () => {
    const backend = new FilterBackend()
    const client = backend.client()
    await finished(backend, client.mutate(workers, configure("A")))
    const event = new TextDecoder().decode(
      encodeFilterEvent({ group: workers, operation: "new", command: { type: "delete" } }),
    )
    backend.write(event.replace('"version":1', '"version":7'))
    const error = await failure(backend, client.mutate(workers, revise(1, "B")))
    assert.ok(error instanceof UnsupportedError)
    assert.equal(error.context.reason, "version_skew")
    assert.equal(client.view(workers).newer, 7)
    const others = { ...workers, group: "others" }
    assert.equal(reasonOf(await finished(backend, client.mutate(others, configure("A")))), "applied")
  })

  test("what was read before a failure is told", async () => {
    const backend = new FilterBackend()
    const [one, other] = [backend.client(), backend.client()]
    await finished(backend, one.mutate(workers, configure("A")))
    await finished(backend, one.mutate({ ...workers, group: "others" }, configure("B")))
    const error = new CorruptionError("damaged")
    backend.log.find({ ...filterTopic, partition: 0 })?.damage.push({ offset: 1n, error })
    const told: (string | undefined)[] = []
    other.listen(() => told.push(other.view(workers).machine.binding?.revision.text))
    assert.ok((await failure(backend, other.refresh())) instanceof CorruptionError)
    assert.deepEqual(told, ["A"])
  })

  test("a topic that was deleted is a beginning: what was known is forgotten, and the next mutation makes it again", async () => {
    const backend = new FilterBackend()
    const client = backend.client()
    let told = 0
    client.listen(() => told++)
    await finished(backend, client.mutate(workers, configure("A")))
    backend.deleteTopic()
    told = 0
    await finished(backend, client.refresh())
    assert.equal(told, 1)
    assert.equal(client.exists, false)
    assert.equal(client.view(workers).machine.binding, undefined)
    const outcome = await finished(backend, client.mutate(workers, configure("B")))
    assert.equal(reasonOf(outcome), "applied")
    assert.equal(client.view(workers).machine.binding?.revision.text, "B")
  })

  test("a topic with another history is read from its beginning", async () => {
    const backend = new FilterBackend()
    const client = backend.client()
    await finished(backend, client.mutate(workers, configure("A")))
    backend.log.purge({ stream: "millrace", topic: "filters", partition: 0 }, "b")
    await finished(backend, client.refresh())
    assert.equal(client.view(workers).machine.binding, undefined)
    assert.equal(client.exists, true)
  })

  test("many who look at once share what is read, and each sees what was there when it asked", async () => {
    const backend = new FilterBackend()
    const client = backend.client()
    await finished(backend, client.mutate(workers, configure("A")))
    const before = backend.log.watermarkRequests
    await finished(backend, Promise.all(Array.from({ length: 50 }, () => client.refresh())))
    assert.equal(backend.log.watermarkRequests - before, 2)
    // Asked for while an earlier look is under way, which may have seen less.
    const first = client.refresh()
    await finished(backend, backend.client().mutate(workers, revise(1, "B")))
    await finished(backend, Promise.all([first, client.refresh()]))
    assert.equal(client.view(workers).machine.newest, 2)
  })
})
