/**
 * A dead letter as a record, and back. The original's headers come first, in their order; behind them one block of headers tells where
 * it stood and why it is here:
 *
 *     millrace-dead-letter      uint8    1, the version of this layout: begins the block
 *     millrace-dead-stream      string   left out where topics have no stream
 *     millrace-dead-topic       string
 *     millrace-dead-partition   uint32
 *     millrace-dead-offset      uint64   left out when a batch could not be read and its offset is not known
 *     millrace-dead-attempts    uint32   0: no handler has seen it, because it could not be read
 *     millrace-dead-kind        string   the kind of a Millrace error, or the name of another
 *     millrace-dead-content     string   what the payload is: "message" (as the handler saw it, or would have), "stored" (as it lies in the topic: it did
 *                                        not decrypt), "none" (it could not be read at all)
 *     millrace-dead-error       string   the message of the error, shortened where it does not fit
 *     millrace-dead-consumer    string   or
 *     millrace-dead-group       string   or
 *     millrace-dead-queue       string   whose handler failed; none of them for a consumer without a name
 *     millrace-dead-time        uint64   when it failed, in µs since 1970
 *     millrace-dead-timestamp   uint64   the original's append time, in µs since 1970
 *     millrace-dead-id          uint128  the original's id, where it has one
 *     millrace-dead-headers     string   why the original's headers are not here: they could not be decoded
 *     millrace-dead-cut         bool     there was no room for the whole block
 *
 * A dead letter that fails again somewhere else gets a second block; the last one is the one that counts.
 */
import { Headers, HeaderValue, type Manifest, type TopicName } from "@millrace/contract"
import { nodeCrypto } from "@millrace/runtime"
import { topicKey } from "../client/names.ts"
import type { Message } from "../record/message.ts"
import { type OutgoingRecord, reservedPrefix } from "../record/outgoing-record.ts"
import { type FailurePlace, thrownKind, thrownText } from "./handler-failure.ts"

/** What is known of a message that goes to a dead-letter topic. */
export interface Burial {
  readonly place: FailurePlace
  /** Absent when it could not be read at all. */
  readonly message: Message | undefined
  readonly content: DeadContent
  /** What the last attempt threw. */
  readonly thrown: unknown
  readonly attempts: number
  readonly timeMicros: bigint
  readonly consumer: string | undefined
  readonly group: string | undefined
  /** Of a work queue. */
  readonly queue?: string | undefined
}

/** What the payload of a dead letter is. */
export type DeadContent = "message" | "stored" | "none"

/** How much of the error is told, at most: less each time that the record turns out to be too large. */
export const errorTextBytes: readonly number[] = [1024, 64, 0]

type Entry = readonly [string, HeaderValue]

const prefix = `${reservedPrefix}dead-`
const firstName = `${prefix}letter`
const layoutVersion = 1
/** What a backend may add to a header's name and value. */
const framingBytes = 16
const utf8 = new TextEncoder()

/**
 * @param step Which of `errorTextBytes` applies; the last leaves out everything that a way back does not need.
 */
export function deadLetterRecord(burial: Burial, step: number, limits: Manifest["limits"]): OutgoingRecord {
  const { message } = burial
  const original = originalHeaders(message)
  const entries = [...original.entries, ...blockOf(burial, original.error, step >= errorTextBytes.length - 1)]
  const room = limits.headersBytes - entries.reduce((sum, entry) => sum + sizeOf(entry), 0) - 2 * framingBytes
  const most = Math.min(errorTextBytes[step] ?? 0, limits.headerValueBytes, room)
  if (most > 0) entries.push(text("error", thrownText(burial.thrown), most))
  const key = message?.key
  const id = deadLetterId(burial)
  return {
    payload: message?.payload ?? null,
    ...(key === null || key === undefined || key.length === 0 ? {} : { key }),
    headers: Headers.ofStored(entries),
    ...(id === undefined ? {} : { id }),
  }
}

/** The block of a dead letter, and what it was made from. Absent for a record that is none. */
export interface DeadLetterBlock {
  readonly origin: TopicName
  readonly partition: number
  readonly offset: bigint | undefined
  readonly attempts: number
  readonly kind: string
  readonly content: DeadContent
  readonly error: string
  readonly consumer: string | undefined
  readonly group: string | undefined
  readonly queue: string | undefined
  readonly timeMicros: bigint | undefined
  /** The original's, in order. */
  readonly headers: Headers
}

