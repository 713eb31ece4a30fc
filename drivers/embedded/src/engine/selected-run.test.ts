import assert from "node:assert/strict"
import { describe, it } from "node:test"
import {
  checkFilter,
  type EncodedBatch,
  errorFromWire,
  type Filter,
  Headers,
  HeaderValue,
  type MillraceError,
  type ReadLimits,
  type TopicDescription,
} from "@millrace/contract"
import fc from "fast-check"
import { encodedBatch } from "../reader.ts"
import { EngineFixture, log } from "./engine.test-support.ts"
import type { PollAnswer } from "./readers.ts"

const limits: ReadLimits = { maxRecords: 1000, maxBytes: 1 << 20, minRecords: 1, maxWaitMs: 1000 }
const even: Filter = { where: { path: "n", op: "in", value: [0, 2, 4, 6, 8] } }

interface Part {
  readonly partition: number
  readonly offsets: readonly bigint[]
  readonly batches: readonly EncodedBatch[]
  readonly nextOffset: bigint
}

/** A reader with one filter over all partitions of a topic. */
class SelectedReader {
  readonly #store: EngineFixture
  readonly #topic: TopicDescription
  readonly #filters: readonly unknown[]

  constructor(
    store: EngineFixture,
    topic: TopicDescription,
    filter: Filter,
    from: Readonly<Record<number, bigint>> = { 0: 0n },
  ) {
    this.#store = store
    this.#topic = topic
    this.#filters = [{ ...log, filter: checkFilter(filter) }]
    this.set(from)
  }

  set(from: Readonly<Record<number, bigint>>, slots: readonly number[] = Object.keys(from).map(Number)): void {
    const { stream, topic, lineage } = this.#topic
    const fresh = Object.entries(from).map(([partition, offset]) => ({
      slot: Number(partition),
      stream,
      topic,
      partition: Number(partition),
      offset,
      lineage,
    }))
    this.#store.call("reader.set", { reader: 1, slots, fresh, filters: this.#filters })
  }

  ask(changed: Partial<ReadLimits> = {}): number {
    return this.#store.ask({ name: "reader.next", args: { reader: 1, limits: { ...limits, ...changed } } })[0] as number
  }

  answered(id: number): boolean {
    return this.#store.replies.has(id)
  }

  parts(id: number): (Part | MillraceError)[] {
    const { reads, buffers } = this.#store.answer<PollAnswer>(id)
    return reads.map((read) => {
      if (read.error !== undefined) return errorFromWire(read.error)
      const batches = read.batches.map((batch) => encodedBatch(batch, buffers))
      const offsets = batches.flatMap((batch) => Array.from({ length: batch.count }, (_, i) => batch.offset(i)))
      return { partition: read.slot, offsets, batches, nextOffset: read.nextOffset }
    })
  }

  /** The one part of a poll that answers at once. */
  poll(changed: Partial<ReadLimits> = {}): Part {
    const [part, ...others] = this.parts(this.ask({ maxWaitMs: 0, ...changed }))
    assert.equal(others.length, 0)
    assert.ok(part !== undefined && !(part instanceof Error), String(part))
    return part
  }
}

function json(value: unknown): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value))
}

function numbers(...list: readonly number[]): { readonly payload: Uint8Array }[] {
  return list.map((n) => ({ payload: json({ n }) }))
}

