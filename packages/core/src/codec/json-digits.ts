/** Integers in JSON that a number cannot hold. `JSON.parse` rounds them without a word. */
import { DecodeError } from "@millrace/contract"

/** 2^53 has 16 digits: an integer with fewer is exact. */
const exactDigits = 15

/**
 * Whether the JSON text may have an integer of 16 or more digits outside of strings. A run that long covers one byte of any sixteen, so
 * only every sixteenth is looked at. May be wrong in one direction: text inside of a string, such as `"a, 1234567890123456"`.
 */
export function wideInteger(text: Uint8Array): boolean {
  const { length } = text
  for (let at = exactDigits; at < length; at += exactDigits + 1) {
    if (!isDigit(text[at] as number)) continue
    let first = at
    while (first > 0 && isDigit(text[first - 1] as number)) first--
    let end = at + 1
    while (end < length && isDigit(text[end] as number)) end++
    if (end - first > exactDigits && startsNumber(text, first)) return true
    // Behind a run that is none stands something else, so that the next one covers the byte that the step leads to.
    at = end
  }
  return false
}

/**
 * Parses JSON whose wide integers are looked at digit by digit.
 * @param bigints Whether integers beyond ±(2^53 − 1) are bigints; else those that a number holds are numbers: it is exactly
 *   that, or is written with just these digits.
 * @throws DecodeError for an integer that a number does not hold, unless `bigints`; then for one with more digits than
 *   2^4096, since the time that a bigint takes grows with their square
 */
export function parseExactJson(text: string, bigints: boolean): unknown {
  return parse(text, (_key, value, context) => {
    if (typeof value !== "number" || Number.isSafeInteger(value)) return value
    const { source } = context
    if (source === undefined || !integer.test(source)) return value
    if (bigints) {
      if (source.length <= mostCharacters) return BigInt(source)
      throw new DecodeError(`the integer ${shortened(source)} is beyond ±2^4096, which is the most that is read`)
    }
    if (String(value) === source || (Number.isFinite(value) && BigInt(value) === BigInt(source))) return value
    throw new DecodeError(
      `the integer ${shortened(source)} has more digits than a number holds: read it with { integers: "bigint" }, or send it as a string`,
    )
  })
}

const integer = /^-?\d+$/
/** As 2^4096 has them, with a sign. */
const mostCharacters = 1_235
/** The third argument of a reviver is newer than the types. */
const parse = JSON.parse as (
  text: string,
  reviver: (key: string, value: unknown, context: { readonly source?: string }) => unknown,
) => unknown

/** Digits that follow a quote, a letter or a point are in a string or behind a decimal point. */
function startsNumber(text: Uint8Array, first: number): boolean {
  let before = first - 1
  if (before >= 0 && text[before] === minus) before--
  if (before < 0) return true
  const byte = text[before] as number
  return byte <= space || byte === comma || byte === colon || byte === bracket
}

const [space, comma, minus, colon, bracket] = [0x20, 0x2c, 0x2d, 0x3a, 0x5b]

function isDigit(byte: number): boolean {
  return byte >= 0x30 && byte <= 0x39
}

function shortened(digits: string): string {
  return digits.length > 40 ? `${digits.slice(0, 37)}… (${digits.length} digits)` : digits
}
