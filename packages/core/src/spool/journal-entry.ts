/**
 * What the journal of a spool tells, and its bytes. A journal record is the payload of one record of the spool's topic `journal`:
 *
 *     format   number, 1
 *     number   number: counts the records, so that one that was appended twice is told from its successor
 *     entries  each a code and its fields, until the end
 *
 *     0 snapshot                                                         forgets all that was told before
 *     1 lane      lane · stream · topic                                  the spool's topic `lane-<lane>` holds this topic's records
 *     2 dispatch  ordinal · lane · partition · flags · [ producerId · epoch · sequence ] · lineage · id · timestampMicros ·
 *                 sentMicros · skipped · n · n × (gap · length)          a batch is about to go out
 *     3 settled   n · n × ordinal                                        these batches need no resend any more
 *     4 low       lane · offset                                          everything below was delivered or handed over
 *     5 void      n · n × ordinal                                        these batches will not go out as they are: their records are
 *                                                                        as if they never had
 *
 * Flags: 1 an identity follows, 2 the batch was sent as a resend, 4 it is settled, 8 its records had other ids. Numbers are varints. A run's gap counts from the
 * end of the run before it, zigzag coded, as offsets of one batch need not ascend.
 */
import { CorruptionError, type Identity, type Lineage, type MessageId, StorageError } from "@millrace/contract"
import { JournalReader, JournalWriter } from "./journal-bytes.ts"
import type { OffsetRun } from "./offset-runs.ts"

/** The format that is written, and the only one that is read. */
const journalFormat: number = 1

/** A batch of the target as it goes out: what it takes to build the same one again. */
export interface Dispatch {
  /** Counts dispatches of a spool. */
  readonly ordinal: number
  readonly lane: number
  /** Which history of the target topic it was made for. */
  readonly lineage: Lineage
  readonly partition: number
  /** Absent where batches carry none. */
  readonly identity: (Identity & { readonly sequence: number }) | undefined
  /** The id of the batch's stamp: record i has this + `skipped` + i, unless it has one of its own. */
  readonly id: MessageId
  readonly timestampMicros: bigint
  readonly resend: boolean
  /** Its records have ids of an earlier batch, for a topic that was replaced since: these are not known any more. */
  readonly isMoved: boolean
  /** How many records of the stamp's batch lie before the first one: above 0 for the later part of a batch that was split. */
  readonly skipped: number
  /** Wall time of the first attempt. */
  readonly sentMicros: bigint
  /** Its records, as offsets of the lane, in the batch's order. */
  readonly runs: readonly OffsetRun[]
}

/** One thing that is told. */
export type JournalEntry =
  | { readonly kind: "snapshot" }
  | { readonly kind: "lane"; readonly lane: number; readonly stream: string; readonly topic: string }
  | { readonly kind: "dispatch"; readonly dispatch: Dispatch; readonly settled: boolean }
  | { readonly kind: "settled" | "void"; readonly ordinals: readonly number[] }
  | { readonly kind: "low"; readonly lane: number; readonly offset: bigint }

const codes = { snapshot: 0, lane: 1, dispatch: 2, settled: 3, low: 4, void: 5 } as const
const flags = { identity: 1, resend: 2, settled: 4, moved: 8 } as const

/** The bytes of one journal record. */
export function encodeJournal(number: number, entries: readonly JournalEntry[]): Uint8Array {
  const writer = new JournalWriter()
  writer.number(journalFormat)
  writer.number(number)
  for (const entry of entries) writeEntry(writer, entry)
  return writer.finish()
}

/**
 * @param directory How errors call the spool.
 * @throws StorageError for another format, CorruptionError for bytes that contradict themselves
 */
export function decodeJournal(
  bytes: Uint8Array,
  directory: string,
): { readonly number: number; readonly entries: JournalEntry[] } {
  const reader = new JournalReader(bytes)
  const format = reader.number()
  if (format !== journalFormat) throw wrongFormat(format, directory)
  const number = reader.number()
  const entries: JournalEntry[] = []
  while (!reader.isAtEnd) entries.push(readEntry(reader))
  return { number, entries }
}

