import assert from "node:assert/strict"
import { describe, it } from "node:test"
import {
  ClosedError,
  CorruptionError,
  checkFilter,
  type EncodedBatch,
  type Filter,
  HistoryChangedError,
  type LogReader,
  type PartitionRead,
  type ReaderOptions,
  type ReadLimits,
  type ReadPosition,
  type Session,
} from "@millrace/contract"
import { VirtualClock } from "@millrace/runtime"
import { FakeBatch } from "../consumer/fake-log.test-support.ts"
import { fakeManifest } from "../consumer/fake-session.test-support.ts"
import { openFilteredReader } from "./filtered-reader.ts"

const utf8 = new TextEncoder()
const place = { stream: "s", topic: "t" }
const even: Filter = { where: { path: "n", op: "in", value: [0, 2, 4, 6, 8] } }
const limits: ReadLimits = { maxRecords: 1000, maxBytes: 64 << 20, minRecords: 1, maxWaitMs: 100 }

/** A reader of the driver's that answers what a test says, when it says so. */
class ScriptedReader implements LogReader {
  readonly sets: (readonly ReadPosition[])[] = []
  readonly asked: ReadLimits[] = []
  closed = false
  #answer: ((reads: PartitionRead[] | Error) => void) | undefined

  set(positions: readonly ReadPosition[]): void {
    this.sets.push(positions)
  }

  next(asked: ReadLimits): Promise<PartitionRead[]> {
    if (this.closed) throw new ClosedError("closed")
    this.asked.push(asked)
    return new Promise((resolve, reject) => {
      this.#answer = (reads) => (reads instanceof Error ? reject(reads) : resolve(reads))
    })
  }

  answer(...reads: PartitionRead[]): void {
    this.#answer?.(reads)
    this.#answer = undefined
  }

  fail(error: Error): void {
    this.#answer?.(error)
  }

  async close(): Promise<void> {
    this.closed = true
    this.answer()
  }

  /** Partition and offset of the last positions. */
  get standing(): [number, bigint][] {
    return (this.sets.at(-1) ?? []).map(({ partition, offset }) => [partition, offset])
  }
}

function open(
  filter: Filter = even,
  filters = [{ ...place, filter: checkFilter(filter) }],
): { readonly inner: ScriptedReader; readonly clock: VirtualClock; readonly reader: LogReader } {
  const inner = new ScriptedReader()
  const log = { openReader: () => inner } as unknown as Session["log"]
  const clock = new VirtualClock()
  const session = { log, manifest: fakeManifest }
  return { inner, clock, reader: openFilteredReader(session, { isolation: "committed", filters }, clock) }
}

function position(partition: number, offset: bigint, topic: string = "t"): ReadPosition {
  return { stream: "s", topic, partition, offset, lineage: "1" }
}

/** A batch of JSON numbers; `undefined` is a record that does not decode. */
function batch(firstOffset: bigint, ...numbers: readonly (number | undefined)[]): EncodedBatch {
  return new FakeBatch(
    firstOffset,
    numbers.map((n) => ({ payload: utf8.encode(n === undefined ? "{" : JSON.stringify({ n })) })),
  )
}

function read(
  partition: number,
  batches: readonly EncodedBatch[],
  nextOffset: bigint,
  topic: string = "t",
): PartitionRead {
  return { stream: "s", topic, partition, batches, nextOffset, head: 100n, lineage: "1" }
}

/** Partition, offsets that were selected, next offset; or partition and kind of the error. */
function seen(reads: readonly PartitionRead[]): unknown[] {
  return reads.map((part) => {
    if (part.error !== undefined) return [part.partition, part.error.kind, part.error.context.offset]
    const offsets = part.batches.flatMap((found) =>
      Array.from({ length: found.count }, (_, i) => Number(found.offset(i))),
    )
    return [part.partition, offsets, Number(part.nextOffset)]
  })
}

