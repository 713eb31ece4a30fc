/**
 * Between messages of `protobufjs` and plain values. On the way in every field is checked, since the library writes a text for a number as 0
 * and leaves out what it does not know; on the way out 64-bit integers become bigints.
 */
import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import {
  bigintOf,
  type ProtobufEnum,
  type ProtobufField,
  type ProtobufLibrary,
  type ProtobufLong,
  type ProtobufType,
} from "./protobuf-library.ts"

/** As deep as the library and the reference implementation read. */
const mostLevels = 100

/** Values of one library, checked and converted. */
export class ProtobufValues {
  readonly #library: ProtobufLibrary

  constructor(library: ProtobufLibrary) {
    this.#library = library
  }

  /** @throws InvalidError that names the field by its path, the value, and what the field takes */
  message(type: ProtobufType, value: unknown, path: readonly string[] = []): object {
    if (typeof value !== "object" || value === null || Array.isArray(value) || ArrayBuffer.isView(value)) {
      throw misfit(path, value, `a message ${type.name}, an object`)
    }
    if (path.length > mostLevels)
      throw misfit(path.slice(0, 10), value, `at most ${mostLevels} levels deep, and has no cycle`)
    const message: Record<string, unknown> = {}
    for (const key of Object.keys(value)) {
      const given = (value as Record<string, unknown>)[key]
      if (given === undefined) continue
      const field = Object.hasOwn(type.fields, key) ? type.fields[key]?.resolve() : undefined
      if (field === undefined)
        throw new InvalidError(`Protobuf: ${type.name} has no field ${shown(key)}, at ${pathText([...path, key])}`)
      const other = field.partOf?.oneof.find(
        (name) => name !== key && (value as Record<string, unknown>)[name] !== undefined,
      )
      if (other !== undefined)
        throw new InvalidError(
          `Protobuf: ${shown(key)} and ${shown(other)} are of one oneof: give one, at ${pathText(path)}`,
        )
      const converted = this.#field(field, given, [...path, key])
      if (field.hasPresence || field.repeated || field.map || !isDefault(given, field)) message[key] = converted
    }
    for (const field of type.fieldsArray) {
      if (field.required && message[field.name] === undefined)
        throw misfit([...path, field.name], undefined, "given: it is required")
    }
    return message
  }

