/** What users send: bytes, or records with a key, headers, an id and a time; checked and made ready for a batch writer. */
import {
  checkMessageId,
  Headers,
  type HeadersInit,
  InvalidError,
  type Manifest,
  type MessageId,
  RecordTooLargeError,
} from "@millrace/contract"
import { shown } from "../client/options.ts"

/**
 * One record to send. Payload and key are read until the send settles: do not change the bytes before.
 * As part of a `PublishFailedError` it carries the id, the time and the partition of its attempts, so that `topic.batch` can resend it.
 */
export interface OutgoingRecord {
  /** `null` is a tombstone, and distinct from an empty payload. */
  readonly payload: Uint8Array | null
  /** Routes the record and is stored with it. Text is stored as UTF-8. Not empty; not together with `partition`. */
  readonly key?: Uint8Array | string
  /** Where the record goes, 0 to the topic's partitions − 1. */
  readonly partition?: number
  /** Names that start with `millrace-` are reserved. */
  readonly headers?: HeadersInit
  /** Default: an id derived from the batch's UUIDv7. */
  readonly id?: MessageId
  /** The sender's time in µs since 1970. Default: the clock's when the batch is closed. */
  readonly timestampMicros?: bigint
}

/** A record that passed its checks: a batch writer takes it as it is. */
export interface PreparedRecord {
  readonly payload: Uint8Array | null
  readonly key: Uint8Array | null
  readonly headers: Headers
  readonly id: MessageId | undefined
  readonly timestampMicros: bigint | undefined
  /** −1: routed by the key, the partitioner or in balance. */
  readonly partition: number
}

/** What a producer sends: bare bytes need no object of their own. */
export type SendableRecord = Uint8Array | PreparedRecord

/** Who sends decides on two points. */
export interface PrepareOptions {
  /** Records of a failed publish: key and partition may come together, and reserved headers are theirs already. */
  readonly resend: boolean
  /** Headers that are Millrace's own, and known to be good: they, and others with reserved names, are taken. */
  readonly own?: Headers | undefined
}

type Limits = Manifest["limits"]

const utf8 = new TextEncoder()
const largestTime = (1n << 63n) - 1n
const plainSend: PrepareOptions = { resend: false }

/** Header names that only Millrace gives (table 1.11 of the options: record metadata). */
export const reservedPrefix: string = "millrace-"

/** @throws InvalidError for anything but bytes or `null`; RecordTooLargeError above the payload limit, before anything is copied. */
export function checkPayload(payload: unknown, limits: Limits): void {
  if (payload === null) return
  if (!(payload instanceof Uint8Array)) {
    throw new InvalidError(`a payload must be a Uint8Array, or null for a tombstone, not ${shown(payload)}`)
  }
  if (payload.length > limits.payloadBytes) throw tooLarge("payload", payload.length, limits.payloadBytes)
}

/** @throws InvalidError for an empty key or one that is neither bytes nor text; RecordTooLargeError above the key limit */
export function checkKey(key: unknown, limits: Limits): Uint8Array {
  const bytes = typeof key === "string" ? utf8.encode(wellFormed(key)) : key
  if (!(bytes instanceof Uint8Array))
    throw new InvalidError(`a key must be a Uint8Array or a string, not ${shown(key)}`)
  if (bytes.length === 0) {
    throw new InvalidError(
      `a key must not be empty: it has 1 to ${limits.keyBytes} bytes; leave it out to send without a key`,
    )
  }
  if (bytes.length > limits.keyBytes) throw tooLarge("key", bytes.length, limits.keyBytes)
  return bytes
}

/** @throws InvalidError unless it is a whole number from 0; whether the topic has it is checked against its description. */
export function checkPartitionNumber(partition: unknown): number {
  if (typeof partition === "number" && Number.isInteger(partition) && partition >= 0) return partition
  throw new InvalidError(`partition ${shown(partition)} is not a whole number from 0`)
}

/**
 * Checks one record and makes it ready.
 * @throws InvalidError, RecordTooLargeError
 */
export function prepareRecord(
  record: OutgoingRecord,
  limits: Limits,
  options: PrepareOptions = plainSend,
): PreparedRecord {
  if (typeof record !== "object" || record === null) {
    throw new InvalidError(`a record must be a Uint8Array or an object with a payload, not ${shown(record)}`)
  }
  return prepareFields(record.payload, record, { limits, resend: options.resend, own: options.own })
}

/**
 * `prepareRecord` for a payload that comes apart from the rest, without an object that joins them.
 * @throws InvalidError, RecordTooLargeError
 */
