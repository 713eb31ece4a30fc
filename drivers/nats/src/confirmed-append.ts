import { type AppendResult, MillraceError, NotFoundError } from "@millrace/contract"
import { apiCode } from "./api-error.ts"
import type { Connection } from "./connection.ts"
import { atomicFrames, singleFrame } from "./frames.ts"
import { type PubAck, parsePubAck } from "./pub-ack.ts"
import type { NatsSealedBatch } from "./sealed-batch.ts"
import { described } from "./topic-layout.ts"

/** Records of one atomic batch at most (ADR-50). */
export const mostAtomicRecords: number = 1_000

/** How often a batch with duplicates is looked through: more than once only when somebody else sends the same ids at the same time. */
const mostRounds = 3

/** An id that no message has: a message that must follow it is stored by no stream. */
const idOfNothing = "millrace-no-message-has-this-id"

/** A batch and where it goes. */
export interface ConfirmedSend {
  readonly batch: NatsSealedBatch
  readonly subject: string
  /** Whether the stream takes atomic batches. */
  readonly atomic: boolean
}

/**
 * Appends one batch and tells the offsets: a record as one publish, more as one atomic batch. A batch that has records which are there
 * already is refused as a whole (10201); then the server is asked for each id where it is, and what is missing goes as another batch.
 * Where the stream takes no atomic batches the records go one by one, each awaited, since nothing else keeps their order.
 */
export async function confirmedAppend(connection: Connection, send: ConfirmedSend): Promise<AppendResult> {
  const { batch } = send
  if (batch.count === 1) {
    const ack = await publishOne(connection, send, 0)
    return { base: BigInt(ack.seq) - 1n, contiguous: true, duplicates: ack.duplicate === true ? 1 : 0 }
  }
  if (!send.atomic) return oneByOne(connection, send)
  try {
    const all = Array.from({ length: batch.count }, (_, index) => index)
    const last = await publishAtomic(connection, send, all)
    return { base: BigInt(last - batch.count), contiguous: true, duplicates: 0 }
  } catch (error) {
    if (isDuplicate(error)) return resolveDuplicates(connection, send)
    throw error
  }
}

async function publishOne(connection: Connection, { batch, subject }: ConfirmedSend, index: number): Promise<PubAck> {
  const expected = connection.expect({ what: publishing(batch), subject })
  connection.wire.send(singleFrame(batch, index, { subject, reply: expected.subject }))
  return parsePubAck((await expected.reply).data, batch.target)
}

/** @returns the sequence of the last record */
async function publishAtomic(
  connection: Connection,
  { batch, subject }: ConfirmedSend,
  indexes: readonly number[],
): Promise<number> {
  if (indexes.length === 1)
    return (await publishOne(connection, { batch, subject, atomic: true }, indexes[0] as number)).seq
  const what = publishing(batch)
  const first = connection.expect({ what, subject })
  const last = connection.expect({ what, subject })
  const batchId = `${connection.label}-${last.subject.slice(connection.inbox.length + 1)}`
  connection.wire.send(
    atomicFrames(batch, indexes, { subject, batchId, firstReply: first.subject, lastReply: last.subject }),
  )
  // The first is answered empty, or with the reason why the batch was not begun; the last then fails for a lesser reason.
  const [begun, ended] = await Promise.allSettled([first.reply, last.reply])
  if (begun.status === "fulfilled" && begun.value.data.length > 0) parsePubAck(begun.value.data, batch.target)
  if (ended.status === "rejected") throw ended.reason
  const ack = parsePubAck(ended.value.data, batch.target)
  if (ack.count !== indexes.length) {
    throw new MillraceError(
      "protocol",
      `${what}: NATS confirmed ${ack.count} of ${indexes.length} records of an atomic batch`,
    )
  }
  return ack.seq
}