  /** The plain value of a decoded message: fields without presence that were not sent have their default. */
  plain(type: ProtobufType, message: object): object {
    const value: Record<string, unknown> = {}
    for (const declared of type.fieldsArray) {
      const field = declared.resolve()
      const has = Object.hasOwn(message, field.name)
      const raw = (message as Record<string, unknown>)[field.name]
      if (field.map) value[field.name] = this.#plainMap(field, has ? (raw as object) : {})
      else if (field.repeated)
        value[field.name] = has ? (raw as unknown[]).map((item) => this.#plainOne(field, item)) : []
      else if (has) value[field.name] = this.#plainOne(field, raw)
      else if (!field.hasPresence && !(field.resolvedType instanceof this.#library.Type))
        value[field.name] = this.#plainOne(field, field.type === "bytes" ? [] : field.defaultValue)
    }
    return value
  }

  #field(field: ProtobufField, value: unknown, path: readonly string[]): unknown {
    if (field.map) {
      if (typeof value !== "object" || value === null || Array.isArray(value))
        throw misfit(path, value, "a map, an object")
      const map: Record<string, unknown> = Object.create(null)
      for (const key of Object.keys(value)) {
        checkKey(field, key, path)
        map[key] = this.#one(field, (value as Record<string, unknown>)[key], [...path, key])
      }
      return map
    }
    if (!field.repeated) return this.#one(field, value, path)
    if (!Array.isArray(value)) throw misfit(path, value, "an array")
    return Array.from(value, (item, index) => this.#one(field, item, [...path, String(index)]))
  }

  #one(field: ProtobufField, value: unknown, path: readonly string[]): unknown {
    const { Type, Enum, util } = this.#library
    const { resolvedType } = field
    if (resolvedType instanceof Type) return this.message(resolvedType, value, path)
    if (resolvedType instanceof Enum) return enumNumber(resolvedType, value, path)
    const wide = wideTypes.get(field.type)
    if (wide !== undefined) {
      const number = typeof value === "number" && Number.isSafeInteger(value) ? BigInt(value) : value
      const unsigned = wide === "unsigned"
      if (
        typeof number !== "bigint" ||
        (unsigned ? BigInt.asUintN(64, number) : BigInt.asIntN(64, number)) !== number
      ) {
        throw misfit(
          path,
          value,
          `${field.type}: a bigint ${unsigned ? "from 0 to 2^64 − 1" : "from −2^63 to 2^63 − 1"}, or a number within ±(2^53 − 1)`,
        )
      }
      return util.Long.fromBits(Number(number & 0xffffffffn) | 0, Number((number >> 32n) & 0xffffffffn) | 0, unsigned)
    }
    if (!isScalar(field.type, value)) throw misfit(path, value, scalarText(field.type))
    return value
  }

  #plainMap(field: ProtobufField, map: object): object {
    const value: Record<string, unknown> = {}
    for (const [key, item] of Object.entries(map)) {
      const wide = wideTypes.get(field.keyType as string)
      const name =
        wide === undefined ? key : bigintOf(this.#library.util.longFromHash(key, wide === "unsigned")).toString()
      Object.defineProperty(value, name, {
        value: this.#plainOne(field, item),
        enumerable: true,
        configurable: true,
        writable: true,
      })
    }
    return value
  }

  #plainOne(field: ProtobufField, raw: unknown): unknown {
    const { resolvedType } = field
    if (resolvedType instanceof this.#library.Type) return this.plain(resolvedType, raw as object)
    if (wideTypes.has(field.type)) return bigintOf(raw as ProtobufLong | number)
    return field.type === "bytes" ? new Uint8Array(raw as Uint8Array) : raw
  }
}

const wideTypes: ReadonlyMap<string, "signed" | "unsigned"> = new Map([
  ["int64", "signed"],
  ["sint64", "signed"],
  ["sfixed64", "signed"],
  ["uint64", "unsigned"],
  ["fixed64", "unsigned"],
])

function isScalar(type: string, value: unknown): boolean {
  switch (type) {
    case "bool":
      return typeof value === "boolean"
    case "string":
      return typeof value === "string" && value.isWellFormed()
    case "bytes":
      return value instanceof Uint8Array
    case "float":
    case "double":
      return typeof value === "number"
    case "uint32":
    case "fixed32":
      return typeof value === "number" && value >>> 0 === value
    default:
      return typeof value === "number" && (value | 0) === value
  }
}

function scalarText(type: string): string {
  switch (type) {
    case "bool":
      return "true or false"
    case "string":
      return "a string without half a surrogate pair"
    case "bytes":
      return "a Uint8Array"
    case "float":
    case "double":
      return "a number"
    case "uint32":
    case "fixed32":
      return `${type}: a whole number from 0 to 2^32 − 1`
    default:
      return `${type}: a whole number from −2^31 to 2^31 − 1`
  }
}

function enumNumber(type: ProtobufEnum, value: unknown, path: readonly string[]): number {
  const number = typeof value === "string" && Object.hasOwn(type.values, value) ? type.values[value] : value
  if (typeof number === "number" && (number | 0) === number) return number
  throw misfit(path, value, `one of ${Object.keys(type.values).join(", ")}, or a number`)
}

function checkKey(field: ProtobufField, key: string, path: readonly string[]): void {
  const { keyType } = field
  if (keyType === "string") {
    if (key.isWellFormed()) return
  } else if (keyType === "bool") {
    if (key === "true" || key === "false") return
  } else if (/^(0|-?[1-9]\d*)$/.test(key)) {
    const number = BigInt(key)
    const bits = wideTypes.has(keyType as string) ? 64 : 32
    const unsigned = keyType === "uint64" || keyType === "fixed64" || keyType === "uint32" || keyType === "fixed32"
    if ((unsigned ? BigInt.asUintN(bits, number) : BigInt.asIntN(bits, number)) === number) return
  }
  throw misfit(path, key, `a map whose keys are ${keyType}`)
}

/** Whether a field without presence has its default value, which is not sent. */
function isDefault(value: unknown, field: ProtobufField): boolean {
  if (value instanceof Uint8Array) return value.length === 0
  return (
    Object.is(value, 0) || value === "" || value === false || value === 0n || (field.type === "bytes" && value === "")
  )
}

function misfit(path: readonly string[], value: unknown, takes: string): InvalidError {
  return new InvalidError(
    `Protobuf: ${pathText(path)} is ${value === undefined ? "absent" : shown(value)}; it must be ${takes}`,
  )
}

function pathText(path: readonly string[]): string {
  return path.length === 0 ? "the value" : path.join(".")
}
