/**
 * A record's header block in NATS (`NATS/1.0`, ADR-4 of NATS), read and written by bytes: nats.js trims values, groups names and
 * refuses line breaks, and a record must come back as it was.
 *
 *     Nats-Msg-Id: <uuid>          the id, where it takes part in deduplication
 *     millrace-null: 1             the payload is absent, not empty
 *     millrace-key: <base64>       the key; no line when it is absent
 *     millrace-time: <decimal>     the sender's time in µs, where one was given
 *     millrace-types: <kinds> <forms>
 *     <name>: <value>              the record's headers, in order
 *
 * A header is left plain where every client reads it as it is: a name of visible ASCII without a colon that the server gives no
 * meaning, and a text of one line. Otherwise the value is in base64, or the name is (`millrace-name-<base64url>`). `millrace-types`
 * tells the kind of each header (one digit of base 16), and where it is not the usual one its form, a digit a header: 1 for a value in
 * base64, 2 for a name, 3 for both. Usual is 0 for texts and 1 for all other kinds. Without the line all are plain texts.
 */
import {
  DecodeError,
  formatHeaderKinds,
  type HeaderKind,
  Headers,
  HeaderValue,
  headerKindCodes,
  headerKindsName,
  InvalidError,
  type MessageId,
  parseHeaderKinds,
  parseMessageId,
  type WireRecord,
} from "@millrace/contract"

/** The first line of every header block. */
export const preamble: string = "NATS/1.0\r\n"

/** The header of a message's id, looked up by the server within the stream's window. */
export const messageIdName: string = "Nats-Msg-Id"

const noBytes = Buffer.alloc(0)
const nullName = "millrace-null"
const keyName = "millrace-key"
const timeName = "millrace-time"
const escapedName = "millrace-name-"
const nullLine = Buffer.from(`${nullName}:`, "latin1")
const ownNames = new Set([nullName, keyName, timeName, headerKindsName])

/** The lines of a record's own parts and headers, each with its end; empty when there are none. The id is not among them. */
export function headerLines(record: WireRecord): string {
  const { headers, key, payload, timestampMicros } = record
  let lines = payload === null ? `${nullName}: 1\r\n` : ""
  if (key !== null) lines += `${keyName}: ${base64(key)}\r\n`
  if (timestampMicros !== undefined) lines += `${timeName}: ${timestampMicros}\r\n`
  return headers.size === 0 ? lines : lines + userLines(headers)
}

function userLines(headers: Headers): string {
  const kinds: HeaderKind[] = []
  let forms = ""
  let usual = true
  let plain = true
  let lines = ""
  for (const [name, value] of headers) {
    const text = value.kind === "string" ? plainText(value.bytes) : undefined
    const escaped = !isPlainName(name)
    const form = (text === undefined ? 1 : 0) + (escaped ? 2 : 0)
    kinds.push(value.kind)
    forms += form
    usual &&= form === (value.kind === "string" ? 0 : 1)
    plain &&= form === 0
    const line = escaped ? `${escapedName}${Buffer.from(name, "utf8").toString("base64url")}` : name
    lines += `${line}: ${text ?? base64(value.bytes)}\r\n`
  }
  if (plain) return lines
  return `${headerKindsName}: ${formatHeaderKinds(kinds)}${usual ? "" : ` ${forms}`}\r\n${lines}`
}

/** Visible ASCII without a colon, and not a name that the server or this mapping reads. */
function isPlainName(name: string): boolean {
  if (!/^[!-9;-~]+$/.test(name) || /^nats-/i.test(name)) return false
  return !ownNames.has(name) && !name.startsWith(escapedName)
}

/** The text of bytes that all clients read as they are: one line of UTF-8 without white space at its ends. */
function plainText(bytes: Uint8Array): string | undefined {
  for (const byte of bytes) if (byte < 0x20 || byte === 0x7f) return undefined
  let text: string
  try {
    text = strictUtf8.decode(bytes)
  } catch {
    return undefined
  }
  return text.trim() === text ? text : undefined
}

