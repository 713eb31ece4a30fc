/**
 * Protocol lines of NATS for the records of a batch, many in one buffer:
 *
 *     HPUB <subject> <reply> <header bytes> <all bytes>\r\n
 *     NATS/1.0\r\n [lines of the way of sending] [lines of the record] \r\n <payload> \r\n
 *
 * and `PUB <subject> <reply> <bytes>\r\n<payload>\r\n` for a message without headers. (NATS client protocol; ADR-50 for the lines and
 * reply subjects of batches.)
 */
import { preamble } from "./header-block.ts"
import type { NatsSealedBatch } from "./sealed-batch.ts"

/** What an ingest's messages have in common: the two beginnings of a line, up to the running number. */
export interface IngestPrefix {
  readonly hpub: Buffer
  readonly pub: Buffer
}

/** How often the server is to confirm an ingest, at most: each so many messages. The most that a server of 2.15 takes is 500. */
export const ingestFlow: number = 500

/** Operations at the end of an ingest's reply subject. */
const operation = { start: 0x30, append: 0x31, commit: 0x32, end: 0x33 } as const

/** @param answers The subject in front of the ingest's answers, its id included. */
export function ingestPrefix(subject: string, answers: string): IngestPrefix {
  const reply = `${answers}.${ingestFlow}.fail.`
  return {
    hpub: Buffer.from(`HPUB ${subject} ${reply}`, "latin1"),
    pub: Buffer.from(`PUB ${subject} ${reply}`, "latin1"),
  }
}

/**
 * Records `from` to `from` + `count` − 1 as messages of an ingest with the running numbers from `sequence` on; with `commit` the last
 * of them ends the ingest.
 */
export function ingestFrames(
  batch: NatsSealedBatch,
  range: { readonly from: number; readonly count: number },
  options: { readonly prefix: IngestPrefix; readonly sequence: number; readonly commit: boolean },
): Buffer {
  const { prefix, commit } = options
  const { bytes, starts, headBytes } = batch.content
  const first = batch.from + range.from
  const end = first + range.count
  const size = (starts[end] as number) - (starts[first] as number)
  const out = Buffer.allocUnsafeSlow(size + range.count * (prefix.hpub.length + ingestRoom))
  const { hpub, pub } = prefix
  let sequence = options.sequence
  let at = 0
  for (let index = first; index < end; index++) {
    const start = starts[index] as number
    const stop = starts[index + 1] as number
    const head = headBytes[index] as number
    const line = head > 0 ? hpub : pub
    line.copy(out, at)
    at = decimal(out, at + line.length, sequence)
    const last = commit && index === end - 1
    out[at] = 0x2e
    out[at + 1] = last ? operation.commit : sequence === 1 ? operation.start : operation.append
    at += 2
    at += ingestTail.copy(out, at)
    if (head > 0) {
      at = decimal(out, at, preambleBytes.length + head)
      out[at++] = 0x20
      at = decimal(out, at, preambleBytes.length + stop - start)
      at += preambleLine.copy(out, at)
    } else {
      at = decimal(out, at, stop - start)
      out[at] = 0x0d
      out[at + 1] = 0x0a
      at += 2
    }
    at += bytes.copy(out, at, start, stop)
    out[at] = 0x0d
    out[at + 1] = 0x0a
    at += 2
    sequence++
  }
  return out.subarray(0, at)
}

/** The end of an ingest without a record: the server answers when all before it is stored. */
export function ingestEnd(prefix: IngestPrefix, sequence: number): Buffer {
  return Buffer.concat([prefix.pub, Buffer.from(`${sequence}.3.$FI 0\r\n\r\n`, "latin1")])
}

/** One record as a message, with lines of its own in front of its headers' (each with its end). */
export function singleFrame(
  batch: NatsSealedBatch,
  index: number,
  options: { readonly subject: string; readonly reply: string; readonly lines?: string },
): Buffer {
  const out = Buffer.allocUnsafeSlow(frameBytes(batch, index, options))
  return out.subarray(0, writeFrame(out, 0, { ...options, batch, index }))
}

/** Records as one atomic batch (ADR-50): the first and the last ask for an answer, the last commits. */
export function atomicFrames(
  batch: NatsSealedBatch,
  indexes: readonly number[],
  options: {
    readonly subject: string
    readonly batchId: string
    readonly firstReply: string
    readonly lastReply: string
  },
): Buffer {
  const { subject, batchId, firstReply, lastReply } = options
  const parts = indexes.map((index, at) => ({
    batch,
    index,
    subject,
    reply: at === indexes.length - 1 ? lastReply : at === 0 ? firstReply : "",
    lines: `Nats-Batch-Id: ${batchId}\r\nNats-Batch-Sequence: ${at + 1}\r\n${at === indexes.length - 1 ? "Nats-Batch-Commit: 1\r\n" : ""}`,
  }))
  let size = 0
  for (const part of parts) size += frameBytes(batch, part.index, part)
  const out = Buffer.allocUnsafeSlow(size)
  let at = 0
  for (const part of parts) at = writeFrame(out, at, part)
  return out.subarray(0, at)
}

interface Frame {
  readonly batch: NatsSealedBatch
  /** Within the batch. */
  readonly index: number
  readonly subject: string
  readonly reply: string
  readonly lines?: string
}

/** At least what a frame takes. */
function frameBytes(
  batch: NatsSealedBatch,
  index: number,
  { subject, reply, lines }: { readonly subject: string; readonly reply: string; readonly lines?: string },
): number {
  const { starts } = batch.content
  const record = batch.from + index
  const size = (starts[record + 1] as number) - (starts[record] as number)
  return size + subject.length + reply.length + (lines?.length ?? 0) + frameRoom
}

function writeFrame(out: Buffer, start: number, { batch, index, subject, reply, lines = "" }: Frame): number {
  const { bytes, starts, headBytes } = batch.content
  const record = batch.from + index
  const from = starts[record] as number
  const to = starts[record + 1] as number
  const head = headBytes[record] as number
  const where = reply === "" ? subject : `${subject} ${reply}`
  let at = start
  if (head === 0 && lines === "") {
    at += out.write(`PUB ${where} ${to - from}\r\n`, at, "latin1")
  } else {
    // A record without lines of its own lacks the empty line behind them, too.
    const block = preamble.length + lines.length + (head === 0 ? 2 : head)
    const all = block + to - from - head
    const text = `HPUB ${where} ${block} ${all}\r\n${preamble}${lines}${head === 0 ? "\r\n" : ""}`
    at += out.write(text, at, "latin1")
  }
  at += bytes.copy(out, at, from, to)
  out[at] = 0x0d
  out[at + 1] = 0x0a
  return at + 2
}

/** Writes a number in decimal digits; answers where they end. */
function decimal(out: Buffer, at: number, value: number): number {
  let digits = 1
  for (let rest = value; rest >= 10; rest = Math.floor(rest / 10)) digits++
  let rest = value
  for (let digit = at + digits - 1; digit >= at; digit--) {
    const next = Math.floor(rest / 10)
    out[digit] = 0x30 + rest - next * 10
    rest = next
  }
  return at + digits
}

const preambleBytes = Buffer.from(preamble, "latin1")
/** The end of the line, and the first line of the headers. */
const preambleLine = Buffer.from(`\r\n${preamble}`, "latin1")
const ingestTail = Buffer.from(".$FI ", "latin1")
/** A running number of 16 digits, operation, sizes, line ends and the first header line. */
const ingestRoom = 16 + 8 + 24 + 4 + 2 + preamble.length
/** `HPUB`, spaces, sizes, line ends, the first header line and an empty one. */
const frameRoom = 64
