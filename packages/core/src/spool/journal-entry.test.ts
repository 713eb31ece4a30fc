import assert from "node:assert/strict"
import { test } from "node:test"
import { CorruptionError, MillraceError, StorageError } from "@millrace/contract"
import fc from "fast-check"
import { JournalWriter } from "./journal-bytes.ts"
import { type Dispatch, decodeJournal, encodeJournal, type JournalEntry } from "./journal-entry.ts"
import { JournalState } from "./journal-state.ts"

const count = fc.nat({ max: 2 ** 31 })
const offset = fc.bigInt({ min: 0n, max: (1n << 62n) - 1n })
const name = fc.string({ minLength: 1, maxLength: 20, unit: "grapheme" })
const dispatch: fc.Arbitrary<Dispatch> = fc.record({
  ordinal: count,
  lane: fc.nat({ max: 3 }),
  lineage: name,
  partition: fc.nat({ max: 1000 }),
  identity: fc.option(fc.record({ producerId: offset, epoch: fc.nat({ max: 32_767 }), sequence: count }), {
    nil: undefined,
  }),
  id: fc.bigInt({ min: 1n, max: (1n << 128n) - 1n }),
  timestampMicros: offset,
  resend: fc.boolean(),
  isMoved: fc.boolean(),
  skipped: fc.nat({ max: 1 << 20 }),
  sentMicros: offset,
  runs: fc.array(fc.record({ first: offset, length: fc.integer({ min: 1, max: 1 << 20 }) }), { maxLength: 5 }),
})
const entry: fc.Arbitrary<JournalEntry> = fc.oneof(
  fc.constant<JournalEntry>({ kind: "snapshot" }),
  fc.record({ kind: fc.constant("lane" as const), lane: fc.nat({ max: 3 }), stream: name, topic: name }),
  fc.record({ kind: fc.constant("dispatch" as const), dispatch, settled: fc.boolean() }),
  fc.record({
    kind: fc.constantFrom("settled" as const, "void" as const),
    ordinals: fc.array(count, { maxLength: 4 }),
  }),
  fc.record({ kind: fc.constant("low" as const), lane: fc.nat({ max: 3 }), offset }),
)
const entries = fc.array(entry, { maxLength: 12 })

test("what is told comes back", () => {
  fc.assert(
    fc.property(count, entries, (number, told) => {
      // Generated objects have no prototype.
      assert.deepEqual(decodeJournal(encodeJournal(number, told), "spool"), structuredClone({ number, entries: told }))
    }),
  )
})

test("damaged bytes are a CorruptionError or a StorageError, and never anything else", () => {
  fc.assert(
    fc.property(count, entries, fc.nat(), fc.integer({ min: 1, max: 255 }), (number, told, at, flip) => {
      const bytes = encodeJournal(number, told).slice()
      bytes[at % bytes.length] = (bytes[at % bytes.length] as number) ^ flip
      try {
        decodeJournal(at % 3 === 0 ? bytes.subarray(0, at % bytes.length) : bytes, "spool")
      } catch (error) {
        assert.ok(error instanceof MillraceError && (error instanceof CorruptionError || error instanceof StorageError))
      }
    }),
  )
})

test("another format is refused with both numbers", () => {
  const writer = new JournalWriter()
  writer.number(2)
  assert.throws(
    () => decodeJournal(writer.finish(), "spool"),
    /format 2, of a newer release; this one reads and writes format 1/,
  )
})

test("a snapshot tells all that was told, and what is told twice changes nothing", () => {
  fc.assert(
    fc.property(entries, (told) => {
      const once = new JournalState()
      for (const one of told) once.apply(one)
      const again = new JournalState()
      for (const one of once.snapshot()) again.apply(one)
      assert.deepEqual([again.lanes, again.dispatches], [once.lanes, once.dispatches])
      for (const one of again.snapshot()) again.apply(one)
      assert.deepEqual([again.lanes, again.dispatches], [once.lanes, once.dispatches])
    }),
  )
})

test("a batch is known until it is void, or all of it lies below the mark of its lane", () => {
  const state = new JournalState()
  const [one] = fc.sample(dispatch, 1)
  const known = { ...(one as Dispatch), ordinal: 4, lane: 0, runs: [{ first: 10n, length: 5 }] }
  state.apply({ kind: "lane", lane: 0, stream: "s", topic: "t" })
  state.apply({ kind: "dispatch", dispatch: known, settled: false })
  state.apply({ kind: "settled", ordinals: [4] })
  state.apply({ kind: "low", lane: 0, offset: 14n })
  assert.equal(state.dispatches.get(4)?.settled, true)
  state.apply({ kind: "low", lane: 0, offset: 15n })
  assert.equal(state.dispatches.size, 0)
  assert.equal(state.nextOrdinal, 5)
  state.apply({
    kind: "dispatch",
    dispatch: { ...known, ordinal: 5, runs: [{ first: 20n, length: 1 }] },
    settled: false,
  })
  state.apply({ kind: "void", ordinals: [5] })
  assert.equal(state.dispatches.size, 0)
})