async function oneByOne(connection: Connection, send: ConfirmedSend): Promise<AppendResult> {
  const sequences: number[] = []
  let duplicates = 0
  for (let index = 0; index < send.batch.count; index++) {
    try {
      const ack = await publishOne(connection, send, index)
      sequences.push(ack.seq)
      if (ack.duplicate === true) duplicates++
    } catch (error) {
      if (index === 0 || !(error instanceof MillraceError)) throw error
      throw partly(error, { done: index, count: send.batch.count })
    }
  }
  return resultOf(sequences, duplicates)
}

/** Nothing of the batch was stored, since some of it was there. */
async function resolveDuplicates(connection: Connection, send: ConfirmedSend): Promise<AppendResult> {
  const { batch } = send
  const firstOf = new Map<bigint, number>()
  const twins = new Map<number, number>()
  for (let index = 0; index < batch.count; index++) {
    if (!batch.carriesId(index)) continue
    const earlier = firstOf.get(batch.id(index))
    if (earlier === undefined) firstOf.set(batch.id(index), index)
    else twins.set(index, earlier)
  }
  for (let round = 0; round < mostRounds; round++) {
    const sequences = await probe(connection, send, [...firstOf.values()])
    const missing: number[] = []
    for (let index = 0; index < batch.count; index++) {
      if (sequences[index] === undefined && !twins.has(index)) missing.push(index)
    }
    try {
      if (missing.length > 0) {
        const last = await publishAtomic(connection, send, missing)
        for (const [at, index] of missing.entries()) sequences[index] = last - missing.length + 1 + at
      }
    } catch (error) {
      if (isDuplicate(error)) continue
      throw error
    }
    for (const [index, earlier] of twins) sequences[index] = sequences[earlier]
    return resultOf(sequences as number[], batch.count - missing.length)
  }
  throw new MillraceError(
    "throttled",
    `${publishing(batch)}: others store records with the same ids at the same time (tried ${mostRounds} times)`,
  )
}

/**
 * Asks where ids are, without storing anything: the server looks an id up before it compares the id of the last message with the
 * one that is expected, and nothing has the one that is expected here.
 */
async function probe(
  connection: Connection,
  { batch, subject }: ConfirmedSend,
  indexes: readonly number[],
): Promise<(number | undefined)[]> {
  const lines = `Nats-Expected-Last-Msg-Id: ${idOfNothing}\r\n`
  const asked = indexes.map((index) => {
    const what = `looking up an id in topic ${described(batch.target)}`
    const expected = connection.expect({ what, subject, idempotent: true })
    connection.wire.send(singleFrame(batch, index, { subject, reply: expected.subject, lines }))
    return expected.reply
  })
  const answers = await Promise.allSettled(asked)
  const sequences = new Array<number | undefined>(batch.count).fill(undefined)
  for (const [at, answer] of answers.entries()) {
    if (answer.status === "rejected") throw answer.reason
    try {
      sequences[indexes[at] as number] = parsePubAck(answer.value.data, batch.target).seq
    } catch (error) {
      if (!hasCode(error, apiCode.wrongLastId)) throw error
    }
  }
  return sequences
}

function resultOf(sequences: readonly number[], duplicates: number): AppendResult {
  const first = sequences[0] as number
  return {
    base: BigInt(first) - 1n,
    contiguous: sequences.every((sequence, index) => sequence === first + index),
    duplicates,
  }
}

/** Some records of the batch are stored: the failure of a later one leaves the batch in doubt. */
function partly(
  error: MillraceError,
  { done, count }: { readonly done: number; readonly count: number },
): MillraceError {
  const kind = error instanceof NotFoundError ? "not-found" : error.kind
  return new MillraceError(kind, `${error.message} (${done} of the batch's ${count} records are stored)`, {
    retryable: error.retryable,
    outcome: "unknown",
    context: error.context,
    cause: error,
  })
}

function isDuplicate(error: unknown): boolean {
  return hasCode(error, apiCode.batchDuplicate)
}

function hasCode(error: unknown, code: number): boolean {
  return error instanceof MillraceError && error.context.errCode === code
}

function publishing({ target }: NatsSealedBatch): string {
  return `publishing to topic ${described(target)}, partition ${target.partition}`
}
