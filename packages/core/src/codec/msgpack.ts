import { type Check, checker, checkOrNone } from "./check.ts"
import type { Codec } from "./codec.ts"
import { encodeFailure } from "./failure.ts"
import { loadLibrary } from "./library.ts"
import { type MapOptions, mapsOption } from "./map-options.ts"
import { scanMsgpack } from "./msgpack-scan.ts"
import { binaryLevels, checkPlain, type PlainRules } from "./plain-values.ts"
import { plainView } from "./utf8.ts"

interface Packer {
  pack(value: unknown): Uint8Array
  unpack(bytes: Uint8Array): unknown
}

/**
 * MessagePack payloads, checked as they are read. Needs the package `msgpackr`, whose own extensions are off: what is written and read is
 * the plain specification, with its timestamp as `Date`.
 *
 * Integers of 64 bits keep every digit: those within ±2^53 are numbers, the others bigints, whatever they were written from.
 */
export class Msgpack<T> implements Codec<T> {
  readonly name: string = "MessagePack"
  readonly contentType: "msgpack" = "msgpack"
  readonly #check: (value: unknown) => T
  readonly #maps: "object" | "map"
  readonly #rules: PlainRules
  readonly #packer: Packer

  /**
   * @param decode Turns the decoded value into a `T`, or throws; or a Standard Schema that answers synchronously.
   * @throws InvalidError for anything else; UnsupportedError without `msgpackr`
   */
  constructor(decode: Check<T>, options?: MapOptions) {
    this.#check = checker("new Msgpack", decode)
    this.#maps = mapsOption("new Msgpack", options)
    this.#rules = this.#maps === "map" ? { ...msgpackRules, maps: "any keys", protoKey: true } : msgpackRules
    this.#packer = packerFor(this.#maps)
  }

  /** @throws InvalidError for what MessagePack has no form for, with its path */
  encode(value: T): Uint8Array {
    const peculiar = checkPlain(value, this.#rules)
    try {
      return plainView(this.#packer.pack(peculiar === 0 ? value : packable(value)))
    } catch (cause) {
      throw encodeFailure("MessagePack", value, cause)
    }
  }

  /** @throws whatever the check throws; DecodeError for bytes that are not one value of the plain specification */
  decode(payload: Uint8Array): T {
    scanMsgpack(payload, this.#maps === "object")
    // A view of its own: the library hangs a property on what it is given.
    const view = new Uint8Array(payload.buffer, payload.byteOffset, payload.byteLength)
    return this.#check(this.#packer.unpack(view))
  }
}

/** `new Msgpack(decode, options)`, with `T` from the schema's or function's type. Without either, values are as they are, and `unknown`. */
export function msgpack(): Msgpack<unknown>
export function msgpack<T>(decode: Check<T>, options?: MapOptions): Msgpack<T>
export function msgpack<T>(decode?: Check<T>, options?: MapOptions): Msgpack<T> {
  return new Msgpack(checkOrNone(decode), options)
}

const packers = new Map<"object" | "map", Packer>()

function packerFor(maps: "object" | "map"): Packer {
  let packer = packers.get(maps)
  if (packer === undefined) {
    const { Packr } = loadLibrary<{ readonly Packr: new (options: object) => Packer }>("msgpackr", "MessagePack")
    packer = new Packr({ ...packerOptions, mapsAsObjects: maps === "object" })
    packers.set(maps, packer)
  }
  return packer
}

const packerOptions = {
  useRecords: false,
  structuredClone: false,
  moreTypes: false,
  variableMapSize: true,
  int64AsType: "auto",
  copyBuffers: true,
}

/**
 * The value without properties that are `undefined`, which the library writes as an extension of its own, and with whole numbers beyond 32
 * bits as bigints: those it writes as integers, and numbers as floats, which typed readers of other languages refuse for an integer.
 */
function packable(value: unknown): unknown {
  if (typeof value === "number") {
    const wide = Number.isSafeInteger(value) && (value > 0xffffffff || value < -0x80000000)
    return wide ? BigInt(value) : value
  }
  if (typeof value !== "object" || value === null || value instanceof Uint8Array || value instanceof Date) return value
  if (Array.isArray(value)) return value.map(packable)
  if (value instanceof Map) return new Map(Array.from(value, ([key, item]) => [packable(key), packable(item)]))
  // Without a prototype `__proto__` is a key like any other.
  const copy: Record<string, unknown> = Object.create(null)
  for (const key of Object.keys(value)) {
    const property = (value as Record<string, unknown>)[key]
    if (property !== undefined) copy[key] = packable(property)
  }
  return copy
}

const msgpackRules: PlainRules = {
  codec: "MessagePack",
  bigints: { min: -(2n ** 63n), max: 2n ** 64n - 1n },
  nonFinite: true,
  undefinedValues: false,
  bytes: true,
  dates: true,
  loneSurrogates: false,
  maps: "string keys",
  protoKey: false,
  toJson: false,
  mostLevels: binaryLevels,
}