/** The parts of one record that its header block tells, decoded when they are looked at. */
export class RecordParts {
  readonly nullPayload: boolean
  readonly #block: Buffer
  readonly #lines: readonly Line[]
  readonly #id: Line | undefined
  readonly #key: Line | undefined
  readonly #time: Line | undefined
  readonly #kinds: Line | undefined
  readonly #malformed: string | undefined

  /** @param block From `NATS/1.0` on; `undefined` for a message without headers. */
  constructor(block: Uint8Array | undefined) {
    this.#block = block === undefined ? noBytes : Buffer.from(block.buffer, block.byteOffset, block.byteLength)
    const lines: Line[] = []
    let absent = false
    let end = lineEndIn(this.#block, 0)
    while (end >= 0) {
      const start = end + 2
      end = lineEndIn(this.#block, start)
      if (start >= this.#block.length || end === start) break
      const stop = end < 0 ? this.#block.length : end
      const colon = colonIn(this.#block, start, stop)
      if (colon < 0) {
        this.#malformed ??= this.#block.toString("utf8", start, Math.min(stop, start + 40))
        continue
      }
      const line: Line = { start, colon, end: stop }
      const first = this.#block[start]
      // Only names that begin so can be more than a header of the record.
      if (first !== 0x4e && first !== 0x6d) {
        lines.push(line)
        continue
      }
      const name = this.#name(line)
      if (name === messageIdName && this.#id === undefined) this.#id = line
      else if (name === nullName) absent = true
      else if (name === keyName) this.#key ??= line
      else if (name === timeName) this.#time ??= line
      else if (name === headerKindsName) this.#kinds ??= line
      else if (!serverNames.has(name)) lines.push(line)
      if (line === this.#id) lines.push(line)
    }
    this.nullPayload = absent
    this.#lines = lines
  }

  /** @throws DecodeError when it is not in base64 */
  get key(): Uint8Array | null {
    return this.#key === undefined ? null : unbase64(this.#value(this.#key).toString("latin1"), keyName)
  }

  /** The id, `undefined` for a message without one, and for one whose id is no UUID: that is among the headers. */
  get id(): MessageId | undefined {
    if (this.#id === undefined) return undefined
    const text = this.#value(this.#id).toString("latin1")
    if (!looksLikeUuid.test(text)) return undefined
    try {
      return parseMessageId(text)
    } catch (error) {
      if (error instanceof InvalidError) return undefined
      throw error
    }
  }

  /** @throws DecodeError when it is no decimal number */
  get originTimestampMicros(): bigint | undefined {
    if (this.#time === undefined) return undefined
    const text = this.#value(this.#time).toString("latin1")
    if (!/^-?\d{1,20}$/.test(text)) throw new DecodeError(`${timeName} has ${JSON.stringify(text)}, which is no time`)
    return BigInt(text)
  }

  /** The record's headers. Those of other clients are texts. @throws DecodeError when the block contradicts itself */
  headers(): Headers {
    if (this.#malformed !== undefined) {
      throw new DecodeError(`the header block has a line without a colon: ${JSON.stringify(this.#malformed)}`)
    }
    const id = this.#id !== undefined && this.id !== undefined ? this.#id : undefined
    const lines = this.#lines.filter((line) => line !== id)
    if (lines.length === 0 && this.#kinds === undefined) return Headers.empty
    const forms =
      this.#kinds === undefined
        ? undefined
        : this.#forms(this.#kinds, lines.filter((line) => !this.#isServers(line)).length)
    let index = 0
    return Headers.ofStored(
      lines.map((line) => {
        if (forms === undefined || this.#isServers(line)) {
          return [this.#name(line), HeaderValue.fromBytes(headerKindCodes.string, plainBytes(this.#value(line)))]
        }
        const { kind, form } = forms(index++)
        const name = (form & 2) === 0 ? this.#name(line) : unescaped(this.#name(line))
        const value = this.#value(line)
        const bytes = (form & 1) === 0 ? plainBytes(value) : unbase64(value.toString("latin1"), name)
        return [name, HeaderValue.fromBytes(headerKindCodes[kind], bytes)]
      }),
    )
  }

  /** Kind and form of each header. */
  #forms(line: Line, count: number): (index: number) => { readonly kind: HeaderKind; readonly form: number } {
    const [digits = "", given] = this.#value(line).toString("latin1").split(" ")
    const kinds = parseHeaderKinds(digits, count)
    if (given !== undefined && (given.length !== count || !/^[0-3]*$/.test(given))) {
      throw new DecodeError(`${headerKindsName} has ${JSON.stringify(given)} for the forms of ${count} headers`)
    }
    return (index) => {
      const kind = kinds[index] as HeaderKind
      return { kind, form: given === undefined ? (kind === "string" ? 0 : 1) : Number(given[index]) }
    }
  }

  #name(line: Line): string {
    return this.#block.toString("utf8", line.start, line.colon)
  }

  /** Behind the colon, without the one space that clients put there. */
  #value(line: Line): Buffer {
    const start = line.colon + 1
    return this.#block.subarray(this.#block[start] === 0x20 && start < line.end ? start + 1 : start, line.end)
  }

  /** A name of the server's, which this mapping never gives to a record's header. */
  #isServers(line: Line): boolean {
    return this.#block[line.start] === 0x4e && /^nats-/i.test(this.#name(line))
  }
}

/**
 * Whether a header block says that the payload is absent: what `RecordParts.nullPayload` tells, for readers that want nothing else.
 * @param bytes A block, perhaps with a payload behind it. @param length Of the block.
 */
export function tellsNull(bytes: Uint8Array, length: number): boolean {
  let start = lineEndIn(bytes, 0) + 2
  while (start >= 2 && start < length) {
    if (bytes[start] === 0x6d && isNullLine(bytes, start)) return start + nullLine.length <= length
    const end = lineEndIn(bytes, start)
    if (end === start) return false
    start = end + 2
  }
  return false
}

function isNullLine(bytes: Uint8Array, start: number): boolean {
  for (let at = 0; at < nullLine.length; at++) if (bytes[start + at] !== nullLine[at]) return false
  return true
}

/** Where the next line break begins; -1 when there is none. */
function lineEndIn(bytes: Uint8Array, from: number): number {
  let feed = bytes.indexOf(0x0a, from + 1)
  while (feed >= 0 && bytes[feed - 1] !== 0x0d) feed = bytes.indexOf(0x0a, feed + 1)
  return feed < 0 ? -1 : feed - 1
}

function colonIn(bytes: Uint8Array, start: number, stop: number): number {
  for (let at = start; at < stop; at++) if (bytes[at] === 0x3a) return at
  return -1
}

/** Where a line begins, its colon and its end, without the line break. */
interface Line {
  readonly start: number
  readonly colon: number
  readonly end: number
}

/** What the server or a batch adds to a message: no header of the record. */
const serverNames = new Set([
  "Nats-Batch-Id",
  "Nats-Batch-Sequence",
  "Nats-Batch-Commit",
  "Nats-Stream",
  "Nats-Subject",
  "Nats-Sequence",
  "Nats-Time-Stamp",
  "Nats-Last-Sequence",
  "Nats-Num-Pending",
  "Nats-UpTo-Sequence",
])

/** A record's parts; those of a message without headers are all absent. */
export function decodeRecord(block: Uint8Array | undefined): RecordParts {
  return block === undefined ? bare : new RecordParts(block)
}

const bare = new RecordParts(undefined)
const looksLikeUuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i
const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64")
}

function unbase64(text: string, what: string): Uint8Array {
  const bytes = Buffer.from(text, "base64")
  if (bytes.toString("base64") !== text) throw new DecodeError(`the header ${JSON.stringify(what)} is not in base64`)
  return plainBytes(bytes)
}

/** The same bytes without the methods of a `Buffer`, which never leave this package. */
function plainBytes(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

function unescaped(name: string): string {
  const text = name.startsWith(escapedName) ? name.slice(escapedName.length) : undefined
  if (text === undefined) throw new DecodeError(`the header name ${JSON.stringify(name)} is not escaped`)
  return Buffer.from(text, "base64url").toString("utf8")
}
