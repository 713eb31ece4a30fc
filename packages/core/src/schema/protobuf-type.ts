/** The parts of the library's Protobuf objects that schemas look at, so that no type of the library is named in Millrace's own. */

/** The exports that are used. */
export interface ProtobufLibrary {
  readonly Root: new () => ProtobufRoot
  readonly Type: new (...args: never[]) => ProtobufMessage
  readonly Enum: new (...args: never[]) => ProtobufEnum
  readonly common: { get(file: string): { readonly nested?: object } | null }
  parse(text: string, root: ProtobufRoot, options: { readonly keepCase?: boolean }): ParsedProtobuf
}

/** What a file says of itself. */
export interface ParsedProtobuf {
  readonly package?: string
  readonly imports?: readonly string[]
  readonly weakImports?: readonly string[]
}

/** Anything that has a name and may have others within. */
export interface ProtobufNamespace {
  readonly name: string
  /** With a dot in front; empty for the root. */
  readonly fullName: string
  /** In the order of the text. */
  readonly nestedArray?: readonly ProtobufNamespace[]
}

/** Where files are parsed into, all into one. */
export interface ProtobufRoot extends ProtobufNamespace {
  addJSON(nested: object): unknown
  resolveAll(): unknown
  lookup(path: string): ProtobufNamespace | null
}

/** A message with its own fields. */
export interface ProtobufMessage extends ProtobufNamespace {
  readonly fieldsArray: readonly ProtobufField[]
  readonly oneofsArray: readonly { readonly name: string; readonly fieldsArray: readonly ProtobufField[] }[]
  /** Ranges of numbers, both ends within, and names. */
  readonly reserved?: readonly (readonly [first: number, last: number] | string)[]
}

/** An enum, which is closed when `_features` says so. */
export interface ProtobufEnum extends ProtobufNamespace {
  readonly values: Readonly<Record<string, number>>
  readonly reserved?: ProtobufMessage["reserved"]
  readonly _features?: { readonly enum_type?: string }
}

/** A field, of whatever shape. */
export interface ProtobufField {
  readonly name: string
  readonly id: number
  /** As written: `int32`, `a.b.Message`. */
  readonly type: string
  readonly repeated: boolean
  readonly required: boolean
  readonly map: boolean
  readonly keyType?: string
  /** Encoded as a group. */
  readonly delimited: boolean
  readonly resolvedType: ProtobufMessage | ProtobufEnum | null
}