/** Reads the last block of a record's headers. */
export function deadLetterBlock(headers: Headers): DeadLetterBlock | undefined {
  const entries = [...headers]
  const start = entries.findLastIndex(([name]) => name === firstName)
  if (start < 0 || entries[start]?.[1].value !== layoutVersion) return undefined
  const block = Headers.ofStored(entries.slice(start).filter(([name]) => name.startsWith(prefix)))
  const topic = textOf(block, "topic")
  const partition = block.get(`${prefix}partition`)?.value
  if (topic === undefined || typeof partition !== "number") return undefined
  const content = textOf(block, "content")
  return {
    origin: { stream: textOf(block, "stream") ?? "", topic },
    partition,
    offset: bigintOf(block, "offset"),
    attempts: Number(block.get(`${prefix}attempts`)?.value ?? 0),
    kind: textOf(block, "kind") ?? "",
    content: content === "stored" || content === "none" ? content : "message",
    error: textOf(block, "error") ?? "",
    consumer: textOf(block, "consumer"),
    group: textOf(block, "group"),
    queue: textOf(block, "queue"),
    timeMicros: bigintOf(block, "time"),
    // Trace context that stays readable beside an encrypted record comes behind the block.
    headers: Headers.ofStored(entries.filter(([name], i) => i < start || !name.startsWith(prefix))),
  }
}

function blockOf(burial: Burial, headersError: string | undefined, brief: boolean): Entry[] {
  const { place, message, attempts } = burial
  const entries: Entry[] = [[firstName, HeaderValue.uint8(layoutVersion)]]
  if (place.stream !== "") entries.push(text("stream", place.stream))
  entries.push(text("topic", place.topic), [`${prefix}partition`, HeaderValue.uint32(place.partition)])
  if (place.offset !== undefined) entries.push([`${prefix}offset`, HeaderValue.uint64(place.offset)])
  entries.push([`${prefix}attempts`, HeaderValue.uint32(attempts)], text("kind", thrownKind(burial.thrown), shortText))
  entries.push(text("content", burial.content))
  if (headersError !== undefined) entries.push(text("headers", headersError, shortText))
  if (brief) return [...entries, [`${prefix}cut`, HeaderValue.bool(true)]]
  if (burial.consumer !== undefined) entries.push(text("consumer", burial.consumer))
  if (burial.group !== undefined) entries.push(text("group", burial.group))
  if (burial.queue !== undefined) entries.push(text("queue", burial.queue))
  entries.push([`${prefix}time`, HeaderValue.uint64(burial.timeMicros)])
  if (message === undefined) return entries
  entries.push([`${prefix}timestamp`, HeaderValue.uint64(message.timestampMicros)])
  if (message.id !== undefined) entries.push([`${prefix}id`, HeaderValue.uint128(message.id)])
  return entries
}

const shortText = 255

function originalHeaders(message: Message | undefined): { readonly entries: Entry[]; readonly error?: string } {
  if (message === undefined) return { entries: [] }
  const error = message.headersError
  return error === undefined ? { entries: [...message.headers] } : { entries: [], error: error.message }
}

/**
 * The same dead letter has the same id each time, so that one that is sent again behind a crash is recognised where the backend knows
 * ids. The same message is another dead letter for another consumer, and when it comes again from another offset.
 */
export function deadLetterId({ message, place, consumer, group, queue }: Burial): bigint | undefined {
  if (message === undefined) return undefined
  const { lineage, offset } = message.checkpoint()
  const owner = queue !== undefined ? ["q", queue] : group !== undefined ? ["g", group] : ["c", consumer]
  const parts = [topicKey(place), lineage, place.partition, offset, ...owner]
  return idOfText(`dead\n${parts.join("\n")}`)
}

/** 128 bits that are the same for the same text. */
export function idOfText(text: string): bigint {
  const digest = nodeCrypto().createHash("sha256").update(text).digest()
  return (digest.readBigUInt64BE(0) << 64n) | digest.readBigUInt64BE(8)
}

/** A text header, shortened at a character to what is allowed; never empty, which not every backend can hold. */
function text(name: string, value: string, mostBytes?: number): Entry {
  const whole = value.toWellFormed()
  const fitting = mostBytes === undefined ? whole : shortened(whole, mostBytes)
  return [`${prefix}${name}`, HeaderValue.string(fitting === "" ? "-" : fitting)]
}

function shortened(value: string, mostBytes: number): string {
  if (utf8.encode(value).length <= mostBytes) return value
  const mark = "…"
  const room = new Uint8Array(Math.max(0, mostBytes - utf8.encode(mark).length))
  const { read } = utf8.encodeInto(value, room)
  return value.slice(0, read).toWellFormed() + (room.length === 0 ? "" : mark)
}

function sizeOf([name, value]: Entry): number {
  return utf8.encode(name).length + value.bytes.length + framingBytes
}

function textOf(block: Headers, name: string): string | undefined {
  const value = block.get(`${prefix}${name}`)?.value
  return typeof value === "string" ? value : undefined
}

function bigintOf(block: Headers, name: string): bigint | undefined {
  const value = block.get(`${prefix}${name}`)?.value
  return typeof value === "bigint" ? value : undefined
}
