/** What a record says about itself to registries and views: reserved headers with the meaning of table 1.11 of the options. */
import { HeaderValue, InvalidError, RecordTooLargeError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import { reservedPrefix } from "./outgoing-record.ts"

/** How a payload is encoded. */
export type ContentType = "raw" | "json" | "msgpack" | "cbor" | "bson" | "avro" | "protobuf" | "arrow" | "ref" | "any"

const contentTypeCodes: Readonly<Record<ContentType, number>> = {
  raw: 0,
  json: 1,
  msgpack: 2,
  cbor: 3,
  bson: 4,
  avro: 5,
  protobuf: 6,
  arrow: 7,
  ref: 8,
  any: 255,
}

/**
 * Metadata of one record. Everything is optional. A text has 1 to 255 bytes of UTF-8, and the headers together at most 1,024 bytes,
 * where each counts its name, its value and 9 more.
 */
export interface RecordMetadata {
  /** Header `millrace-ct`, one byte. */
  readonly contentType?: ContentType
  /** Header `millrace-sid`, 0 to 2^32 − 1. */
  readonly schemaId?: number
  /** Header `millrace-sfp`, 32 bytes. Only with content type `arrow`, and required there: `addArrowIpc` computes it. */
  readonly schemaFingerprint?: Uint8Array
  /** Headers `millrace-idx.<key>`, at most 32. Keys are not empty and do not start with the prefix. */
  readonly index?: Readonly<Record<string, string>>
  /** Header `millrace-inline`: the payload is part of the record's projection. Then it has at most 8 MiB. */
  readonly inlinePayload?: boolean
  /** Header `millrace-ref`: which projection the record belongs to. */
  readonly projectionRef?: string
  /** Header `millrace-corr`: ties a reply to its request. */
  readonly correlation?: string
}

const mostIndexEntries = 32
const fingerprintBytes = 32
const mostTextBytes = 255
const mostMetadataBytes = 1024
/** What each header counts besides its name and value (table 1.11). */
const framingBytes = 9
const mostInlineBytes = 8 * 1024 * 1024

const utf8 = new TextEncoder()
const indexPrefix = `${reservedPrefix}idx.`

/**
 * The headers that carry the metadata, in a fixed order.
 * @throws InvalidError for values out of range, and for more than 1,024 bytes together
 */
export function metadataHeaders(metadata: RecordMetadata): (readonly [string, HeaderValue])[] {
  const entries: (readonly [string, HeaderValue])[] = []
  const add = (name: string, value: HeaderValue): void => void entries.push([`${reservedPrefix}${name}`, value])
  const { contentType, schemaId, schemaFingerprint, inlinePayload, projectionRef, correlation } = metadata
  if (contentType !== undefined) add("ct", HeaderValue.uint8(contentTypeCode(contentType)))
  if (schemaId !== undefined) add("sid", HeaderValue.uint32(schemaId))
  const fingerprint = checkFingerprint(schemaFingerprint, contentType)
  if (fingerprint !== undefined) add("sfp", HeaderValue.raw(fingerprint))
  for (const [key, value] of indexEntries(metadata.index))
    entries.push([`${indexPrefix}${key}`, textValue(`index entry ${shown(key)}`, value)])
  if (inlinePayload !== undefined) add("inline", HeaderValue.bool(inlinePayload))
  if (projectionRef !== undefined) add("ref", textValue("projection reference", projectionRef))
  if (correlation !== undefined) add("corr", textValue("correlation id", correlation))
  checkTotal(entries)
  return entries
}

/** @throws RecordTooLargeError when the payload is to be part of the projection and has more than 8 MiB */
export function checkInlinePayload(payload: Uint8Array | null, metadata: RecordMetadata): void {
  const sizeBytes = payload?.length ?? 0
  if (metadata.inlinePayload !== true || sizeBytes <= mostInlineBytes) return
  throw new RecordTooLargeError(
    `an inline payload has at most ${mostInlineBytes} bytes, not ${sizeBytes}: leave inlinePayload out for this record`,
    { context: { sizeBytes, limitBytes: mostInlineBytes } },
  )
}

/** A record's own metadata over a batch's: its values win, index entries merge with the record's last. */
export function mergeMetadata(batch: RecordMetadata, own: RecordMetadata): RecordMetadata {
  const merged = { ...batch, ...own }
  if (batch.index === undefined || own.index === undefined) return merged
  return { ...merged, index: { ...batch.index, ...own.index } }
}

function contentTypeCode(contentType: ContentType): number {
  const code = Object.hasOwn(contentTypeCodes, contentType) ? contentTypeCodes[contentType] : undefined
  if (code !== undefined) return code
  throw new InvalidError(
    `content type ${shown(contentType)} is not known: the types are ${Object.keys(contentTypeCodes).join(", ")}`,
  )
}

function checkFingerprint(bytes: Uint8Array | undefined, contentType: ContentType | undefined): Uint8Array | undefined {
  if (bytes === undefined) {
    if (contentType !== "arrow") return undefined
    throw new InvalidError(
      `the content type "arrow" needs a schema fingerprint: use arrowIpc() or addArrowIpc(), which compute it, or give schemaFingerprint`,
    )
  }
  if (!(bytes instanceof Uint8Array) || bytes.length !== fingerprintBytes) {
    throw new InvalidError(`a schema fingerprint has ${fingerprintBytes} bytes, not ${shown(bytes?.length)}`)
  }
  if (contentType === "arrow") return bytes
  throw new InvalidError(`a schema fingerprint needs the content type "arrow", not ${shown(contentType)}`)
}

function textValue(what: string, text: unknown): HeaderValue {
  if (typeof text !== "string") throw new InvalidError(`the ${what} must be a string, not ${shown(text)}`)
  const value = HeaderValue.string(text)
  const { length } = value.bytes
  if (length >= 1 && length <= mostTextBytes) return value
  throw new InvalidError(`the ${what} has ${length} bytes of UTF-8; it must have 1 to ${mostTextBytes}`)
}

function checkTotal(entries: readonly (readonly [string, HeaderValue])[]): void {
  let total = 0
  for (const [name, value] of entries) total += utf8.encode(name).length + value.bytes.length + framingBytes
  if (total <= mostMetadataBytes) return
  throw new InvalidError(
    `the metadata takes ${total} bytes in ${entries.length} headers; at most ${mostMetadataBytes} are allowed, ${framingBytes} for each header counted`,
  )
}

function indexEntries(index: RecordMetadata["index"]): [string, string][] {
  const entries = Object.entries(index ?? {})
  if (entries.length > mostIndexEntries) {
    throw new InvalidError(`a record has at most ${mostIndexEntries} index entries, not ${entries.length}`)
  }
  for (const [key] of entries) {
    if (key === "" || key.startsWith(reservedPrefix)) {
      throw new InvalidError(`index key ${shown(key)} must not be empty or start with "${reservedPrefix}"`)
    }
  }
  return entries
}
