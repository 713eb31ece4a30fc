/** What the Avro codec uses of `avsc`, and how it changes it: longs are bigints, bytes are a `Uint8Array` of their own. */
import { Buffer } from "node:buffer"
import { loadLibrary } from "./library.ts"

/** A type of `avsc`, as far as it is used here. Which of the last fields there are depends on `typeName`. */
export interface AvscType {
  readonly typeName: string
  readonly name?: string
  readonly size?: number
  readonly symbols?: readonly string[]
  readonly itemsType?: AvscType
  readonly valuesType?: AvscType
  readonly fields?: readonly { readonly name: string; readonly type: AvscType }[]
  readonly types?: readonly AvscType[]
  readonly underlyingType?: AvscType
  toBuffer(value: unknown): Uint8Array
  fromBuffer(bytes: Uint8Array, resolver?: AvscResolver): unknown
  isValid(value: unknown, options: AvscValidOptions): boolean
  createResolver(writer: AvscType): AvscResolver
  schema(options?: { readonly exportAttrs?: boolean; readonly noDeref?: boolean }): unknown
}

/** How a reader's type takes what a writer's type wrote. */
export interface AvscResolver {
  readonly "avsc resolver"?: never
}

interface AvscValidOptions {
  readonly noUndeclaredFields: boolean
  readonly errorHook: (path: readonly string[], value: unknown, type: AvscType) => void
}

interface AvscTypeOptions {
  readonly registry?: Record<string, AvscType>
  readonly typeHook?: (schema: unknown, options: AvscTypeOptions) => AvscType | undefined
  readonly omitRecordMethods?: boolean
}

type LogicalConstructor = abstract new (schema: object, options: object) => AvscType

/** The exports of `avsc` that are used. */
export interface AvscLibrary {
  readonly Type: { forSchema(schema: unknown, options: AvscTypeOptions): AvscType }
  readonly types: {
    readonly LongType: { __with(methods: object): AvscType }
    readonly LogicalType: LogicalConstructor
  }
}

/** @throws UnsupportedError when `avsc` is not installed */
function avscLibrary(): AvscLibrary {
  return loadLibrary<AvscLibrary>("avsc", "Avro")
}

/**
 * A type whose longs are bigints and whose bytes are `Uint8Array`. Named types are kept in `registry`, where schemas that come later find
 * them.
 * @throws whatever `avsc` throws for a schema that is none
 */
export function avscType(schema: unknown, registry: Record<string, AvscType>): AvscType {
  const { Type } = avscLibrary()
  const longType = longs()
  const BytesType = bytesTypes()
  const inside = new Set<unknown>()
  const typeHook = (inner: unknown, options: AvscTypeOptions): AvscType | undefined => {
    const type = typeof inner === "object" && inner !== null ? (inner as { readonly type?: unknown }).type : inner
    if (type === "long") return longType
    if ((type !== "bytes" && type !== "fixed") || inside.has(inner)) return undefined
    const attributes = typeof inner === "object" && inner !== null ? { ...inner } : { type }
    inside.add(attributes)
    return new BytesType(attributes, options)
  }
  return Type.forSchema(schema, { registry, typeHook, omitRecordMethods: true })
}

let longType: AvscType | undefined

function longs(): AvscType {
  longType ??= avscLibrary().types.LongType.__with({
    fromBuffer: (bytes: Buffer) => bytes.readBigInt64LE(),
    toBuffer: (value: bigint) => {
      const bytes = Buffer.alloc(8)
      bytes.writeBigInt64LE(value)
      return bytes
    },
    fromJSON: (value: number) => BigInt(value),
    toJSON: (value: bigint) => Number(value),
    isValid: (value: unknown) => typeof value === "bigint" && BigInt.asIntN(64, value) === value,
    compare: (one: bigint, other: bigint) => (one < other ? -1 : one > other ? 1 : 0),
  })
  return longType
}

type BytesConstructor = new (schema: object, options: object) => AvscType
let bytesType: BytesConstructor | undefined

function bytesTypes(): BytesConstructor {
  bytesType ??= class extends (avscLibrary().types.LogicalType as new (schema: object, options: object) => AvscType) {
    _fromValue(value: Uint8Array | undefined): Uint8Array {
      return new Uint8Array(value ?? [])
    }
    _toValue(value: unknown): Buffer | undefined {
      if (!(value instanceof Uint8Array)) return undefined
      return Buffer.from(value.buffer, value.byteOffset, value.byteLength)
    }
    _resolve(writer: AvscType): ((value: unknown) => Uint8Array) | undefined {
      const inner = writer.underlyingType ?? writer
      this.underlyingType?.createResolver(inner)
      return (value) => (typeof value === "string" ? utf8.encode(value) : new Uint8Array(value as Uint8Array))
    }
  }
  return bytesType
}

const utf8 = new TextEncoder()