describe("a poll through a filter", () => {
  it("gives what is selected with offsets, keys, headers, ids and times as they are, however much of a batch it is", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const record = (n: number): object => ({
      payload: json({ n }),
      ...(n % 3 === 0 ? { key: json(n) } : {}),
      ...(n % 4 === 0 ? { headers: Headers.from({ n: HeaderValue.int32(n) }), id: 1000n + BigInt(n) } : {}),
      ...(n === 6 ? { timestampMicros: 77n } : {}),
    })
    for (const batch of [[1, 3], [0, 2, 4], [1, 2, 6, 7, 8], [5]]) store.append(store.batch(topic, batch.map(record)))
    const whole = store.read(topic, 0n).batches
    const { batches, nextOffset } = new SelectedReader(store, topic, even).poll()
    assert.equal(nextOffset, 11n)
    const view = (list: readonly EncodedBatch[]): unknown[] =>
      list.flatMap((batch) =>
        Array.from({ length: batch.count }, (_, i) => ({
          offset: batch.offset(i),
          payload: Buffer.from(batch.payload(i) ?? []).toString(),
          key: batch.key(i),
          headers: JSON.stringify(batch.headers(i)),
          id: batch.id(i),
          times: [batch.timestampMicros(i), batch.originTimestampMicros(i)],
        })),
      )
    const selected = view(whole).filter((seen) =>
      [0, 2, 4, 6, 8].includes(JSON.parse((seen as { payload: string }).payload).n),
    )
    assert.equal(selected.length, 6)
    assert.deepEqual(view(batches), selected)
    assert.deepEqual(
      batches.map(({ firstOffset, lastOffset, count }) => [firstOffset, lastOffset, count]),
      [
        [2n, 4n, 3],
        [6n, 9n, 3],
      ],
    )
    assert.deepEqual(
      [0n, 6n, 7n, 8n, 9n, 10n].map((offset) => batches[1]?.indexOf(offset)),
      [0, 0, 1, 2, 2, 3],
    )
  })

  it("sends only the bytes of what is selected, and a run that is selected in full without a copy", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    for (let i = 0; i < 10; i++)
      store.append(store.batch(topic, numbers(...Array.from({ length: 100 }, (_, j) => (i === 3 && j === 5 ? 2 : 1)))))
    const reader = new SelectedReader(store, topic, even)
    const { buffers } = store.answer<PollAnswer>(reader.ask())
    assert.ok(buffers.reduce((sum, buffer) => sum + buffer.byteLength, 0) < 100)
    store.call("reader.close", 1)
    const all = new SelectedReader(store, topic, { where: { path: "n", op: "present" } })
    const { batches } = all.poll()
    assert.deepEqual(
      batches.map(({ count }) => count),
      Array(10).fill(100),
    )
    assert.equal(new Set(batches.map((batch) => batch.payload(0)?.buffer)).size, 1)
  })

  it("waits until something is selected, and then tells how far it looked", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const reader = new SelectedReader(store, topic, even)
    const id = reader.ask()
    store.append(store.batch(topic, numbers(1, 3)))
    store.append(store.batch(topic, numbers(5)))
    assert.equal(reader.answered(id), false)
    store.append(store.batch(topic, numbers(7, 8, 9)))
    assert.deepEqual(
      reader.parts(id).map((part) => ("offsets" in part ? [part.offsets, part.nextOffset] : part)),
      [[[4n], 6n]],
    )
  })

  it("tells its progress when the wait is over, though nothing was selected, and tells it once", async () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ partitions: 2 })
    const reader = new SelectedReader(store, topic, even, { 0: 0n, 1: 0n })
    const id = reader.ask()
    store.append(store.batch(topic, numbers(1, 3)))
    await store.clock.advance(999)
    assert.equal(reader.answered(id), false)
    await store.clock.advance(1)
    assert.deepEqual(reader.parts(id), [{ partition: 0, offsets: [], batches: [], nextOffset: 2n }])
    const again = reader.ask()
    await store.clock.advance(1000)
    assert.deepEqual(reader.parts(again), [])
  })

  it("examines a bounded part of the log in a turn, and tells how far it came", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const payload = json({ n: 1, pad: "x".repeat(1000) })
    for (let i = 0; i < 30; i++)
      store.append(
        store.batch(
          topic,
          Array.from({ length: 100 }, () => ({ payload })),
        ),
      )
    const reader = new SelectedReader(store, topic, even)
    const steps: bigint[] = []
    for (let next = 0n; next < 3000n; ) {
      // There is more to examine than a turn may: it does not wait.
      const part = reader.poll({ maxWaitMs: next < 1000n ? 1000 : 0 })
      assert.deepEqual(part.offsets, [])
      assert.ok(part.nextOffset - next <= 1100n && part.nextOffset > next)
      next = part.nextOffset
      steps.push(next)
    }
    assert.ok(steps.length >= 3)
  })

  it("examines a batch of any number of records in turns", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const payload = json(1)
    store.append(
      store.batch(
        topic,
        Array.from({ length: 250_001 }, (_, i) => (i === 250_000 ? { payload: json({ n: 2 }) } : { payload })),
      ),
    )
    const reader = new SelectedReader(store, topic, even)
    assert.deepEqual([reader.poll().nextOffset, reader.poll().nextOffset], [100_000n, 200_000n])
    assert.deepEqual(reader.poll().offsets, [250_000n])
  })

  it("examines less in a turn where patterns cost more", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const payload = json({ n: "ab".repeat(10_000) })
    store.append(
      store.batch(
        topic,
        Array.from({ length: 10 }, () => ({ payload })),
      ),
    )
    const reader = new SelectedReader(store, topic, { where: { path: "n", op: "regex", value: "a[ab]{500}c" } })
    // 10 million a record: two are more than a turn may.
    assert.deepEqual([reader.poll().nextOffset, reader.poll().nextOffset], [2n, 4n])
  })

  it("gives at most maxRecords, in the middle of a batch too, and goes on behind them", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.append(store.batch(topic, numbers(0, 1, 2, 3, 4, 5, 6, 7, 8)))
    store.append(store.batch(topic, numbers(1, 2)))
    const reader = new SelectedReader(store, topic, even)
    const polls = [1, 2, 3].map((maxRecords) => {
      const { offsets, nextOffset } = reader.poll({ maxRecords })
      return [offsets, nextOffset]
    })
    assert.deepEqual(polls, [
      [[0n], 1n],
      [[2n, 4n], 5n],
      [[6n, 8n, 10n], 11n],
    ])
  })

  it("begins in the middle of a batch", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.append(store.batch(topic, numbers(0, 2, 4)))
    assert.deepEqual(new SelectedReader(store, topic, even, { 0: 1n }).poll().offsets, [1n, 2n])
  })

  it("stops before a record that does not decode, behind what comes before it, and goes on where it is set", () => {
    using store = new EngineFixture()
    const topic = store.createTopic({ partitions: 2 })
    store.append(store.batch(topic, [...numbers(2, 1), { payload: json("x").subarray(1) }, ...numbers(4)]))
    store.append(store.batch(topic, numbers(6), { partition: 1 }))
    const reader = new SelectedReader(store, topic, even, { 0: 0n, 1: 0n })
    const first = reader.parts(reader.ask())
    assert.deepEqual(
      first.map((part) => ("offsets" in part ? [part.partition, part.offsets, part.nextOffset] : part)),
      [
        [0, [0n], 2n],
        [1, [0n], 1n],
      ],
    )
    const [failure, ...others] = reader.parts(reader.ask())
    assert.equal(others.length, 0)
    assert.ok(failure instanceof Error)
    assert.equal(failure.kind, "decode")
    assert.deepEqual(failure.context, { ...log, partition: 0, offset: 2n, fault: "malformed" })
    assert.match(
      failure.message,
      /^the filter stops before offset 2 of partition 0 of topic s\/log: the payload is not json: /,
    )
    // The failed partition is left alone, the other goes on.
    store.append(store.batch(topic, numbers(8), { partition: 1 }))
    assert.deepEqual(reader.poll().offsets, [1n])
    reader.set({ 0: 3n }, [0, 1])
    assert.deepEqual(reader.poll().offsets, [3n])
  })

  it("tells progress before a stop, though nothing was selected before it", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.append(store.batch(topic, [...numbers(1), { payload: new Uint8Array() }]))
    const reader = new SelectedReader(store, topic, even)
    const part = reader.poll({ maxWaitMs: 1000 })
    assert.deepEqual([part.offsets, part.nextOffset], [[], 1n])
    const [failure] = reader.parts(reader.ask())
    assert.ok(failure instanceof Error && failure.kind === "decode")
  })

  it("passes or drops it where the filter says so", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.append(store.batch(topic, [...numbers(1), { payload: new Uint8Array() }, ...numbers(2)]))
    const offsets = (fault: "pass" | "drop"): readonly bigint[] => {
      const reader = new SelectedReader(store, topic, { ...even, fault })
      const part = reader.poll()
      store.call("reader.close", 1)
      return part.offsets
    }
    assert.deepEqual(offsets("drop"), [2n])
    assert.deepEqual(offsets("pass"), [1n, 2n])
  })

  it("selects what a reader without a filter gives and the filter takes, whatever the batches, limits and start", () => {
    using store = new EngineFixture()
    const batches = fc.array(fc.array(fc.nat({ max: 9 }), { minLength: 1, maxLength: 12 }), {
      minLength: 1,
      maxLength: 12,
    })
    const polls = fc.array(
      fc.record({ maxRecords: fc.integer({ min: 1, max: 8 }), maxBytes: fc.integer({ min: 1, max: 400 }) }),
      { minLength: 1, maxLength: 4 },
    )
    let round = 0
    fc.assert(
      fc.property(batches, polls, fc.nat({ max: 20 }), (contents, cycle, start) => {
        const name = { stream: "s", topic: `t${round++}` }
        const topic = store.createTopic({}, name)
        for (const list of contents) store.append(store.batch(topic, numbers(...list)))
        const all = contents.flat()
        const from = BigInt(Math.min(start, all.length))
        const { stream, topic: text, lineage } = topic
        const position = { slot: 1, stream, topic: text, partition: 0, offset: from, lineage }
        store.call("reader.set", {
          reader: 9,
          slots: [1],
          fresh: [position],
          filters: [{ ...name, filter: checkFilter(even) }],
        })
        const seen: bigint[] = []
        for (let next = from, i = 0; next < BigInt(all.length); i++) {
          const changed = cycle[i % cycle.length]
          const [id] = store.ask({
            name: "reader.next",
            args: { reader: 9, limits: { ...limits, ...changed, maxWaitMs: 0 } },
          })
          const got = store.got(id as number)
          assert.ok(got.nextOffset > next, "no progress")
          const offsets = got.batches.flatMap((batch) =>
            Array.from({ length: batch.count }, (_, index) => batch.offset(index)),
          )
          assert.ok(offsets.length <= (changed?.maxRecords ?? 0))
          for (const offset of offsets) assert.ok(offset >= next && offset < got.nextOffset)
          seen.push(...offsets)
          next = got.nextOffset
        }
        store.call("reader.close", 9)
        const wanted = all.map((n, i) => [n, BigInt(i)] as const).filter(([n, offset]) => n % 2 === 0 && offset >= from)
        assert.deepEqual(
          seen,
          wanted.map(([, offset]) => offset),
        )
      }),
      { numRuns: 60 },
    )
  })

  it("reads a topic without a filter as it is, beside one with", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    const other = store.createTopic({}, { stream: "s", topic: "other" })
    store.append(store.batch(topic, numbers(1, 2)))
    store.append(store.batch(other, numbers(1, 2)))
    const fresh = [topic, other].map(({ stream, topic: text, lineage }, i) => ({
      slot: i,
      stream,
      topic: text,
      partition: 0,
      offset: 0n,
      lineage,
    }))
    store.call("reader.set", { reader: 1, slots: [0, 1], fresh, filters: [{ ...log, filter: checkFilter(even) }] })
    const { reads } = store.call<PollAnswer>("reader.next", { reader: 1, limits })
    assert.deepEqual(
      reads.map((read) => ("batches" in read ? read.batches.map(({ picked }) => picked && [...picked]) : read)),
      [[[1]], [undefined]],
    )
  })
})
