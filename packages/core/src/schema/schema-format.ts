/** What differs between the types of schema. Each type has one format, whose library is loaded with the first schema of that type. */
import type { ContentType } from "../record/metadata.ts"
import type { Incompatibility, SchemaType } from "./schema.ts"

/** A schema with the texts of all that it uses. */
export interface ResolvedSchema {
  readonly type: SchemaType
  readonly schema: string
  /** What it uses, and what that uses: what is used comes before what uses it, and no name twice. */
  readonly dependencies: readonly SchemaDependency[]
}

/** One schema that another uses. */
export interface SchemaDependency {
  /** As the using schema calls it. */
  readonly name: string
  readonly schema: string
}

/** What can be done with schemas of one type. */
export interface SchemaFormat {
  readonly contentType: ContentType
  /** @throws InvalidError when it does not parse, UnsupportedError when the type's library is not installed */
  check(schema: ResolvedSchema): void
  /** Why `reader` cannot read what `writer` wrote; empty when it can. Both were checked. */
  incompatibilities(reader: ResolvedSchema, writer: ResolvedSchema): Reason[]
  /** @throws InvalidError for a message that the schema does not have */
  codec(schema: ResolvedSchema, options: FormatOptions): FormatCodec
}

/** An incompatibility of two schemas, of whatever versions they are. */
export type Reason = Pick<Incompatibility, "path" | "message">

/** What a codec has to know besides its schema. */
export interface FormatOptions {
  /** The full name of the message of a Protobuf schema. Default: its first. */
  readonly message?: string | undefined
}

/** What payloads of one schema stand for. */
export interface FormatReader {
  decode(payload: Uint8Array): unknown
  /**
   * Where the message that is read stands in the schema that wrote it, as Confluent's serializers write it before the payload. Absent where
   * that schema has no such message; only Protobuf has any.
   */
  readonly messageIndex?: readonly number[] | undefined
}

/** Values of one schema. */
export interface FormatCodec extends FormatReader {
  encode(value: unknown): Uint8Array
  /**
   * Reads payloads that another schema of the type wrote, as values of this one.
   * @throws InvalidError when they cannot be read
   */
  reads(writer: ResolvedSchema): FormatReader
}