describe("a filtered reader of the client", () => {
  it("is the driver's own where there is no filter, or where the backend evaluates it", () => {
    const given: ReaderOptions[] = []
    const inner = new ScriptedReader()
    const log = {
      openReader: (options: ReaderOptions) => {
        given.push(options)
        return inner
      },
    } as unknown as Session["log"]
    const filters = [{ ...place, filter: checkFilter(even) }]
    const clock = new VirtualClock()
    const server = { ...fakeManifest, read: { ...fakeManifest.read, filters: "server" as const } }
    assert.equal(
      openFilteredReader({ log, manifest: fakeManifest }, { isolation: "committed", filters: [] }, clock),
      inner,
    )
    assert.equal(openFilteredReader({ log, manifest: server }, { isolation: "uncommitted", filters }, clock), inner)
    assert.notEqual(
      openFilteredReader({ log, manifest: fakeManifest }, { isolation: "committed", filters }, clock),
      inner,
    )
    assert.deepEqual(given, [
      { isolation: "committed" },
      { isolation: "uncommitted", filters },
      { isolation: "committed" },
    ])
  })

  it("leaves out what is not selected, keeps a batch that is selected in full, and moves over all", async () => {
    const { inner, reader } = open()
    reader.set([position(0, 1n)])
    const next = reader.next(limits)
    const full = batch(4n, 6, 8)
    inner.answer(read(0, [batch(0n, 2, 1, 2, 3), full, batch(6n, 1)], 9n))
    const reads = await next
    assert.deepEqual(seen(reads), [[0, [2, 4, 5], 9]])
    assert.ok(reads[0]?.error === undefined && reads[0]?.batches[1] === full)
    assert.equal(inner.sets.length, 1)
  })

  it("answers a moved offset where nothing is selected", async () => {
    const { inner, reader } = open()
    reader.set([position(0, 0n)])
    const next = reader.next(limits)
    inner.answer(read(0, [batch(0n, 1, 3)], 2n))
    assert.deepEqual(seen(await next), [[0, [], 2]])
  })

  it("asks the driver for a bounded part of the log", () => {
    const { inner, reader } = open()
    reader.set([position(0, 0n)])
    reader.next({ maxRecords: 1_000_000, maxBytes: 64 << 20, minRecords: 500_000, maxWaitMs: 7 }).catch(() => {})
    assert.deepEqual(inner.asked, [{ maxRecords: 100_000, maxBytes: 1 << 20, minRecords: 100_000, maxWaitMs: 7 }])
  })

  it("stops before a record that does not decode: first what is before it, then the error, and nothing more of that partition", async () => {
    const { inner, reader } = open()
    reader.set([position(0, 0n), position(1, 0n)])
    let next = reader.next(limits)
    inner.answer(read(0, [batch(0n, 2), batch(1n, 4, undefined, 6), batch(4n, 8)], 5n), read(1, [batch(0n, 2)], 1n))
    assert.deepEqual(seen(await next), [
      [0, [0, 1], 2],
      [1, [0], 1],
    ])
    assert.deepEqual(inner.standing, [[1, 1n]])
    // A change of other partitions leaves the error where it is.
    reader.set([position(0, 2n), position(1, 1n)])
    assert.deepEqual(inner.standing, [[1, 1n]])
    assert.deepEqual(seen(await reader.next(limits)), [[0, "decode", 2n]])
    next = reader.next(limits)
    inner.answer(read(0, [batch(4n, 8)], 5n), read(1, [batch(1n, 4)], 2n))
    assert.deepEqual(seen(await next), [[1, [1], 2]])
    reader.set([position(0, 3n), position(1, 2n)])
    assert.deepEqual(inner.standing, [
      [0, 3n],
      [1, 2n],
    ])
    next = reader.next(limits)
    inner.answer(read(0, [batch(1n, 4, undefined, 6)], 4n))
    assert.deepEqual(seen(await next), [[0, [3], 4]])
  })

  it("forgets an error that was not told when the partition is set elsewhere or taken away", async () => {
    const { inner, reader } = open()
    reader.set([position(0, 0n)])
    let next = reader.next(limits)
    inner.answer(read(0, [batch(0n, 2, undefined, 4)], 3n))
    assert.deepEqual(seen(await next), [[0, [0], 1]])
    reader.set([position(0, 2n)])
    next = reader.next(limits)
    inner.answer(read(0, [batch(0n, 2, undefined, 4)], 3n))
    assert.deepEqual(seen(await next), [[0, [2], 3]])
    reader.set([])
    assert.deepEqual(inner.standing, [])
  })

  it("takes damage of a batch for an error of its partition, in its place", async () => {
    const { inner, reader } = open()
    reader.set([position(0, 0n)])
    const damaged = batch(0n, 2, 4, 6)
    const payload = damaged.payload.bind(damaged)
    damaged.payload = (index) => {
      if (index === 1) throw new CorruptionError("torn", { context: { batch: "a" } })
      return payload(index)
    }
    const next = reader.next(limits)
    inner.answer(read(0, [damaged], 3n))
    assert.deepEqual(seen(await next), [[0, [0], 1]])
    const [failed] = await reader.next(limits)
    assert.ok(failed?.error instanceof CorruptionError)
    assert.deepEqual(failed.error.context, { batch: "a", ...place, partition: 0, offset: 1n })
  })

  it("passes the driver's errors on, and reads a failed partition again once it is set", async () => {
    const { inner, reader } = open()
    reader.set([position(0, 5n)])
    const next = reader.next(limits)
    inner.answer({ ...place, partition: 0, error: new HistoryChangedError("new") })
    assert.deepEqual(seen(await next), [[0, "history-changed", undefined]])
    reader.set([position(0, 5n)])
    assert.deepEqual(inner.standing, [[0, 5n]])
    const lost = reader.next(limits)
    inner.fail(new CorruptionError("gone"))
    await assert.rejects(lost, { kind: "corruption" })
  })

  it("does not take an answer of an older position for one of the new", async () => {
    const { inner, reader } = open()
    reader.set([position(0, 50n)])
    let next = reader.next(limits)
    reader.set([position(0, 10n)])
    inner.answer(read(0, [batch(50n, 2, undefined)], 52n))
    assert.deepEqual(await next, [])
    assert.deepEqual(inner.standing, [[0, 10n]])
    next = reader.next(limits)
    inner.answer(read(0, [batch(12n, 2)], 13n))
    assert.deepEqual(seen(await next), [[0, [12], 13]])
  })

  it("believes an answer that covers the new position", async () => {
    const { inner, reader } = open()
    reader.set([position(0, 0n)])
    const next = reader.next(limits)
    reader.set([position(0, 2n)])
    inner.answer(read(0, [batch(0n, 2, 4, 6, 8)], 4n))
    assert.deepEqual(seen(await next), [[0, [2, 3], 4]])
  })

  it("reads a topic without a filter as it is", async () => {
    const { inner, reader } = open()
    reader.set([position(0, 0n), position(0, 0n, "other")])
    const next = reader.next(limits)
    const [own, other] = [read(0, [batch(0n, 1)], 1n), read(0, [batch(0n, undefined)], 1n, "other")]
    inner.answer(own, other)
    const reads = await next
    assert.deepEqual(seen(reads), [
      [0, [], 1],
      [0, [0], 1],
    ])
    assert.equal(reads[1], other)
  })

  it("closes the driver's reader, and with it what waits", async () => {
    const { inner, reader } = open()
    reader.set([position(0, 0n)])
    const next = reader.next(limits)
    await reader.close()
    assert.equal(inner.closed, true)
    assert.deepEqual(await next, [])
    await assert.rejects(reader.next(limits), { kind: "closed" })
  })
})

