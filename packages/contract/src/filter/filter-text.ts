/** The canonical text of a filter: what is stored, and what two filters are compared by. */
import { InvalidError } from "../error.ts"
import { canonicalText } from "./canonical-text.ts"
import { checkFilter } from "./check.ts"
import type { CheckedFilter } from "./filter.ts"

/**
 * JSON with keys in order and nothing left to defaults. Whole numbers have all their digits, also beyond 2^53. Two filters have the same
 * text if and only if they are written alike; what only means the same has another text.
 */
export function filterText(filter: CheckedFilter): string {
  return canonicalText(filter)
}

/**
 * Reads the text of a filter, and checks it again. Whole numbers beyond 2^53 − 1 are read exactly.
 * @throws InvalidError for what is not JSON, and as `checkFilter` does
 */
export function parseFilterText(text: string): CheckedFilter {
  let value: unknown
  try {
    value = (JSON.parse as ParseWithSource)(text, exact)
  } catch (cause) {
    throw new InvalidError(`the text of a filter is not JSON: ${(cause as Error).message}`, { cause })
  }
  return checkFilter(value)
}

type ParseWithSource = (
  text: string,
  reviver: (key: string, value: unknown, context: { readonly source?: string }) => unknown,
) => unknown

function exact(_key: string, value: unknown, { source }: { readonly source?: string }): unknown {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return value
  return source !== undefined && /^-?\d{1,512}$/.test(source) ? BigInt(source) : value
}
