/** The parts of the library's Avro types that schemas look at, so that no type of the library is named in Millrace's own. */

/** A parsed schema, or a part of one. */
export interface AvroType {
  /** `record`, `int`, `union:wrapped`, … */
  readonly typeName: string
  /** The full name of a record, an enum or a fixed. */
  readonly name?: string
  readonly aliases?: readonly string[]
  readonly fields?: readonly AvroField[]
  readonly symbols?: readonly string[]
  /** The default symbol of an enum. */
  readonly default?: string
  readonly size?: number
  readonly types?: readonly AvroType[]
  readonly itemsType?: AvroType
  readonly valuesType?: AvroType
  /** What a logical type is made of. */
  readonly underlyingType?: AvroType
}

/** A field of a record. `defaultValue` answers `undefined` without a default. */
export interface AvroField {
  readonly name: string
  readonly aliases: readonly string[]
  readonly type: AvroType
  defaultValue(): unknown
}