/** The refusal of a spool that another release wrote. */
export function wrongFormat(format: number, directory: string): StorageError {
  const whose = format > journalFormat ? "a newer release" : "an older release"
  return new StorageError(
    `the spool in "${directory}" has format ${format}, of ${whose}; this one reads and writes format ${journalFormat}: ` +
      "let that release deliver what is in it, or use another directory",
    { context: { directory, format, known: journalFormat } },
  )
}

function writeEntry(writer: JournalWriter, entry: JournalEntry): void {
  writer.number(codes[entry.kind])
  switch (entry.kind) {
    case "snapshot":
      break
    case "lane":
      writer.number(entry.lane)
      writer.text(entry.stream)
      writer.text(entry.topic)
      break
    case "dispatch":
      writeDispatch(writer, entry.dispatch, entry.settled)
      break
    case "settled":
    case "void":
      writer.number(entry.ordinals.length)
      for (const ordinal of entry.ordinals) writer.number(ordinal)
      break
    case "low":
      writer.number(entry.lane)
      writer.big(entry.offset)
      break
  }
}

function writeDispatch(writer: JournalWriter, dispatch: Dispatch, settled: boolean): void {
  const { identity } = dispatch
  writer.number(dispatch.ordinal)
  writer.number(dispatch.lane)
  writer.number(dispatch.partition)
  writer.number(
    (identity === undefined ? 0 : flags.identity) |
      (dispatch.resend ? flags.resend : 0) |
      (dispatch.isMoved ? flags.moved : 0) |
      (settled ? flags.settled : 0),
  )
  if (identity !== undefined) {
    writer.big(identity.producerId)
    writer.number(identity.epoch)
    writer.number(identity.sequence)
  }
  writer.text(dispatch.lineage)
  writer.big(dispatch.id)
  writer.big(dispatch.timestampMicros)
  writer.big(dispatch.sentMicros)
  writer.number(dispatch.skipped)
  writer.number(dispatch.runs.length)
  let end = 0n
  for (const { first, length } of dispatch.runs) {
    const gap = first - end
    writer.big(gap >= 0n ? gap << 1n : (-gap << 1n) - 1n)
    writer.number(length)
    end = first + BigInt(length)
  }
}

function readEntry(reader: JournalReader): JournalEntry {
  const code = reader.number()
  switch (code) {
    case codes.snapshot:
      return { kind: "snapshot" }
    case codes.lane:
      return { kind: "lane", lane: reader.number(), stream: reader.text(), topic: reader.text() }
    case codes.dispatch:
      return readDispatch(reader)
    case codes.settled:
    case codes.void: {
      const count = reader.number()
      const ordinals: number[] = []
      for (let i = 0; i < count; i++) ordinals.push(reader.number())
      return { kind: code === codes.void ? "void" : "settled", ordinals }
    }
    case codes.low:
      return { kind: "low", lane: reader.number(), offset: reader.big() }
    default:
      throw new CorruptionError(`the journal of the spool is damaged: entry code ${code} is not known`)
  }
}

function readDispatch(reader: JournalReader): JournalEntry {
  const ordinal = reader.number()
  const lane = reader.number()
  const partition = reader.number()
  const bits = reader.number()
  const identity =
    (bits & flags.identity) === 0
      ? undefined
      : { producerId: reader.big(), epoch: reader.number(), sequence: reader.number() }
  const lineage = reader.text()
  const id = reader.big()
  const timestampMicros = reader.big()
  const sentMicros = reader.big()
  const skipped = reader.number()
  const count = reader.number()
  const runs: OffsetRun[] = []
  let end = 0n
  for (let i = 0; i < count; i++) {
    const coded = reader.big()
    const first = end + ((coded & 1n) === 0n ? coded >> 1n : -((coded + 1n) >> 1n))
    const length = reader.number()
    runs.push({ first, length })
    end = first + BigInt(length)
  }
  const resend = (bits & flags.resend) !== 0
  const isMoved = (bits & flags.moved) !== 0
  return {
    kind: "dispatch",
    settled: (bits & flags.settled) !== 0,
    dispatch: {
      ordinal,
      lane,
      partition,
      identity,
      lineage,
      id,
      timestampMicros,
      sentMicros,
      skipped,
      resend,
      isMoved,
      runs,
    },
  }
}
