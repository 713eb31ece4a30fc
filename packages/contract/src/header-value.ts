/**
 * A typed header value: a kind and the bytes it has on the wire. Numbers are little-endian, as Apache Iggy stores them, so that a
 * value reads back equal on every backend that keeps bytes.
 */
import { DecodeError, InvalidError } from "./error.ts"

/** Kind codes, equal to Apache Iggy's header kinds 1 to 15. They are stored: never renumber. */
export const headerKindCodes: Readonly<Record<HeaderKind, number>> = {
  raw: 1,
  string: 2,
  bool: 3,
  int8: 4,
  int16: 5,
  int32: 6,
  int64: 7,
  int128: 8,
  uint8: 9,
  uint16: 10,
  uint32: 11,
  uint64: 12,
  uint128: 13,
  float: 14,
  double: 15,
}

/** The kinds of typed header values (seed 000; Apache Iggy's table of header kinds). */
export type HeaderKind =
  | "raw"
  | "string"
  | "bool"
  | "int8"
  | "int16"
  | "int32"
  | "int64"
  | "int128"
  | "uint8"
  | "uint16"
  | "uint32"
  | "uint64"
  | "uint128"
  | "float"
  | "double"

const kindOfCode = new Map(Object.entries(headerKindCodes).map(([kind, code]) => [code, kind as HeaderKind]))

const widths: Partial<Record<HeaderKind, number>> = {
  bool: 1,
  int8: 1,
  int16: 2,
  int32: 4,
  int64: 8,
  int128: 16,
  uint8: 1,
  uint16: 2,
  uint32: 4,
  uint64: 8,
  uint128: 16,
  float: 4,
  double: 8,
}

const utf8 = new TextEncoder()
const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** One header value. Immutable; made by the static functions, or from stored bytes by `fromBytes`. */
export class HeaderValue {
  readonly kind: HeaderKind
  readonly bytes: Uint8Array

  private constructor(kind: HeaderKind, bytes: Uint8Array) {
    this.kind = kind
    this.bytes = bytes
  }

  /** Bytes as they are. The array is not copied: do not change it afterwards. */
  static raw(bytes: Uint8Array): HeaderValue {
    if (!(bytes instanceof Uint8Array))
      throw new InvalidError(`HeaderValue.raw takes a Uint8Array, not ${typeof bytes}`)
    return new HeaderValue("raw", bytes)
  }
  /** Text, stored as UTF-8. A lone surrogate cannot be stored and is refused. */
  static string(text: string): HeaderValue {
    if (typeof text !== "string") throw new InvalidError(`HeaderValue.string takes a string, not ${typeof text}`)
    if (!text.isWellFormed())
      throw new InvalidError("HeaderValue.string: the text has a lone surrogate, which UTF-8 cannot store")
    return new HeaderValue("string", utf8.encode(text))
  }
  static bool(value: boolean): HeaderValue {
    if (typeof value !== "boolean") throw new InvalidError(`HeaderValue.bool takes a boolean, not ${typeof value}`)
    return new HeaderValue("bool", Uint8Array.of(value ? 1 : 0))
  }
  static int8(value: number): HeaderValue {
    return integer("int8", value)
  }
  static int16(value: number): HeaderValue {
    return integer("int16", value)
  }
  static int32(value: number): HeaderValue {
    return integer("int32", value)
  }
  static int64(value: bigint): HeaderValue {
    return integer("int64", value)
  }
  static int128(value: bigint): HeaderValue {
    return integer("int128", value)
  }
  static uint8(value: number): HeaderValue {
    return integer("uint8", value)
  }
  static uint16(value: number): HeaderValue {
    return integer("uint16", value)
  }
  static uint32(value: number): HeaderValue {
    return integer("uint32", value)
  }
  static uint64(value: bigint): HeaderValue {
    return integer("uint64", value)
  }
  static uint128(value: bigint): HeaderValue {
    return integer("uint128", value)
  }
  /** A number as 32-bit IEEE 754: rounded to the nearest. */
  static float(value: number): HeaderValue {
    return floating("float", value)
  }
  static double(value: number): HeaderValue {
    return floating("double", value)
  }

