/** How a Kafka message is laid out, as data. The tables are generated from Kafka's own definitions (`messages.generated.ts`). */

/** Versions `[first, last]` of a message, both included. */
export type Versions = readonly [first: number, last: number]

/** The types of the protocol that are in use (Kafka protocol guide, "Protocol Primitive Types"). */
export type WireType =
  | "bool"
  | "int8"
  | "int16"
  | "int32"
  | "int64"
  | "uuid"
  | "string"
  | "bytes"
  | "records"
  | "struct"

/** One field of a message or of a struct in it. */
export interface FieldSchema {
  readonly name: string
  /** Of the elements, when it is an array. */
  readonly type: WireType
  readonly array?: true
  readonly versions: Versions
  readonly nullable?: Versions
  /** Versions in which the field stands in the tagged section, under `tag`. */
  readonly tagged?: Versions
  readonly tag?: number
  /** What the field has where it is absent; by default the type's zero. */
  readonly initial?: number | bigint | boolean | string | null
  /** A value is dropped in versions that lack the field; otherwise it is refused there, unless it is the initial one. */
  readonly ignorable?: true
  /** Of a struct. */
  readonly fields?: readonly FieldSchema[]
}

/** One message: a request, a response, or a message inside a bytes field. */
export interface MessageSchema {
  readonly name: string
  /** The API key; −1 for messages inside others. */
  readonly key: number
  /** The versions that brokers of Kafka 4 take and that are stable. */
  readonly versions: Versions
  /** The first version with compact lengths and tagged fields; absent: none. */
  readonly flexible?: number
  readonly fields: readonly FieldSchema[]
}