export function prepareFields(
  payload: Uint8Array | null,
  record: Omit<OutgoingRecord, "payload">,
  options: PrepareOptions & { readonly limits: Limits },
): PreparedRecord {
  const { limits } = options
  checkPayload(payload, limits)
  if (record.key !== undefined && record.partition !== undefined && !options.resend) {
    throw new InvalidError(
      `key and partition ${shown(record.partition)} exclude each other: a record is routed by one of them`,
    )
  }
  return {
    payload,
    key: record.key === undefined ? null : checkKey(record.key, limits),
    headers: checkHeaders(record.headers, limits, options),
    id: record.id === undefined ? undefined : checkMessageId(record.id),
    timestampMicros: record.timestampMicros === undefined ? undefined : checkTime(record.timestampMicros),
    partition: record.partition === undefined ? -1 : checkPartitionNumber(record.partition),
  }
}

/**
 * Checks every record of a call before the first is taken. Bare bytes stay as they are.
 * @throws InvalidError, RecordTooLargeError that names the record by its index: `record #3: …`
 */
export function prepareRecords(
  records: readonly (Uint8Array | OutgoingRecord)[],
  limits: Limits,
  options: PrepareOptions = plainSend,
): SendableRecord[] {
  if (!Array.isArray(records)) throw new InvalidError(`records must be an array, not ${shown(records)}`)
  const prepared = new Array<SendableRecord>(records.length)
  for (let i = 0; i < records.length; i++) {
    const record = records[i] as Uint8Array | OutgoingRecord
    if (record instanceof Uint8Array && record.length <= limits.payloadBytes) {
      prepared[i] = record
    } else {
      prepared[i] = indexed(i, () => prepareRecord(toRecord(record), limits, options))
    }
  }
  return prepared
}

/** Runs a check of one record; a failure says which record it was. */
export function indexed<T>(index: number, check: () => T): T {
  try {
    return check()
  } catch (error) {
    const message = `record #${index}: ${error instanceof Error ? error.message : String(error)}`
    if (error instanceof RecordTooLargeError)
      throw new RecordTooLargeError(message, { context: error.context, cause: error })
    throw new InvalidError(message, { cause: error })
  }
}

function toRecord(record: Uint8Array | OutgoingRecord): OutgoingRecord {
  return record instanceof Uint8Array ? { payload: record } : record
}

function checkHeaders(init: HeadersInit | undefined, limits: Limits, options: PrepareOptions): Headers {
  if (init === undefined) return Headers.empty
  if (init === options.own) return options.own
  if (typeof init !== "object" || init === null) {
    throw new InvalidError(`headers must be a Headers object, pairs or a record of values, not ${shown(init)}`)
  }
  const headers = Headers.from(init)
  let total = 0
  for (const [name, value] of headers) {
    if (!options.resend && options.own === undefined) refuseReserved(name)
    const nameBytes = utf8.encode(name).length
    if (nameBytes > limits.headerNameBytes)
      throw tooLarge(`header name ${shown(name)}`, nameBytes, limits.headerNameBytes)
    if (value.bytes.length > limits.headerValueBytes) {
      throw tooLarge(`value of header ${shown(name)}`, value.bytes.length, limits.headerValueBytes)
    }
    total += nameBytes + value.bytes.length
  }
  if (total > limits.headersBytes) throw tooLarge("header block (names and values)", total, limits.headersBytes)
  return headers
}

/** @throws InvalidError for a name that only Millrace gives */
export function refuseReserved(name: string): void {
  if (!name.startsWith(reservedPrefix)) return
  throw new InvalidError(
    `header ${shown(name)} is reserved: names that start with "${reservedPrefix}" are Millrace's own`,
  )
}

function checkTime(micros: unknown): bigint {
  if (typeof micros === "bigint" && micros >= 0n && micros <= largestTime) return micros
  throw new InvalidError(`timestampMicros ${shown(micros)} is not a bigint from 0 to ${largestTime}`)
}

function wellFormed(text: string): string {
  if (text.isWellFormed()) return text
  throw new InvalidError(`key ${shown(text)} has a lone surrogate, which UTF-8 cannot store`)
}

function tooLarge(what: string, sizeBytes: number, limitBytes: number): RecordTooLargeError {
  return new RecordTooLargeError(`the ${what} has ${sizeBytes} bytes; at most ${limitBytes} are allowed`, {
    context: { sizeBytes, limitBytes },
  })
}
