/** What the Protobuf codec uses of `protobufjs`. The types say only what is read here. */
import { loadLibrary } from "./library.ts"

/** A message type of `protobufjs`: `root.lookupType("shop.Order")`. */
export interface ProtobufType {
  readonly name: string
  readonly fullName: string
  readonly fieldsArray: readonly ProtobufField[]
  readonly fields: Readonly<Record<string, ProtobufField>>
  encode(message: object): { finish(): Uint8Array }
  /** Takes a reader of the library as well. */
  decode(bytes: Uint8Array): object
}

/** A field of a message type. */
export interface ProtobufField {
  readonly name: string
  readonly type: string
  /** Of a map only. */
  readonly keyType?: string
  readonly map: boolean
  readonly repeated: boolean
  readonly required: boolean
  /** Whether absence is told apart from the default value. */
  readonly hasPresence: boolean
  /** The message type or enum that the field is of. */
  readonly resolvedType: object | null
  readonly partOf: { readonly name: string; readonly oneof: readonly string[] } | null
  readonly defaultValue: unknown
  resolve(): ProtobufField
}

/** An enum of `protobufjs`. */
export interface ProtobufEnum {
  readonly values: Readonly<Record<string, number>>
  readonly valuesById: Readonly<Record<number, string>>
}

/** A 64-bit integer as `protobufjs` has it. */
export interface ProtobufLong {
  readonly low: number
  readonly high: number
  readonly unsigned: boolean
}

/** Where `protobufjs` reads from. */
export interface ProtobufReader {
  readonly pos: number
  readonly len: number
}

/** An integer of 64 bits. Its low half may be negative, as bits of an int32. */
export function bigintOf(long: ProtobufLong | number): bigint {
  if (typeof long === "number") return BigInt(long)
  const bits = (BigInt(long.high >>> 0) << 32n) | BigInt(long.low >>> 0)
  return long.unsigned ? bits : BigInt.asIntN(64, bits)
}

/** The exports of `protobufjs` that are used. */
export interface ProtobufLibrary {
  /** The well-known types, by the name of their file. */
  readonly common: { get(file: string): { readonly nested?: object } | null }
  readonly Type: abstract new (...parameters: never[]) => ProtobufType
  readonly Enum: abstract new (...parameters: never[]) => ProtobufEnum
  readonly Reader: new (bytes: Uint8Array) => ProtobufReader
  readonly util: {
    readonly Long: { fromBits(low: number, high: number, unsigned: boolean): ProtobufLong }
    longFromHash(hash: string, unsigned: boolean): ProtobufLong
  }
  parse(
    source: string,
    options?: { readonly keepCase?: boolean },
  ): { readonly root: ProtobufRoot; readonly imports?: readonly string[] }
}

/** Everything that one or more `.proto` texts define. */
export interface ProtobufRoot {
  addJSON(nested: object): unknown
  lookupType(name: string): ProtobufType
  resolveAll(): ProtobufRoot
}

/** @throws UnsupportedError when `protobufjs` is not installed */
export function protobufLibrary(): ProtobufLibrary {
  return loadLibrary<ProtobufLibrary>("protobufjs", "Protobuf")
}
