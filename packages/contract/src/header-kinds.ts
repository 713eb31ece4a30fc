/**
 * The kinds of a record's headers as text, for backends that keep bytes or text without kinds: the header `millrace-types` holds one
 * character a header, in order, its kind's code in base 16.
 */
import { DecodeError } from "./error.ts"
import { type HeaderKind, headerKindCodes } from "./header-value.ts"

/** The name of the header that tells the kinds. */
export const headerKindsName: string = "millrace-types"

const kindOfDigit = new Map(
  Object.entries(headerKindCodes).map(([kind, code]) => [code.toString(16), kind as HeaderKind]),
)

/** One character a kind, in order. */
export function formatHeaderKinds(kinds: readonly HeaderKind[]): string {
  let text = ""
  for (const kind of kinds) text += headerKindCodes[kind].toString(16)
  return text
}

/** @throws DecodeError for a character that is no kind, or for another count than `count` */
export function parseHeaderKinds(text: string, count: number): HeaderKind[] {
  if (text.length !== count) {
    throw new DecodeError(`${headerKindsName} tells ${text.length} kinds of ${count} headers`)
  }
  return Array.from(text, (digit) => {
    const kind = kindOfDigit.get(digit)
    if (kind === undefined) throw new DecodeError(`${headerKindsName} has ${JSON.stringify(digit)}, which is no kind`)
    return kind
  })
}
