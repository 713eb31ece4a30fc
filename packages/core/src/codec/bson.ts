import { DecodeError, InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import { type Check, checker, checkOrNone } from "./check.ts"
import type { Codec } from "./codec.ts"
import { encodeFailure } from "./failure.ts"
import { loadLibrary } from "./library.ts"
import { binaryLevels, checkPlain, type PlainRules } from "./plain-values.ts"
import { plainView } from "./utf8.ts"

interface BsonLibrary {
  calculateObjectSize(document: object, options: object): number
  serialize(document: object, options: object): Uint8Array
  deserialize(bytes: Uint8Array, options: object): unknown
}

/**
 * BSON payloads, checked as they are read. Needs the package `bson`. A payload is a document, so that the value is an object, and no
 * array.
 *
 * An int64 is a bigint, and a bigint an int64; numbers are int32 or double. Its own classes (`ObjectId`, `Decimal128`, `Timestamp`, …) are
 * taken and given.
 */
export class Bson<T> implements Codec<T> {
  readonly name: string = "BSON"
  readonly contentType: "bson" = "bson"
  readonly #check: (value: unknown) => T
  readonly #library: BsonLibrary

  /**
   * @param decode Turns the decoded value into a `T`, or throws; or a Standard Schema that answers synchronously.
   * @throws InvalidError for anything else; UnsupportedError without `bson`
   */
  constructor(decode: Check<T>) {
    this.#check = checker("new Bson", decode)
    this.#library = loadLibrary<BsonLibrary>("bson", "BSON")
  }

  /** @throws InvalidError for what is no document, and for what BSON has no form for, with its path */
  encode(value: T): Uint8Array {
    if (typeof value !== "object" || value === null || Array.isArray(value) || isScalar(value)) {
      throw new InvalidError(`BSON takes a document, an object: not ${shown(value)}`)
    }
    checkPlain(value, bsonRules)
    try {
      return this.#serialize(value)
    } catch (cause) {
      throw encodeFailure("BSON", value, cause)
    }
  }

  /** @throws whatever the check throws; DecodeError or an error of `bson` for bytes that are not one document */
  decode(payload: Uint8Array): T {
    const bytes = plainView(payload)
    if (bytes.length < 5) throw new DecodeError(`${bytes.length} bytes are no document: the shortest has 5`)
    const told = new DataView(bytes.buffer, bytes.byteOffset, 4).getInt32(0, true)
    if (told !== bytes.length)
      throw new DecodeError(`the document says that it has ${told} bytes, and there are ${bytes.length}`)
    return this.#check(this.#document(bytes))
  }

  #serialize(value: object): Uint8Array {
    const { serialize, calculateObjectSize } = this.#library
    // The library writes into a buffer of 17 MiB. What is longer it cuts off without a word, or it fails.
    try {
      const payload = serialize(value, encodeOptions)
      if (payload.length < doubtfulBytes) return payload
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
    }
    const minInternalBufferSize = calculateObjectSize(value, encodeOptions)
    if (minInternalBufferSize > mostBytes)
      throw new InvalidError(`BSON has no document of ${minInternalBufferSize} bytes`)
    return serialize(value, { ...encodeOptions, minInternalBufferSize })
  }

  #document(bytes: Uint8Array): unknown {
    try {
      // A copy, since binary values are views of what they are read from.
      return this.#library.deserialize(bytes.slice(), decodeOptions)
    } catch (error) {
      if (!(error instanceof RangeError) || !error.message.includes("call stack")) throw error
      throw new DecodeError("the document is nested too deeply", { cause: error })
    }
  }
}

/** `new Bson(decode)`, with `T` from the schema's or function's type. Without, values are as they are, and `unknown`. */
export function bson(): Bson<unknown>
export function bson<T>(decode: Check<T>): Bson<T>
export function bson<T>(decode?: Check<T>): Bson<T> {
  return new Bson(checkOrNone(decode))
}

/** Documents of this size may have been cut off. */
const doubtfulBytes = 16 << 20
/** A document tells its size as an int32. */
const mostBytes = 2 ** 31 - 1

const encodeOptions = { ignoreUndefined: true, serializeFunctions: false, checkKeys: false }
const decodeOptions = { useBigInt64: true, promoteBuffers: true, promoteValues: true, validation: { utf8: true } }

function isScalar(value: object): boolean {
  return ArrayBuffer.isView(value) || value instanceof Date || isBsonValue(value)
}

function isBsonValue(value: object): boolean {
  return typeof (value as { readonly _bsontype?: unknown })._bsontype === "string"
}

const bsonRules: PlainRules = {
  codec: "BSON",
  bigints: { min: -(2n ** 63n), max: 2n ** 63n - 1n },
  nonFinite: true,
  undefinedValues: false,
  bytes: true,
  dates: true,
  loneSurrogates: false,
  maps: "string keys",
  protoKey: true,
  toJson: false,
  mostLevels: binaryLevels,
  own: (value) => isBsonValue(value) || value instanceof RegExp,
}