  /**
   * The value of stored bytes. A code that is unknown, or a width that does not fit the kind, reads as `raw`, so that one odd header
   * of another client never hides a record.
   */
  static fromBytes(code: number, bytes: Uint8Array): HeaderValue {
    const kind = kindOfCode.get(code)
    if (kind === undefined) return new HeaderValue("raw", bytes)
    const width = widths[kind]
    return new HeaderValue(width === undefined || width === bytes.length ? kind : "raw", bytes)
  }

  /**
   * The value in JavaScript's terms: bytes, text, boolean, `number` up to 32 bits and for floats, `bigint` from 64 bits.
   * @throws DecodeError when a `string` is not UTF-8.
   */
  get value(): Uint8Array | string | boolean | number | bigint {
    const bytes = this.bytes
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    switch (this.kind) {
      case "raw":
        return bytes
      case "string":
        try {
          return strictUtf8.decode(bytes)
        } catch (cause) {
          throw new DecodeError("a header of kind string is not valid UTF-8", { cause })
        }
      case "bool":
        return view.getUint8(0) !== 0
      case "int8":
        return view.getInt8(0)
      case "int16":
        return view.getInt16(0, true)
      case "int32":
        return view.getInt32(0, true)
      case "int64":
        return view.getBigInt64(0, true)
      case "int128":
        return (view.getBigInt64(8, true) << 64n) | view.getBigUint64(0, true)
      case "uint8":
        return view.getUint8(0)
      case "uint16":
        return view.getUint16(0, true)
      case "uint32":
        return view.getUint32(0, true)
      case "uint64":
        return view.getBigUint64(0, true)
      case "uint128":
        return (view.getBigUint64(8, true) << 64n) | view.getBigUint64(0, true)
      case "float":
        return view.getFloat32(0, true)
      default:
        return view.getFloat64(0, true)
    }
  }

  /** Equal in kind and in every byte. */
  equals(other: HeaderValue): boolean {
    if (this.kind !== other.kind || this.bytes.length !== other.bytes.length) return false
    return this.bytes.every((byte, index) => byte === other.bytes[index])
  }

  /** `{ kind, value }` with bytes as hex and 64 bits and more as decimal text, so that no digit is lost. */
  toJSON(): { kind: HeaderKind; value: string | number | boolean | null } {
    const value = this.value
    if (value instanceof Uint8Array) return { kind: this.kind, value: hex(value) }
    if (typeof value === "bigint") return { kind: this.kind, value: value.toString() }
    if (typeof value === "number" && !Number.isFinite(value)) return { kind: this.kind, value: String(value) }
    return { kind: this.kind, value }
  }
}

function integer(kind: HeaderKind, value: number | bigint): HeaderValue {
  const width = widths[kind] as number
  const wide = width > 4
  if (wide ? typeof value !== "bigint" : !Number.isInteger(value)) {
    throw new InvalidError(
      `HeaderValue.${kind} takes ${wide ? "a bigint" : "a whole number"}, not ${String(value)} (${typeof value})`,
    )
  }
  const big = BigInt(value)
  const bits = BigInt(width * 8)
  const signed = kind.startsWith("int")
  const least = signed ? -(1n << (bits - 1n)) : 0n
  const most = signed ? (1n << (bits - 1n)) - 1n : (1n << bits) - 1n
  if (big < least || big > most) {
    throw new InvalidError(`HeaderValue.${kind}: ${big} is outside ${least} to ${most}`)
  }
  const bytes = new Uint8Array(width)
  let rest = BigInt.asUintN(width * 8, big)
  for (let i = 0; i < width; i++) {
    bytes[i] = Number(rest & 0xffn)
    rest >>= 8n
  }
  return HeaderValue.fromBytes(headerKindCodes[kind], bytes)
}

function floating(kind: "float" | "double", value: number): HeaderValue {
  if (typeof value !== "number") throw new InvalidError(`HeaderValue.${kind} takes a number, not ${typeof value}`)
  const bytes = new Uint8Array(widths[kind] as number)
  const view = new DataView(bytes.buffer)
  if (kind === "float") view.setFloat32(0, value, true)
  else view.setFloat64(0, value, true)
  return HeaderValue.fromBytes(headerKindCodes[kind], bytes)
}

/** Lower-case hexadecimal of bytes. */
export function hex(bytes: Uint8Array): string {
  let text = ""
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0")
  return text
}
