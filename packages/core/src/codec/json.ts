import { Buffer } from "node:buffer"
import { InvalidError } from "@millrace/contract"
import { OptionReader } from "../client/options.ts"
import { type Check, checker, checkOrNone } from "./check.ts"
import type { Codec } from "./codec.ts"
import { parseExactJson, wideInteger } from "./json-digits.ts"
import { checkPlain, type PlainRules } from "./plain-values.ts"
import { plainView, utf8Text } from "./utf8.ts"

/** What a codec of JSON does beyond the value's check. */
export interface JsonOptions {
  /**
   * What becomes of integers beyond ±(2^53 − 1), whose digits a number cannot hold. `"exact"` (default): those that a number holds all
   * the same are numbers, any other is refused, when decoding as well as when encoding (a bigint). `"bigint"`: they are bigints when
   * decoded, and bigints are written as digits. `"number"`: they are rounded when decoded, as `JSON.parse` does.
   */
  readonly integers?: "exact" | "bigint" | "number"
}

/**
 * JSON payloads in UTF-8, checked as they are read (seed 000, "Typed handles and readers").
 *
 * `null` is the JSON value `null`; a tombstone (a record without a payload) never reaches the codec.
 */
export class Json<T> implements Codec<T> {
  readonly name: string = "JSON"
  readonly contentType: "json" = "json"
  readonly #check: (value: unknown) => T
  readonly #integers: "exact" | "bigint" | "number"

  /**
   * @param decode Turns the parsed JSON into a `T`, or throws: types do not exist at run time, so this is where values are checked. Or a
   *   Standard Schema that answers synchronously.
   * @throws InvalidError for anything else, and for options that are not known
   */
  constructor(decode: Check<T>, options?: JsonOptions) {
    this.#check = checker("new Json", decode)
    const read = new OptionReader<JsonOptions>("new Json", options, ["integers"])
    this.#integers = read.choice("integers", ["exact", "bigint", "number"], "exact")
  }

  /**
   * As `JSON.stringify` does it, but for what that would lose without a word: NaN, infinities, `undefined` and functions in arrays, maps,
   * sets, bytes and the like are refused.
   * @throws InvalidError for what JSON has no text for, with its path
   */
  encode(value: T): Uint8Array {
    return jsonBytes(value, this.#integers)
  }

  /** @throws whatever the check throws; SyntaxError, TypeError or DecodeError for bytes that are not JSON in UTF-8 */
  decode(payload: Uint8Array): T {
    const text = utf8Text(payload)
    const exact = this.#integers !== "number" && wideInteger(payload)
    return this.#check(exact ? parseExactJson(text, this.#integers === "bigint") : JSON.parse(text))
  }
}

/** `new Json(decode, options)`, with `T` from the schema's or function's type. Without either, values are as they are, and `unknown`. */
export function json(): Json<unknown>
export function json<T>(decode: Check<T>, options?: JsonOptions): Json<T>
export function json<T>(decode?: Check<T>, options?: JsonOptions): Json<T> {
  return new Json(checkOrNone(decode), options)
}

/** A value as JSON text in UTF-8: `encode` of every codec and builder that writes JSON. @throws as `Json.encode` */
export function jsonBytes(value: unknown, integers: "exact" | "bigint" | "number" = "exact"): Uint8Array {
  // Out of the pool of buffers: for a small record the allocation would be half of the work.
  return plainView(Buffer.from(jsonText(value, integers)))
}

/** @throws as `Json.encode` */
export function jsonText(value: unknown, integers: "exact" | "bigint" | "number" = "exact"): string {
  const rules = integers === "bigint" ? bigintRules : jsonRules
  let text: string | undefined
  try {
    text = JSON.stringify(value, integers === "bigint" ? rawDigits : undefined)
  } catch (cause) {
    checkPlain(value, rules)
    throw new InvalidError(`JSON has no form for the value: ${String(cause)}`, { cause })
  }
  if (text !== undefined && !mayHaveLost(text)) return text
  checkPlain(value, rules)
  if (text === undefined) throw new InvalidError("JSON has no form for a value whose toJSON returns undefined")
  return text
}

/** What `JSON.stringify` writes for values that it has no form for. A walk over the value tells whether it was one of them. */
function mayHaveLost(text: string): boolean {
  if (text.includes("null") || lossyStarts.some((start) => text.startsWith(start))) return true
  return text.indexOf("{", 1) !== -1 && lossyStarts.some((start) => text.includes(start, 1))
}

/** Maps, sets, regular expressions and the like; views of bytes; `Buffer`. */
const lossyStarts = ["{}", '{"0":', '{"type":"Buffer"']

const jsonRules: PlainRules = {
  codec: "JSON",
  nonFinite: false,
  undefinedValues: false,
  bytes: false,
  dates: false,
  loneSurrogates: true,
  maps: "none",
  protoKey: true,
  toJson: true,
  mostLevels: 2_000,
}
/** Above it the time to print and to parse them is felt. */
const mostBigint = 2n ** 4096n
const bigintRules: PlainRules = { ...jsonRules, bigints: { min: -mostBigint, max: mostBigint } }

function rawDigits(_key: string, value: unknown): unknown {
  if (typeof value !== "bigint") return value
  if (value > mostBigint || value < -mostBigint) throw new RangeError("a bigint is beyond ±2^4096")
  return JSONRaw.rawJSON(value.toString())
}
const JSONRaw = JSON as unknown as { rawJSON(text: string): unknown }
