import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import type { Codec } from "./codec.ts"
import { isStandardSchema, type StandardSchema, validate } from "./standard-schema.ts"

const utf8 = new TextEncoder()
const strictUtf8 = new TextDecoder("utf-8", { fatal: true })

/**
 * JSON payloads, checked as they are read (seed 000, "Typed handles and readers").
 *
 * `null` is the JSON value `null`; a tombstone (a record without a payload) never reaches the codec.
 */
export class Json<T> implements Codec<T> {
  readonly name: string = "JSON"
  readonly contentType: "json" = "json"
  readonly #check: (value: unknown) => T

  /**
   * @param decode Turns the parsed JSON into a `T`, or throws: types do not exist at run time, so this is where values are checked. Or a
   *   Standard Schema that answers synchronously.
   * @throws InvalidError for anything else.
   */
  constructor(decode: ((value: unknown) => T) | StandardSchema<T>) {
    if (isStandardSchema(decode)) this.#check = (value) => validate(decode as StandardSchema<T>, value)
    else if (typeof decode === "function") this.#check = decode
    else
      throw new InvalidError(
        `new Json takes a function that checks a value, or a Standard Schema, not ${shown(decode)}`,
      )
  }

  /** @throws InvalidError for what JSON has no text for: `undefined`, a function, a bigint, a cycle. */
  encode(value: T): Uint8Array {
    let text: string | undefined
    try {
      text = JSON.stringify(value)
    } catch (cause) {
      throw new InvalidError(`the value has no JSON form: ${String(cause)}`, { cause })
    }
    if (text === undefined) throw new InvalidError(`${shown(value)} has no JSON form`)
    return utf8.encode(text)
  }

  /** @throws whatever the check throws; SyntaxError and TypeError for bytes that are not JSON in UTF-8. */
  decode(payload: Uint8Array): T {
    return this.#check(JSON.parse(strictUtf8.decode(payload)))
  }
}