describe("work beyond that of a turn", () => {
  /** Some 400 steps a character. */
  const costly: Filter = { where: { path: "t", op: "regex", value: "^.{400}x|z$" } }
  /** More than half of the work of a turn. */
  const heavy = "q".repeat(22_000)

  function texts(firstOffset: bigint, ...all: readonly string[]): EncodedBatch {
    return new FakeBatch(
      firstOffset,
      all.map((t) => ({ payload: utf8.encode(JSON.stringify({ t })) })),
    )
  }

  const answered = [
    texts(0n, "z", `${heavy}z`, heavy, `${heavy}z`),
    texts(4n, heavy, "z"),
    texts(6n, "z", "z"),
  ] as const

  async function polled(of: ReturnType<typeof open>): Promise<unknown[]> {
    const next = of.reader.next(limits)
    await of.clock.advance(0)
    return seen(await next)
  }

  async function begun(): Promise<ReturnType<typeof open>> {
    const made = open(costly)
    made.reader.set([position(0, 0n), position(1, 0n)])
    const next = made.reader.next(limits)
    made.inner.answer(read(0, answered, 9n), read(1, [texts(0n, "z")], 1n))
    assert.deepEqual(seen(await next), [[0, [0, 1], 3]])
    return made
  }

  it("is done in later turns, without asking the driver, and nothing is left out or comes twice", async () => {
    const made = await begun()
    const reads = []
    for (let i = 0; i < 3; i++) {
      // What the owner was given is where it stands.
      made.reader.set([position(0, [3n, 5n, 9n][i] as bigint), position(1, i < 2 ? 0n : 1n)])
      if (i < 2) reads.push(...(await polled(made)))
    }
    assert.deepEqual(reads, [
      [0, [3], 5],
      [0, [5, 6, 7], 9],
      [1, [0], 1],
    ])
    assert.equal(made.inner.asked.length, 1)
    assert.deepEqual(made.inner.standing, [
      [0, 9n],
      [1, 1n],
    ])
  })

  it("is given up where the partition is set elsewhere", async () => {
    const made = await begun()
    made.reader.set([position(0, 1n), position(1, 0n)])
    assert.deepEqual(made.inner.standing, [
      [0, 1n],
      [1, 1n],
    ])
    assert.deepEqual(await polled(made), [[1, [0], 1]])
    const next = made.reader.next(limits)
    made.inner.answer(read(0, [answered[2]], 9n))
    assert.deepEqual(seen(await next), [[0, [6, 7], 9]])
  })

  it("ends with the reader, and leaves no timer", async () => {
    const made = await begun()
    const next = made.reader.next(limits)
    await made.reader.close()
    assert.deepEqual(await next, [])
    await assert.rejects(made.reader.next(limits), { kind: "closed" })
  })
})

