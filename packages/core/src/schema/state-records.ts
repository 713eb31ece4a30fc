/**
 * How schemas lie in the backend's small state, as JSON. No value of `hash` and `id` ever changes, and no key is ever deleted:
 *
 *     schema/next               { next }                            the lowest id that was never claimed
 *     schema/hash/<64 hex>      { id }                              the one id of what is this schema
 *     schema/id/<8 hex>         { type, schema, references }        the schema; comes after its hash, before any version
 *     schema/subject/<name>     { subject, compatibility?, ids }    the id of each version, oldest first
 *     schema/compatibility      { compatibility }                   of subjects without a setting of their own
 *
 * Each change is one value put over the revision that was read. Whoever dies between two of them leaves an id that nobody was told, or
 * a schema without a version: the next registration of the same schema goes on from there.
 */
import {
  CorruptionError,
  InvalidError,
  NotFoundError,
  RecordTooLargeError,
  type StateEntry,
  stateValueBytes,
} from "@millrace/contract"
import { nodeCrypto } from "@millrace/runtime"
import { shown } from "../client/options.ts"
import type { Compatibility, SchemaReference, SchemaType } from "./schema.ts"

/** The value under an id. */
export interface SchemaRow {
  readonly type: SchemaType
  readonly schema: string
  readonly references: readonly SchemaReference[]
}

/** The value of a subject; without versions when only its compatibility was set. */
export interface SubjectRow {
  readonly subject: string
  readonly compatibility?: Compatibility
  readonly ids: readonly number[]
}

/** The key of the counter. */
export const nextKey: string = "schema/next"
/** The key of the compatibility for all. */
export const compatibilityKey: string = "schema/compatibility"
/** What keys of ids begin with; eight hexadecimal digits follow. */
export const idPrefix: string = "schema/id/"
/** What keys of subjects begin with; see `subjectKey`. */
export const subjectPrefix: string = "schema/subject/"

/** The largest id: the header `millrace-sid` is a u32. */
export const largestId: number = 2 ** 32 - 1

/** The longest subject, in bytes of UTF-8. */
const mostSubjectBytes = 255
/** The longest key part that is the subject itself; longer ones are a hash, and the row has the name. */
const mostKeyCharacters = 200

const utf8 = new TextEncoder()
const strictUtf8 = new TextDecoder("utf-8", { fatal: true })

/** The key of a hash of `schemaHash`. */
export const hashKey = (hash: string): string => `schema/hash/${hash}`
/** The key of an id; their order is that of the ids. */
export const idKey = (id: number): string => `${idPrefix}${id.toString(16).padStart(8, "0")}`
/** The id of a key of `idKey`. */
export const idOfKey = (key: string): number => Number.parseInt(key.slice(idPrefix.length), 16)

/** @throws InvalidError unless it is a whole number from 0 to 2^32 − 1. */
export function checkSchemaId(id: unknown): number {
  if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id > largestId) {
    throw new InvalidError(`schema id ${shown(id)} is not a whole number from 0 to ${largestId}`)
  }
  return id
}

/** @throws InvalidError for a name that is empty, longer than 255 bytes, or not Unicode */
export function checkSubject(subject: unknown): string {
  if (typeof subject === "string" && subject.isWellFormed()) {
    const { length } = utf8.encode(subject)
    if (length >= 1 && length <= mostSubjectBytes) return subject
  }
  throw new InvalidError(`subject ${shown(subject)} must be text of 1 to ${mostSubjectBytes} bytes of UTF-8`)
}

/** Letters, digits, `-` and `_` stand for themselves, other bytes as `=` and two hex digits, so that any backend takes the key. */
export function subjectKey(subject: string): string {
  let part = ""
  for (const byte of utf8.encode(subject)) {
    const character = String.fromCharCode(byte)
    part += /[A-Za-z0-9_-]/.test(character) ? character : `=${byte.toString(16).padStart(2, "0")}`
  }
  if (part.length > mostKeyCharacters) part = `=${nodeCrypto().createHash("sha256").update(subject).digest("hex")}`
  return subjectPrefix + part
}

/** @throws RecordTooLargeError for more than a value of the state can have */
export function checkedRow(row: object, what: string): Uint8Array {
  const value = encodeRow(row)
  if (value.length <= stateValueBytes) return value
  throw new RecordTooLargeError(`${what} takes ${value.length} bytes; at most ${stateValueBytes} are allowed`, {
    context: { sizeBytes: value.length, limitBytes: stateValueBytes },
  })
}

/** A value as JSON in UTF-8. */
export function encodeRow(row: object): Uint8Array {
  return utf8.encode(JSON.stringify(row))
}

/** @throws CorruptionError when the value is not JSON */
export function decodeRow<T extends object>(entry: StateEntry): T {
  try {
    return JSON.parse(strictUtf8.decode(entry.value)) as T
  } catch (cause) {
    throw new CorruptionError(`the value of ${shown(entry.key)} in the backend's state is not JSON`, { cause })
  }
}

/** The error for an id that is nobody's, with `schemaId` in its context. */
export function unknownId(id: number): NotFoundError {
  return new NotFoundError(`schema id ${id} is not in the registry`, { context: { schemaId: id } })
}

/** The error for a subject without versions. */
export function unknownSubject(subject: string): NotFoundError {
  return new NotFoundError(`subject ${shown(subject)} is not in the registry`, { context: { subject } })
}

/** The error for a version that a subject does not have. */
export function unknownVersion(subject: string, version: number): NotFoundError {
  return new NotFoundError(`subject ${shown(subject)} has no version ${version}`, { context: { subject, version } })
}
