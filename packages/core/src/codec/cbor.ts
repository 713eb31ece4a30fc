import { type CborLibrary, cborLibrary } from "./cbor-library.ts"
import { type Check, checker, checkOrNone } from "./check.ts"
import type { Codec } from "./codec.ts"
import { encodeFailure } from "./failure.ts"
import { type MapOptions, mapsOption } from "./map-options.ts"
import { binaryLevels, checkPlain, type PlainRules } from "./plain-values.ts"

/**
 * CBOR payloads (RFC 8949), checked as they are read. Needs the package `cborg`.
 *
 * Integers of 64 bits and bignums keep every digit: those within ±(2^53 − 1) are numbers, the others bigints, whatever they were written
 * from. A `Date` is an epoch time (tag 1; tag 0 is read too). Other tags are refused.
 */
export class Cbor<T> implements Codec<T> {
  readonly name: string = "CBOR"
  readonly contentType: "cbor" = "cbor"
  readonly #check: (value: unknown) => T
  readonly #library: CborLibrary
  readonly #rules: PlainRules
  readonly #maps: "object" | "map"

  /**
   * @param decode Turns the decoded value into a `T`, or throws; or a Standard Schema that answers synchronously.
   * @throws InvalidError for anything else; UnsupportedError without `cborg`
   */
  constructor(decode: Check<T>, options?: MapOptions) {
    this.#check = checker("new Cbor", decode)
    this.#maps = mapsOption("new Cbor", options)
    this.#library = cborLibrary()
    this.#rules = this.#maps === "map" ? { ...cborRules, maps: "any keys" } : cborRules
  }

  /** @throws InvalidError for what CBOR has no form for, with its path */
  encode(value: T): Uint8Array {
    checkPlain(value, this.#rules)
    try {
      return this.#library.encode(value)
    } catch (cause) {
      throw encodeFailure("CBOR", value, cause)
    }
  }

  /** @throws whatever the check throws; DecodeError or an error of `cborg` for bytes that are not one CBOR value */
  decode(payload: Uint8Array): T {
    return this.#check(this.#library.decode(payload, this.#maps))
  }
}

/** `new Cbor(decode, options)`, with `T` from the schema's or function's type. Without either, values are as they are, and `unknown`. */
export function cbor(): Cbor<unknown>
export function cbor<T>(decode: Check<T>, options?: MapOptions): Cbor<T>
export function cbor<T>(decode?: Check<T>, options?: MapOptions): Cbor<T> {
  return new Cbor(checkOrNone(decode), options)
}

/** 2^4096: more than any protocol sends, and still quick to print and to parse. */
const mostBigint = 2n ** 4096n

const cborRules: PlainRules = {
  codec: "CBOR",
  bigints: { min: -mostBigint, max: mostBigint },
  nonFinite: true,
  undefinedValues: true,
  bytes: true,
  dates: true,
  loneSurrogates: false,
  maps: "string keys",
  protoKey: true,
  toJson: false,
  mostLevels: binaryLevels,
}
