import { Buffer } from "node:buffer"
import { InvalidError } from "@millrace/contract"
import { OptionReader, shown } from "../client/options.ts"
import { type AvscType, avscType } from "./avro-library.ts"
import { type AvroScan, avroScan } from "./avro-scan.ts"
import type { Codec } from "./codec.ts"
import { encodeFailure } from "./failure.ts"
import { binaryLevels, checkPlain, type PlainRules } from "./plain-values.ts"
import { plainView } from "./utf8.ts"

/** A schema of Avro, as JSON text or as what that parses to. */
export type AvroSchema = string | object

/** What an Avro codec may be told besides its schema. */
export interface AvroOptions {
  /** Schemas of named types that the schema uses, each behind those that it uses itself. */
  readonly references?: readonly AvroSchema[]
  /** What wrote the payloads, where that was another schema: they are read by it and resolved to this one. Default: this one. */
  readonly writer?: AvroSchema
}

/**
 * Avro payloads: the binary encoding of one value, without a header. Needs the package `avsc`.
 *
 * `long` is a bigint and takes nothing else, `bytes` and `fixed` are a `Uint8Array`, an `enum` its symbol. Records are objects of a class
 * of their own. A union of types that JavaScript tells apart is the plain value (`null` or a string), any other is wrapped, as in Avro's
 * JSON: `{ int: 5 }`. Logical types are what is under them.
 */
export class Avro<T> implements Codec<T> {
  readonly name: string = "Avro"
  readonly contentType: "avro" = "avro"
  readonly #type: AvscType
  readonly #scan: AvroScan
  readonly #read: ((payload: Uint8Array) => T) | undefined

  /** @throws InvalidError for a schema that is none, or that cannot read what `writer` wrote; UnsupportedError without `avsc` */
  constructor(schema: AvroSchema, options?: AvroOptions) {
    new OptionReader<AvroOptions>("new Avro", options, ["references", "writer"])
    this.#type = parseSchema(schema, options?.references ?? [])
    this.#scan = avroScan(this.#type)
    const writer = options?.writer
    this.#read =
      writer === undefined ? undefined : this.reads(new Avro(writer, { references: options?.references ?? [] }))
  }

  /** @throws InvalidError for a value that does not fit the schema, with its path; fields that the schema lacks are refused too */
  encode(value: T): Uint8Array {
    checkPlain(value, avroRules)
    let fault: string | undefined
    try {
      const errorHook = (path: readonly string[], part: unknown, type: AvscType): void => {
        fault ??= faultText(path, { part, type })
      }
      if (this.#type.isValid(value, { noUndeclaredFields: true, errorHook }))
        return plainView(this.#type.toBuffer(value))
    } catch (cause) {
      throw encodeFailure("Avro", value, cause)
    }
    throw new InvalidError(`the value does not fit the Avro schema: ${fault ?? shown(value)}`)
  }

  /** @throws DecodeError or an error of `avsc` for bytes that are not one value of the schema */
  decode(payload: Uint8Array): T {
    if (this.#read !== undefined) return this.#read(payload)
    this.#scan(payload)
    return this.#type.fromBuffer(asBuffer(payload)) as T
  }

  /**
   * Reads what another schema wrote as values of this one, by Avro's rules of schema resolution.
   * @throws InvalidError when this schema cannot read it, with the reason; the function throws as `decode` does
   */
  reads(writer: Avro<unknown>): (payload: Uint8Array) => T {
    const type = this.#type
    const scan = writer.#scan
    try {
      const resolver = type.createResolver(writer.#type)
      return (payload) => {
        scan(payload)
        return type.fromBuffer(asBuffer(payload), resolver) as T
      }
    } catch (cause) {
      const mismatch = `a ${typeText(type)} cannot be read from a ${typeText(writer.#type)}`
      const why = cause instanceof TypeError || !(cause instanceof Error) ? mismatch : cause.message
      throw new InvalidError(`the Avro schema cannot read what the writer's schema writes: ${why}`, { cause })
    }
  }
}

/** `new Avro<T>(schema, options)`: `T` is said by the caller, and the schema checks every value against itself. */
export function avro<T = unknown>(schema: AvroSchema, options?: AvroOptions): Avro<T> {
  return new Avro<T>(schema, options)
}

function parseSchema(schema: AvroSchema, references: readonly AvroSchema[]): AvscType {
  const registry: Record<string, AvscType> = {}
  for (const reference of references) parseOne(reference, registry)
  return parseOne(schema, registry)
}

function parseOne(schema: AvroSchema, registry: Record<string, AvscType>): AvscType {
  try {
    return avscType(typeof schema === "string" ? parseText(schema) : schema, registry)
  } catch (cause) {
    if (!(cause instanceof Error) || "kind" in cause) throw cause
    throw new InvalidError(`the Avro schema does not parse: ${cause.message}`, { cause })
  }
}

/** A name of a type may stand without quotes: `long`. */
function parseText(text: string): unknown {
  return /^[\w.]+$/.test(text.trim()) ? text.trim() : JSON.parse(text)
}

function asBuffer(payload: Uint8Array): Buffer {
  return Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength)
}

function faultText(
  path: readonly string[],
  { part, type }: { readonly part: unknown; readonly type: AvscType },
): string {
  const at = path.length === 0 ? "the top" : path.join(".")
  if (type.fields !== undefined && typeof part === "object" && part !== null) {
    const names = new Set(type.fields.map((field) => field.name))
    const extra = Object.keys(part).find((key) => !names.has(key))
    if (extra !== undefined) return `the field ${shown(extra)} at ${at} is not in the record ${type.name}`
  }
  return `${part === undefined ? "nothing" : shown(part)} at ${at} is no ${typeText(type)}`
}

function typeText(type: AvscType): string {
  if (type.typeName === "abstract:long") return "long (a bigint of 64 bits)"
  return type.underlyingType?.typeName ?? (type.name === undefined ? type.typeName : `${type.typeName} ${type.name}`)
}

const avroRules: PlainRules = {
  codec: "Avro",
  bigints: { min: -(2n ** 63n), max: 2n ** 63n - 1n },
  nonFinite: true,
  undefinedValues: true,
  bytes: true,
  dates: false,
  loneSurrogates: false,
  maps: "none",
  protoKey: false,
  toJson: false,
  mostLevels: binaryLevels,
}
