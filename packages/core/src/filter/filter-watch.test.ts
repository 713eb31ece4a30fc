import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { PermissionError } from "@millrace/contract"
import { filterTopic } from "./filter-log.ts"
import { refreshMs, sparseRefreshMs } from "./filter-watch.ts"
import { atLeast, Bench } from "./filtered-group.test-support.ts"

describe("looking for changes", () => {
  test("costs nothing to speak of where nobody has made a filter", async () => {
    const bench = new Bench()
    const consumer = await bench.open()
    assert.equal(bench.looks, 1)
    await bench.client.clock.advance(sparseRefreshMs - 1)
    assert.equal(bench.looks, 1)
    await bench.client.clock.advance(1)
    assert.equal(bench.looks, 2)
    await consumer.shutdown()
    await bench.client.clock.advance(10 * sparseRefreshMs)
    assert.equal(bench.looks, 2)
    assert.equal(bench.client.clock.timers, 0)
  })

  test("is one request each 2 s for all consumers of a client, and ends with the last of them", async () => {
    const bench = new Bench()
    bench.configure(atLeast(0))
    const consumer = await bench.open()
    const other = bench.client.context.filters.follow({ changed: () => {}, failed: () => {} })
    const before = bench.looks
    await bench.client.clock.advance(10 * refreshMs)
    assert.equal(bench.looks - before, 10)
    other()
    await bench.client.clock.advance(refreshMs)
    assert.equal(bench.looks - before, 11)
    await consumer.shutdown()
    await bench.client.clock.advance(10 * refreshMs)
    assert.equal(bench.looks - before, 11)
  })

  test("the first filter of a backend, once noticed, is followed as closely as any", async () => {
    const bench = new Bench()
    bench.put(0, 10)
    const consumer = await bench.open()
    bench.configure(atLeast(3))
    // Somebody else of this client looks.
    await bench.client.context.filters.log.refresh()
    assert.deepEqual(await bench.numbers(consumer, 1), [3])
    bench.replace(1, atLeast(6))
    await bench.noticed()
    assert.deepEqual(await bench.numbers(consumer, 1), [6])
    await consumer.shutdown()
  })

  test("what others of the client learn between a member's first look and its joining is not missed", async () => {
    const bench = new Bench()
    bench.put(0, 10)
    const { groups, context } = bench.client
    const join = groups.join.bind(groups)
    groups.join = async (...call) => {
      bench.configure(atLeast(7))
      await context.filters.log.refresh()
      return join(...call)
    }
    const consumer = await bench.open()
    assert.deepEqual(await bench.numbers(consumer, 3), [7, 8, 9])
    await consumer.shutdown()
  })

  test("followers that come and go while a look is under way leave one timer, and then none", async () => {
    const bench = new Bench()
    bench.configure(atLeast(0))
    const { filters } = bench.client.context
    await filters.log.refresh()
    let release = (): void => {}
    bench.client.log.beforeLocate = () => new Promise((resolve) => (release = resolve))
    const first = filters.follow({ changed: () => {}, failed: () => {} })
    await bench.client.clock.advance(refreshMs)
    first()
    const second = filters.follow({ changed: () => {}, failed: () => {} })
    assert.equal(bench.client.clock.timers, 1)
    bench.client.log.beforeLocate = async () => {}
    release()
    await bench.client.settle()
    assert.equal(bench.client.clock.timers, 1)
    second()
    assert.equal(bench.client.clock.timers, 0)
  })

  test("filters that may not be read keep a member from joining, unless it says that it takes everything", async () => {
    const bench = new Bench()
    bench.put(0, 2)
    const { log } = bench.client
    const watermarks = log.watermarks.bind(log)
    log.watermarks = async (places) => {
      const own = places.some(({ topic }) => topic === filterTopic.topic)
      return own ? places.map(() => new PermissionError("no describe")) : await watermarks(places)
    }
    await assert.rejects(bench.open(), (error) => error instanceof PermissionError && /applyFilter/.test(error.message))
    assert.equal(bench.client.groups.joins.length, 0)
    const consumer = await bench.open({ applyFilter: false })
    assert.deepEqual(await bench.numbers(consumer, 2), [0, 1])
    await consumer.shutdown()
    assert.equal(bench.client.clock.timers, 0)
  })

  test("a look that may not be had is told once; one that fails for now is not, and the filter stays in force", async () => {
    const bench = new Bench()
    bench.configure(atLeast(5))
    bench.put(0, 10)
    const consumer = await bench.open()
    const { log } = bench.client
    const watermarks = log.watermarks.bind(log)
    let refusal: Error | undefined = new PermissionError("not allowed to read the filters")
    log.watermarks = async (places) => {
      if (refusal !== undefined) throw refusal
      return await watermarks(places)
    }
    await bench.client.clock.advance(3 * refreshMs)
    assert.ok((await bench.failure(consumer)) instanceof PermissionError)
    assert.deepEqual(await bench.numbers(consumer, 1), [5])
    refusal = undefined
    bench.replace(1, atLeast(8))
    await bench.noticed()
    assert.deepEqual(await bench.numbers(consumer, 2), [8, 9])
    await consumer.shutdown()
  })
})
