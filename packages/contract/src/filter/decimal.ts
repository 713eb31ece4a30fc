/** Exact decimal numbers, for the coercion "number". */

/** `coefficient · 10^−scale`. */
export interface Decimal {
  readonly coefficient: bigint
  readonly scale: number
}

/** More digits than this, before and behind the point and by the exponent, are not read. */
const mostDigits = 512

const form = /^([+-]?)(\d*)(?:\.(\d+))?(?:[eE]([+-]?\d{1,4}))?$/

/**
 * Reads a sign, digits with an optional fraction, and an optional exponent: `-12.50`, `.5`, `1e-7`. Nothing else may stand around them.
 * `undefined` for other texts, and for more than 512 digits.
 */
export function parseDecimal(text: string): Decimal | undefined {
  // A bound on what the expression looks at.
  if (text.length > mostDigits + 8) return undefined
  const parts = form.exec(text)
  if (parts === null) return undefined
  const [, sign, whole = "", fraction = "", exponent = "0"] = parts
  const digits = whole + fraction
  const scale = fraction.length - Number(exponent)
  if (digits === "" || digits.length > mostDigits || Math.abs(scale) > mostDigits) return undefined
  const magnitude = BigInt(digits)
  return { coefficient: sign === "-" ? -magnitude : magnitude, scale }
}

/** A number as its shortest text says it; `undefined` for NaN and the infinities. */
export function decimalOf(value: number | bigint): Decimal | undefined {
  return typeof value === "bigint" ? { coefficient: value, scale: 0 } : parseDecimal(String(value))
}

/** Below, at or above 0 as `left` is below, at or above `right`. */
export function compareDecimals(left: Decimal, right: Decimal): number {
  const scale = Math.max(left.scale, right.scale)
  const a = left.coefficient * 10n ** BigInt(scale - left.scale)
  const b = right.coefficient * 10n ** BigInt(scale - right.scale)
  return a < b ? -1 : a > b ? 1 : 0
}
