/** How values of a record compare with values of a filter. */
import { compareDecimals, type Decimal, decimalOf, parseDecimal } from "./decimal.ts"
import type { FilterCoercion, FilterScalar } from "./filter.ts"
import { type InstantForm, instantOf, parseRfc3339 } from "./instant.ts"

/** Below, at or above 0; `undefined` where the types cannot be compared, NaN where no order holds (a value that is NaN). */
export type Ordering = number | undefined

/** Compares a value that is neither missing nor null with one that is fixed. */
export type Comparison = (value: unknown) => Ordering

/** A comparison with a value that is not null. `undefined` when the value does not read under the coercion. */
export function comparisonWith(
  wanted: Exclude<FilterScalar, null>,
  coercion: FilterCoercion | undefined,
): Comparison | undefined {
  if (coercion === undefined) return plainComparison(wanted)
  if (coercion === "number") {
    const decimal = decimalIn(wanted)
    if (decimal === undefined) return undefined
    return (value) => {
      const other = decimalIn(value)
      return other === undefined ? undefined : compareDecimals(other, decimal)
    }
  }
  const instant = wantedInstant(wanted, coercion)
  if (instant === undefined) return undefined
  return (value) => {
    const other = instantOf(value, coercion)
    return other === undefined ? undefined : compared(other, instant)
  }
}

/** Texts by their code points, so that the order is that of their bytes in UTF-8. @internal */
export function compareTexts(left: string, right: string): number {
  const length = Math.min(left.length, right.length)
  for (let i = 0; i < length; i++) {
    const a = left.charCodeAt(i)
    const b = right.charCodeAt(i)
    if (a === b) continue
    // Surrogates stand for code points above all others.
    const aHigh = a >= 0xd800 && a < 0xe000
    const bHigh = b >= 0xd800 && b < 0xe000
    if (aHigh !== bHigh) return aHigh ? 1 : -1
    return a - b
  }
  return left.length - right.length
}

function plainComparison(wanted: Exclude<FilterScalar, null>): Comparison {
  switch (typeof wanted) {
    case "string":
      return (value) => (typeof value === "string" ? compareTexts(value, wanted) : undefined)
    case "boolean":
      return (value) => (typeof value === "boolean" ? Number(value) - Number(wanted) : undefined)
    default:
      return (value) =>
        typeof value === "number" || typeof value === "bigint" ? compared(value, wanted as number | bigint) : undefined
  }
}

/** Exact also between a number and a bigint. */
function compared(left: number | bigint, right: number | bigint): number {
  if (left < right) return -1
  if (left > right) return 1
  // biome-ignore lint/suspicious/noDoubleEquals: equal in value, whichever types they have
  return left == right ? 0 : Number.NaN
}

function decimalIn(value: unknown): Decimal | undefined {
  if (typeof value === "string") return parseDecimal(value)
  return typeof value === "number" || typeof value === "bigint" ? decimalOf(value) : undefined
}

/** A filter may write an instant as RFC 3339 text whatever form the field has. */
function wantedInstant(wanted: unknown, form: InstantForm): bigint | undefined {
  return instantOf(wanted, form) ?? (typeof wanted === "string" ? parseRfc3339(wanted) : undefined)
}
