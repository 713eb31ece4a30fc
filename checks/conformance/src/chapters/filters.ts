/** Chapter: reading through filters, evaluated next to the log where the backend can, and in the client, with the same outcome. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  checkFilter,
  compileFilter,
  type Filter,
  filterText,
  type LogReader,
  type MillraceError,
  type ReadLimits,
  type Session,
  type TopicDescription,
} from "@millrace/contract"
import { openFilteredReader } from "@millrace/core"
import { systemClock } from "@millrace/runtime"
import { settlesWithin } from "../rig/deadline.ts"
import { brokenRecord, filterCases, filterRecords } from "../rig/filter-cases.ts"
import { type Draft, wire } from "../rig/records.ts"
import { at, type Rig } from "../rig/rig.ts"

const limits: ReadLimits = { maxRecords: 10_000, maxBytes: 8 << 20, minRecords: 1, maxWaitMs: 300 }
const mostPolls = 50

type ReadingSession = Pick<Session, "manifest" | "log">

interface Way {
  readonly name: string
  readonly session: (rig: Rig) => ReadingSession
  /** Why it is not there on this backend. */
  readonly lacks?: (rig: Rig) => string | false
}

const ways: readonly Way[] = [
  {
    name: "next to the log",
    session: (rig) => rig.session,
    lacks: (rig) =>
      rig.manifest.read.filters !== "server" && "this backend evaluates no filters: they run in the client",
  },
  {
    name: "in the client",
    session: ({ session }) => ({
      log: session.log,
      manifest: { ...session.manifest, read: { ...session.manifest.read, filters: "client" } },
    }),
  },
]

/** A reader of one partition through a filter, with what it gave. */
class FilteredTail {
  readonly reader: LogReader
  readonly offsets: bigint[] = []
  error: MillraceError | undefined
  next: bigint

  constructor(session: ReadingSession, topic: TopicDescription, filter: Filter, from: bigint = 0n) {
    const { stream, topic: name } = topic
    const filters = [{ stream, topic: name, filter: checkFilter(filter) }]
    this.reader = openFilteredReader(session, { isolation: "committed", filters }, systemClock)
    this.next = from
    this.set(topic, from)
  }

  set(topic: TopicDescription, offset: bigint): void {
    this.next = offset
    this.error = undefined
    this.reader.set([{ ...at(topic, 0), offset, lineage: topic.lineage }])
  }

  async poll(changed: Partial<ReadLimits> = {}): Promise<void> {
    const reads = await settlesWithin("LogReader.next", this.reader.next({ ...limits, ...changed }))
    for (const read of reads) {
      if (read.error !== undefined) {
        this.error = read.error
        continue
      }
      for (const batch of read.batches) {
        for (let index = batch.indexOf(this.next); index < batch.count; index++) this.offsets.push(batch.offset(index))
      }
      assert.ok(read.nextOffset >= this.next)
      this.next = read.nextOffset
    }
  }

  async until(done: () => boolean): Promise<void> {
    for (let poll = 0; poll < mostPolls && !done(); poll++) await this.poll()
    assert.ok(done(), `not there after ${mostPolls} polls: at ${this.next}, ${this.offsets.length} records`)
  }

  close(): Promise<void> {
    return this.reader.close()
  }
}

export function filtersChapter(rig: Rig): void {
  describe("filters", () => {
    const names = Object.keys(filterRecords)
    const drafts = Object.values(filterRecords)

    test("the table of filters is what the evaluator makes of single records", () => {
      for (const { filter, selects } of filterCases) {
        const program = compileFilter(checkFilter(filter))
        const selected = names.filter(
          (name) => program.verdict(wire(filterRecords[name] as Draft)).judgement === "selected",
        )
        assert.deepEqual(selected, selects, filterText(checkFilter(filter)))
      }
    })

    for (const way of ways) {
      test(`filters select the same records ${way.name}, and progress covers all that were examined`, async (t) => {
        const lacks = way.lacks?.(rig)
        if (lacks) return t.skip(lacks)
        const topic = await rig.topic()
        // Several batches, so that some are selected in full, some in part and some not at all.
        for (const part of [drafts.slice(0, 3), drafts.slice(3, 4), drafts.slice(4, 9), drafts.slice(9)])
          await rig.append(topic, 0, part)
        const { end } = await rig.watermarks(topic, 0)
        const offsets = (await rig.readAll(topic, 0)).map(({ offset }) => offset)
        assert.equal(offsets.length, names.length)
        for (const { filter, selects } of filterCases) {
          const tail = new FilteredTail(way.session(rig), topic, filter)
          await tail.until(() => tail.next >= end)
          await tail.close()
          const selected = tail.offsets.map((offset) => names[offsets.indexOf(offset)])
          assert.deepEqual([selected, tail.error], [selects, undefined], filterText(checkFilter(filter)))
        }
      })

      test(`a record that does not decode stops, passes or is dropped ${way.name}, as the filter says`, async (t) => {
        const lacks = way.lacks?.(rig)
        if (lacks) return t.skip(lacks)
        const topic = await rig.topic()
        const order = filterRecords.declared as Draft
        await rig.append(topic, 0, [order, filterRecords.nothing as Draft, brokenRecord, order])
        await rig.append(topic, 0, [order])
        const offsets = (await rig.readAll(topic, 0)).map(({ offset }) => offset)
        const [first, , broken, third, last] = offsets as [bigint, bigint, bigint, bigint, bigint]
        const { end } = await rig.watermarks(topic, 0)
        const filter: Filter = { where: { path: "kind", op: "eq", value: "order" } }
        for (const [fault, selected] of [
          ["pass", [first, broken, third, last]],
          ["drop", [first, third, last]],
        ] as const) {
          const tail = new FilteredTail(way.session(rig), topic, { ...filter, fault })
          await tail.until(() => tail.next >= end)
          await tail.close()
          assert.deepEqual(tail.offsets, selected, fault)
        }
        const tail = new FilteredTail(way.session(rig), topic, filter)
        await tail.until(() => tail.error !== undefined)
        assert.deepEqual([tail.offsets, tail.next], [[first], broken])
        assert.equal(tail.error?.kind, "decode")
        assert.deepEqual([tail.error?.context.offset, tail.error?.context.fault], [broken, "malformed"])
        assert.equal(tail.error?.outcome, "rejected")
        await tail.poll({ maxWaitMs: 0 })
        assert.deepEqual(tail.offsets, [first], "it is not read on before it is set")
        tail.set(topic, broken + 1n)
        await tail.until(() => tail.next >= end)
        assert.deepEqual(tail.offsets, [first, third, last])
        await tail.close()
      })

      test(`a reader at the end hears of what is selected ${way.name}, and of progress where nothing is`, async (t) => {
        const lacks = way.lacks?.(rig)
        if (lacks) return t.skip(lacks)
        const topic = await rig.topic()
        const tail = new FilteredTail(way.session(rig), topic, { where: { header: "type", op: "eq", value: "list" } })
        for (let round = 0; round < 3; round++) await rig.append(topic, 0, [filterRecords.small as Draft])
        const { end } = await rig.watermarks(topic, 0)
        await tail.until(() => tail.next >= end)
        assert.deepEqual(tail.offsets, [])
        const waiting = tail.until(() => tail.offsets.length > 0)
        await rig.append(topic, 0, [filterRecords.small as Draft, filterRecords.list as Draft])
        await waiting
        assert.equal(tail.offsets.length, 1)
        assert.ok(tail.offsets.every((offset) => offset >= end))
        await tail.close()
      })
    }
  })
}
