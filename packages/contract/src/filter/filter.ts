/**
 * Filters of consumer groups, as plain data (seed 000, "Receive only matching records"; table 1.13 of the options). A filter is data and
 * never code: it can be stored, compared and evaluated next to the log.
 */
import type { TopicName } from "../position.ts"

/** A value that a field is compared with. Whole numbers beyond 2^53 − 1 are written as bigint, so that no digit is lost. */
export type FilterScalar = string | number | bigint | boolean | null

/**
 * What the field and the value are read as before they are compared: an exact decimal number (`"12.50"` and `12.5` are equal), or an
 * instant, written as RFC 3339 text or as a whole number of seconds, milliseconds or microseconds since 1970.
 */
export type FilterCoercion = "number" | "rfc3339" | "epochSeconds" | "epochMillis" | "epochMicros"

/** Where a value stands: in the payload (`a.b[0]`; `\` before `.`, `[`, `]` and `\` in a key), or in a header of exactly this name. */
export type FilterPlace =
  | { readonly path: string; readonly header?: undefined }
  | { readonly header: string; readonly path?: undefined }

/** A comparison by equality. `null` is met by an absent field too. */
export interface EqualityTest {
  readonly op: "eq" | "ne"
  readonly value: FilterScalar
  readonly as?: FilterCoercion
}

/** A comparison by order: numbers by value, texts by their code points. */
export interface OrderTest {
  readonly op: "lt" | "lte" | "gt" | "gte"
  readonly value: string | number | bigint
  readonly as?: FilterCoercion
}

/** Equal to one of 1 to 64 values. */
export interface MembershipTest {
  readonly op: "in"
  readonly value: readonly FilterScalar[]
  readonly as?: FilterCoercion
}

/** A text that holds this one, or a list that holds this value. */
export interface ContainsTest {
  readonly op: "contains"
  readonly value: FilterScalar
  /** Default false. Only for a text. */
  readonly caseInsensitive?: boolean
}

/** A test of a text: the whole (`equals`), its beginning, its end, a glob over the whole, a regular expression anywhere in it. */
export interface TextTest {
  readonly op: "equals" | "prefix" | "suffix" | "glob" | "regex"
  readonly value: string
  /** Default false. */
  readonly caseInsensitive?: boolean
}

/** Whether the field is there at all; `null` is there. */
export interface PresenceTest {
  readonly op: "present" | "absent"
}

/** One test of one field or header. */
export type FilterTest = FilterPlace &
  (EqualityTest | OrderTest | MembershipTest | ContainsTest | TextTest | PresenceTest)

/** An expression over one record, in three-valued logic: a field that is missing makes a test unknown, and unknown selects nothing. */
export type FilterExpression =
  | { readonly all: readonly FilterExpression[] }
  | { readonly any: readonly FilterExpression[] }
  | { readonly not: FilterExpression }
  | FilterTest

/** How payloads are decoded. `headersOnly` never looks at them. */
export type FilterCodec = "json" | "cbor" | "headersOnly"

/** A filter as it is written. */
export interface Filter {
  readonly where: FilterExpression
  /** Default "json". */
  readonly codec?: FilterCodec
  /**
   * A record whose payload the codec cannot decode, or whose evaluation is above a bound: `stop` (the default) stops the partition with a
   * DecodeError before it, `pass` delivers it, `drop` leaves it out.
   */
  readonly fault?: "stop" | "pass" | "drop"
  /** A record of another codec, by its header `millrace-ct`, or an encrypted one: left out (`reject`, the default), or delivered. */
  readonly foreign?: "reject" | "pass"
  /** A record that cannot be decided since a value has a type that the test cannot compare: left out (`reject`, the default), or delivered. */
  readonly mismatch?: "reject" | "pass"
}

/** A filter that was checked: all defaults filled in, nothing in it that is not known. Plain data that can cross a thread. */
export interface CheckedFilter {
  readonly where: FilterExpression
  readonly codec: FilterCodec
  readonly fault: "stop" | "pass" | "drop"
  readonly foreign: "reject" | "pass"
  readonly mismatch: "reject" | "pass"
}

/** The filter of one topic, for a reader of several. */
export interface TopicFilter extends TopicName {
  readonly filter: CheckedFilter
}

/** Bounds of filters (table 1.13), and of the work that one record may cause. */
export const filterLimits: FilterLimits = {
  filterBytes: 8192,
  nodes: 128,
  depth: 8,
  pathSegments: 16,
  pathBytes: 256,
  listItems: 64,
  stringBytes: 1024,
  patterns: 4,
  patternSteps: 512,
  patternWork: 1 << 24,
  payloadBytes: 1 << 20,
  payloadDepth: 64,
  examinedRecords: 100_000,
  examinedBytes: 1 << 20,
}

/** What `filterLimits` has. */
export interface FilterLimits {
  /** Of the canonical text of a filter, in UTF-8. */
  readonly filterBytes: number
  /** Tests and operators together. */
  readonly nodes: number
  /** The root has depth 1. */
  readonly depth: number
  readonly pathSegments: number
  /** Of a path as written, in UTF-8. */
  readonly pathBytes: number
  readonly listItems: number
  /** Of a text value, pattern or header name, in UTF-8. */
  readonly stringBytes: number
  /** Tests by `glob` and `regex` together. */
  readonly patterns: number
  /** Steps of one pattern, once its repetitions are written out. */
  readonly patternSteps: number
  /** A text of n characters under a pattern of m steps is matched up to this n · m, and is a fault above; a turn of a filtered read ends there. */
  readonly patternWork: number
  /** A larger payload is not decoded: a fault. */
  readonly payloadBytes: number
  /** Nesting of a CBOR payload. */
  readonly payloadDepth: number
  /** Records that one turn of a filtered read examines. */
  readonly examinedRecords: number
  /** Bytes of batches that one turn examines, unless the first batch alone is larger. */
  readonly examinedBytes: number
}
