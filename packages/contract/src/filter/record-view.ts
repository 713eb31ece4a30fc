/** One record as the tests of a filter look at it: nothing is decoded before a test asks, and nothing twice. */
import { DecodeError } from "../error.ts"
import type { HeaderValue } from "../header-value.ts"
import { Headers } from "../headers.ts"
import type { PathSegment } from "./field-path.ts"
import type { FilterCodec } from "./filter.ts"
import { exactJsonNumber, exactJsonNumbers } from "./json-number.ts"
import { decodePayload, isOversized, isSealed, valueAt } from "./payload.ts"
import { fault, foreign, type Truth, yes } from "./truth.ts"

/** Where records come from; a batch as it was read is one. */
export interface RecordSource {
  payload(index: number): Uint8Array | null
  /** @throws DecodeError when the header block is malformed */
  headers(index: number): Headers
}

/**
 * Why a record could not be decided: its payload does not decode, is too large to be decoded, or a text in it too long for its pattern; its
 * headers do not decode; it is of another codec, or encrypted; a value has a type that a test cannot compare.
 */
export type FilterReason = "malformed" | "too-large" | "too-costly" | "headers" | "foreign" | "encrypted" | "mismatch"

/** A reason in words. */
export interface Difficulty {
  readonly reason: FilterReason
  readonly detail: string
}

/** The header with the code of the payload's content type (table 1.11), and the codes of the codecs. */
const contentTypeHeader = "millrace-ct"
const codecCodes: Readonly<Record<FilterCodec, number | undefined>> = { json: 1, cbor: 3, headersOnly: undefined }
/** Codes of content types that are known, but for `any`. A code that is not known says nothing. */
const lastKnownCode = 8

/** `envelope.ts` of the encryption: what an encrypted tombstone has beside its headers. */
const sealedHeader = "millrace-sealed"

const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })
const nowhere: RecordSource = { payload: () => null, headers: () => Headers.empty }
/** Numbers from here on may have been rounded. */
const roundedFrom = 2 ** 53

/** Turned to one record after the other. */
export class RecordView {
  readonly #codec: FilterCodec
  #source: RecordSource = nowhere
  #index = 0
  #headers: Headers | undefined
  /** `yes` when the payload is decoded, `undefined` before. */
  #opened: Truth | undefined
  #value: unknown
  #text: string | undefined
  /** Steps times characters that patterns were matched over, for all records so far. */
  work = 0
  /** Why the record was found a fault, and why foreign. */
  fault: Difficulty | undefined
  foreign: Difficulty | undefined

  constructor(codec: FilterCodec) {
    this.#codec = codec
  }

  /** Turns to a record. */
  look(source: RecordSource, index: number): void {
    this.#source = source
    this.#index = index
    this.#headers = undefined
    this.#opened = undefined
    this.#value = undefined
    this.#text = undefined
    this.fault = undefined
    this.foreign = undefined
  }

  /** Keeps nothing of the record alive. */
  leave(): void {
    this.#source = nowhere
    this.#headers = undefined
    this.#value = undefined
    this.#text = undefined
  }

  /**
   * The first header of a name as a value to compare; `undefined` where there is none. Answers `fault` when headers do not decode, and
   * `foreign` when it may be among those that are encrypted.
   */
  header(name: string): { readonly value: unknown } | typeof fault | typeof foreign | undefined {
    const headers = this.#readHeaders()
    if (headers === undefined) return fault
    const found = headers.get(name)
    if (found !== undefined) return { value: headerScalar(found) }
    const payload = this.#source.payload(this.#index)
    const sealed = payload === null ? headers.has(sealedHeader) : isSealed(payload)
    return sealed ? this.#encrypted("headers are") : undefined
  }

  /** Decodes the payload: `yes`, or why it has no fields to look at. */
  open(): Truth {
    this.#opened ??= this.#open()
    return this.#opened
  }

  /** The value at a path of the payload, once it is open. */
  field(path: readonly PathSegment[]): unknown {
    const value = valueAt(this.#value, path)
    if (typeof value !== "number" || Math.abs(value) < roundedFrom || this.#text === undefined) return value
    return exactJsonNumber(this.#text, path) ?? value
  }

  /** The elements of a list at a path. */
  elements(list: readonly unknown[], path: readonly PathSegment[]): readonly unknown[] {
    const rounded = list.some((value) => typeof value === "number" && Math.abs(value) >= roundedFrom)
    if (!rounded || this.#text === undefined) return list
    const exact = exactJsonNumbers(this.#text, path)
    return list.map((value, i) => exact[i] ?? value)
  }

  /** Notes why the record cannot be decided. */
  failed(reason: FilterReason, detail: string): typeof fault {
    this.fault = { reason, detail }
    return fault
  }

  #open(): Truth {
    const bytes = this.#source.payload(this.#index)
    // A tombstone has no fields.
    if (bytes === null) return yes
    if (isSealed(bytes)) return this.#encrypted("payload is")
    const headers = this.#readHeaders()
    if (headers === undefined) return fault
    const code = foreignCode(headers, this.#codec)
    if (code !== undefined) {
      const detail = `header ${contentTypeHeader} is ${code}, and the filter reads ${this.#codec}`
      this.foreign = { reason: "foreign", detail }
      return foreign
    }
    if (isOversized(bytes)) return this.failed("too-large", `the payload has ${bytes.length} bytes`)
    try {
      const { value, text } = decodePayload(this.#codec, bytes)
      this.#value = value
      this.#text = text
      return yes
    } catch (error) {
      return this.failed("malformed", `the payload is not ${this.#codec}: ${(error as Error).message}`)
    }
  }

  #encrypted(what: string): typeof foreign {
    this.foreign = { reason: "encrypted", detail: `the ${what} encrypted` }
    return foreign
  }

  #readHeaders(): Headers | undefined {
    if (this.#headers !== undefined) return this.#headers
    try {
      this.#headers = this.#source.headers(this.#index)
      return this.#headers
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error
      this.failed("headers", error.message)
      return undefined
    }
  }
}

function foreignCode(headers: Headers, codec: FilterCodec): number | undefined {
  if (headers.size === 0) return undefined
  const found = headers.get(contentTypeHeader)
  if (found === undefined) return undefined
  const code = headerScalar(found)
  if (typeof code !== "number" || code < 0 || code > lastKnownCode || code === codecCodes[codec]) return undefined
  return code
}

/** Bytes that are text read as text, since backends without kinds keep texts so. */
function headerScalar(header: HeaderValue): unknown {
  if (header.kind !== "raw" && header.kind !== "string") return header.value
  try {
    return strictUtf8.decode(header.bytes)
  } catch {
    return header.bytes
  }
}