describe("a batch that contradicts itself in its offsets", () => {
  it("fails its partition in its place, and loses nothing of others", async () => {
    const { inner, reader } = open()
    reader.set([position(0, 0n), position(1, 0n)])
    const bad = batch(1n, 2, 4, undefined)
    bad.offset = () => {
      throw new CorruptionError("torn")
    }
    let next = reader.next(limits)
    inner.answer(read(1, [batch(0n, 2)], 1n), read(0, [batch(0n, 2), bad], 4n))
    assert.deepEqual(seen(await next), [
      [1, [0], 1],
      [0, [0], 1],
    ])
    next = reader.next(limits)
    assert.deepEqual(seen(await next), [[0, "corruption", 1n]])
  })
})

describe("a batch of selected records", () => {
  it("has the records at their offsets, and finds them by offset", async () => {
    const { inner, reader } = open()
    reader.set([position(0, 0n)])
    const next = reader.next(limits)
    inner.answer(read(0, [batch(10n, 1, 2, 3, 4, 5, 7, 8, 9)], 18n))
    const [part] = await next
    assert.ok(part !== undefined && part.error === undefined)
    const [picked] = part.batches
    assert.ok(picked !== undefined)
    assert.deepEqual([picked.count, picked.firstOffset, picked.lastOffset], [3, 11n, 16n])
    assert.deepEqual(
      [0n, 11n, 12n, 13n, 14n, 16n, 17n, 99n].map((offset) => picked.indexOf(offset)),
      [0, 0, 1, 1, 2, 2, 3, 3],
    )
    assert.deepEqual(
      [0, 1, 2].map((i) => new TextDecoder().decode(picked.payload(i) ?? undefined)),
      ['{"n":2}', '{"n":4}', '{"n":8}'],
    )
    assert.throws(() => picked.payload(3), RangeError)
  })
})
